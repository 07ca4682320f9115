"""No history can brick an agent: what the model is shown is always well-formed."""

from hypothesis import given
from hypothesis import strategies as st

from kelpie.agent.prompt.wellformed_history import healed, left_open
from kelpie.core.conversations.messages import Message, Role, Text, ToolCall, ToolReturn
from kelpie.core.ids import AgentId, MessageId, StepId

AGENT = AgentId("agent-00000000-0000-4000-8000-000000000001")


def row(n, role, calls=(), returns=(), step="step-a"):
    return Message(
        MessageId(f"message-{n}"),
        AGENT,
        role,
        n,
        (Text(str(n)),) if role is not Role.tool else (),
        tuple(ToolCall(c, "t", "{}") for c in calls),
        tuple(ToolReturn(c, "t", True, "ok") for c in returns),
        step_id=StepId(step),
    )


def assert_well_formed(messages):
    open_calls: set[str] = set()
    for message in messages:
        if message.role is Role.tool:
            assert message.tool_returns
            for result in message.tool_returns:
                assert result.call_id in open_calls, "a result without its call"
                open_calls.remove(result.call_id)
        else:
            assert not open_calls, "a call without its result"
            open_calls = {c.id for c in message.tool_calls}
    assert not open_calls


_ids = st.lists(st.sampled_from("abcd"), max_size=3, unique=True)
_rows = st.lists(
    st.one_of(
        st.tuples(st.just(Role.user), st.just([]), st.just([])),
        st.tuples(st.just(Role.assistant), _ids, st.just([])),
        st.tuples(st.just(Role.tool), st.just([]), _ids),
    ),
    max_size=12,
)


@given(_rows)
def test_whatever_is_stored_is_shown_well_formed(spec):
    assert_well_formed(healed([row(i, role, calls, returns) for i, (role, calls, returns) in enumerate(spec)]))


@given(_rows)
def test_healing_twice_changes_nothing(spec):
    once = healed([row(i, role, calls, returns) for i, (role, calls, returns) in enumerate(spec)])
    assert healed(once) == once


def test_a_good_history_is_left_alone():
    good = [
        row(0, Role.user),
        row(1, Role.assistant, ["a", "b"]),
        row(2, Role.tool, returns=["a"]),
        row(3, Role.tool, returns=["b"]),
        row(4, Role.assistant),
    ]
    assert healed(good) == good


def test_open_calls_of_a_run_are_found():
    reply = row(1, Role.assistant, ["a", "b"])
    assert left_open([row(0, Role.user), reply, row(2, Role.tool, returns=["a"])]) == (reply, (reply.tool_calls[1],))
    assert left_open([row(0, Role.user), reply, row(2, Role.tool, returns=["a", "b"])]) is None
    assert left_open([row(0, Role.user)]) is None


def test_a_call_id_used_again_in_a_later_step_is_still_open():
    later = row(3, Role.assistant, ["a"], step="step-b")
    found = left_open([row(1, Role.assistant, ["a"]), row(2, Role.tool, returns=["a"]), later])
    assert found == (later, later.tool_calls)
