"""How much of a history the model is shown: all of it, or the newest part that fits."""

from hypothesis import given
from hypothesis import strategies as st

from kelpie.agent.prompt.agent_types import spec_of
from kelpie.agent.prompt.context import Context
from kelpie.agent.prompt.wellformed_history import weight
from kelpie.core.agents.agent import AgentType
from kelpie.core.conversations.messages import Message, Role, Text
from kelpie.core.ids import AgentId, MessageId
from kelpie.llm.provider.interface import PreparedMessage

SPEC = spec_of(AgentType.letta_v1_agent)


def row(number: int, role: Role, length: int) -> Message:
    agent = AgentId("agent-00000000-0000-4000-8000-000000000001")
    return Message(MessageId(f"message-{number}"), agent, role, number, (Text("x" * length),))


said = st.tuples(st.sampled_from([Role.user, Role.assistant]), st.integers(0, 50))


@given(st.lists(said, max_size=12), st.integers(0, 12), st.integers(0, 500))
def test_the_newest_part_that_fits_is_shown(history: list[tuple[Role, int]], known: int, chars_max: int) -> None:
    rows = [row(i, role, length) for i, (role, length) in enumerate(history)]
    context = Context([PreparedMessage(message) for message in rows[:known]])
    context.extend(rows[known:], SPEC)
    shown = [entry.message for entry in context.within(chars_max)]

    assert shown == rows[len(rows) - len(shown) :], "it is the end of the history"
    users = [i for i, message in enumerate(rows) if message.role is Role.user]
    fitting = [i for i in users if sum(map(weight, rows[i:])) <= chars_max]
    if sum(map(weight, rows)) <= chars_max or not users:
        assert shown == rows
    else:
        first = fitting[0] if fitting else users[-1]
        assert shown == rows[first:], "it begins with the earliest word of the user that fits, or else the last one"
