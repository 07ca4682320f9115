"""Where a history is cut: never between a call and its result, never the question, never what is still open."""

from hypothesis import given
from hypothesis import strategies as st

from kelpie.agent.compaction.cut_points import Cut, Cuttable
from kelpie.agent.prompt.wellformed_history import healed, weight
from kelpie.core.conversations.messages import Message, Role, Text, ToolCall, ToolReturn
from kelpie.core.ids import AgentId, MessageId, RunId

AGENT = AgentId("agent-00000000-0000-4000-8000-000000000001")


class Story:
    """Rows written turn by turn."""

    def __init__(self) -> None:
        self.rows: list[Message] = []
        self.turns = 0

    def add(self, role: Role, text: str = "", **fields) -> "Story":
        number = len(self.rows)
        run = RunId(f"run-{self.turns}")
        row = Message(MessageId(f"message-{number}"), AGENT, role, number, (Text(text),), run_id=run, **fields)
        self.rows.append(row)
        return self

    def asks(self, length: int = 10) -> "Story":
        self.turns += 1
        return self.add(Role.user, "q" * length, otid=f"otid-{self.turns}")

    def calls(self, length: int = 10, *, answered: bool = True) -> "Story":
        call = ToolCall(f"call-{len(self.rows)}", "look", "{}")
        self.add(Role.assistant, tool_calls=(call,))
        result = ToolReturn(call.id, call.name, True, "r" * length)
        return self.add(Role.tool, tool_returns=(result,)) if answered else self

    def says(self, length: int = 10) -> "Story":
        return self.add(Role.assistant, "a" * length)


def conversation(turns: int) -> list[Message]:
    story = Story()
    for _ in range(turns):
        story.asks().says()
    return story.rows


def test_a_share_is_cut_at_an_answer_and_the_rest_stays() -> None:
    rows = conversation(6)
    cut = Cuttable(rows, pinned=False).sliding(0.3, room=10**6)
    assert cut == Cut(tuple(rows[:3]), tuple(rows[3:])), "four tenths of thirteen, back to an answer"


def test_the_share_grows_until_the_rest_fits() -> None:
    rows = conversation(10)
    room = sum(map(weight, rows[-4:]))
    cut = Cuttable(rows, pinned=False).sliding(0.3, room)
    assert cut is not None and sum(map(weight, cut.kept)) <= room
    assert cut.kept == tuple(rows[len(cut.evicted) :])


def test_no_share_fits_where_the_last_message_alone_is_too_much() -> None:
    rows = Story().asks().says().asks().says(5000).rows
    assert Cuttable(rows, pinned=False).sliding(0.3, room=1000) is None
    assert Cuttable(rows, pinned=False).whole(1000) == Cut(tuple(rows), ())


def test_all_of_it_goes_only_once_the_turn_is_over() -> None:
    rows = Story().asks().says().asks().calls().calls().rows
    assert Cuttable(rows, pinned=False).whole(10**6) == Cut(tuple(rows), ())
    assert Cuttable(rows, pinned=True).whole(10**6) == Cut(tuple(rows[:2]), tuple(rows[2:]))


def test_a_turn_that_alone_is_too_long_keeps_its_question_and_its_newest_step() -> None:
    rows = Story().asks().says().asks(50).calls(400).calls(400).calls(100).rows
    cut = Cuttable(rows, pinned=True).whole(room=300)
    assert cut is not None
    assert cut.kept == (rows[2], *rows[-2:])
    assert cut.evicted == (*rows[:2], *rows[3:-2])


def test_what_waits_for_an_answer_stays() -> None:
    rows = Story().asks().says().asks().calls(answered=False).rows
    for cut in (Cuttable(rows, pinned=False).whole(0), Cuttable(rows, pinned=False).newest(0)):
        assert cut is not None and cut.kept[-1] is rows[-1]


def test_an_earlier_summary_alone_is_no_reason_to_sum_up_again() -> None:
    rows = Story().add(Role.summary, "before").rows
    assert Cuttable(rows, pinned=False).whole(0) is None
    assert Cuttable(rows, pinned=False).newest(0) is None
    assert Cuttable([], pinned=False).whole(0) is None


turn = st.tuples(st.integers(0, 300), st.lists(st.integers(0, 300), max_size=4))
WAYS = st.sampled_from(["sliding", "whole", "newest"])


@given(st.lists(turn, min_size=1, max_size=6), WAYS, st.booleans(), st.booleans(), st.integers(0, 2000))
def test_whatever_is_cut_every_call_keeps_its_result(turns, way: str, over: bool, pinned: bool, room: int) -> None:
    story = Story()
    for asked, results in turns:
        story.asks(asked)
        for result in results:
            story.calls(result)
        if over:
            story.says()
    rows = story.rows
    cuttable = Cuttable(rows, pinned=pinned)
    cut = cuttable.sliding(0.3, room) if way == "sliding" else getattr(cuttable, way)(room)
    if cut is None:
        return
    assert cut.evicted
    assert sorted((*cut.evicted, *cut.kept), key=lambda row: row.created_at) == rows, "nothing is lost or doubled"
    assert list(cut.kept) == sorted(cut.kept, key=lambda row: row.created_at)
    assert healed(cut.kept) == list(cut.kept), "what stays needs no repair"
    if pinned:
        question = next(row for row in reversed(rows) if row.role is Role.user)
        assert question in cut.kept
    if way == "sliding":
        assert sum(map(weight, cut.kept)) <= room and rows[-1] in cut.kept
