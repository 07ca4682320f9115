"""What a summariser is given of a history: everything that matters, in pieces that fit."""

from hypothesis import given
from hypothesis import strategies as st

from kelpie.agent.prompt.summary import NOTE, read_summary, summary_row
from kelpie.agent.prompt.transcript import LEFT_OUT, PIECES_MAX, RESULT_CHARS_MAX, pieces, transcript
from kelpie.core.agents.compaction_settings import CompactionStats
from kelpie.core.conversations.messages import Image, Message, Reasoning, Role, Text, ToolCall, ToolReturn
from kelpie.core.conversations.runs import Run, RunStatus
from kelpie.core.ids import AgentId, MessageId, RunId
from kelpie.core.token_estimates import byte_length

AGENT = AgentId("agent-00000000-0000-4000-8000-000000000001")
RUN = Run(RunId("run-1"), AGENT, RunStatus.running, 1)


def row(role: Role, *content, **fields) -> Message:
    return Message(MessageId("message-1"), AGENT, role, 1, content, **fields)


def test_what_was_said_and_done_is_told_in_order() -> None:
    call = ToolCall("call-1", "look", '{"at": "sky"}')
    lines = list(
        transcript(
            [
                row(Role.user, Text("What is this?"), Image({"type": "url", "url": "http://x/y.png"})),
                row(Role.assistant, Reasoning("hm"), tool_calls=(call,)),
                row(Role.tool, tool_returns=(ToolReturn("call-1", "look", True, "blue"),)),
                row(Role.assistant, Text("The sky.")),
            ]
        )
    )
    assert lines == [
        "[user] What is this?\n[an image]",
        '[assistant calls look] {"at": "sky"}',
        "[result of look] blue",
        "[assistant] The sky.",
    ]


def test_an_earlier_summary_is_told_without_its_envelope() -> None:
    summary = summary_row(RUN, MessageId("message-2"), "Ann likes tea.", None, 1, None)
    assert list(transcript([summary])) == ["[summary of earlier messages] Ann likes tea."]
    assert NOTE in summary.text


def test_a_long_result_loses_its_middle() -> None:
    result = ToolReturn("call-1", "look", False, "head" + "x" * 20_000 + "tail")
    (line,) = transcript([row(Role.tool, tool_returns=(result,))])
    assert line.startswith("[failure of look] head") and line.endswith("tail")
    assert len(line) < RESULT_CHARS_MAX + 200 and "omitted" in line


@given(st.lists(st.text(max_size=60), max_size=30), st.integers(20, 80))
def test_pieces_hold_everything_and_none_is_too_long(lines: list[str], size: int) -> None:
    made = pieces(lines, size)
    assert all(byte_length(piece) <= size + len(LEFT_OUT) + 1 for piece in made)
    assert len(made) <= PIECES_MAX
    if not made or not made[0].startswith(LEFT_OUT):
        assert "".join(made).replace("\n", "") == "".join(lines).replace("\n", "")


def test_of_too_much_the_newest_is_told() -> None:
    made = pieces((f"line {number:05}" for number in range(1000)), 100)
    assert made[0].startswith(LEFT_OUT) and made[-1].endswith("line 00999")


def test_a_summary_is_read_as_it_was_written() -> None:
    stats = CompactionStats("post_step_context_check", 900, 100, 1000, 12, 4)
    read = read_summary(summary_row(RUN, MessageId("message-2"), "Ann likes tea.", stats, 1, "otid"))
    assert (read.text, read.stats) == ("Ann likes tea.", stats.to_json())
    assert read_summary(row(Role.summary, Text("plain"))).text == "plain"
