"""Guards of stored rows, each on both sides: what a statement changes only while a row is as expected, and the last and
first moment, number or version for which it does."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import insert, select, text, update

from kelpie.core.conversations.approvals import PendingCalls
from kelpie.core.conversations.messages import ApprovalDecision, NewMessage, Role, Text, Usage
from kelpie.core.conversations.runs import UNFINISHED, Run, RunStatus, StopReason
from kelpie.core.errors import Fenced, NotFound, RunOver, StorageBusy
from kelpie.core.ids import AgentId, ConversationId, MessageId, OrganizationId, RunId
from kelpie.core.memory.working_memory import WorkingMemoryEntry
from kelpie.storage.agents import ownership_fence
from kelpie.storage.agents.ownership_fence import Claim, Node
from kelpie.storage.conversations import approvals
from kelpie.storage.memory import working_memory
from kelpie.storage.runs import callbacks, client_ids, events, runs, unfinished
from kelpie.storage.runs.input import RunInput
from kelpie.storage.tables import agent_head, agents, memory_changes, nodes
from kelpie.storage.tables import approvals as approvals_table
from kelpie.storage.tables import runs as runs_table
from kelpie.world.database import Tx
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema

A = AgentId("agent-00000000-0000-4000-8000-000000000001")
B = AgentId("agent-00000000-0000-4000-8000-000000000002")
OURS = OrganizationId("org-00000000-0000-4000-8000-000000000001")
OTHERS = OrganizationId("org-00000000-0000-4000-8000-000000000002")
NODE = Node("here", 3)
INPUT = RunInput((NewMessage(Role.user, (Text("hello"),)),), 5)


@pytest.fixture
def tx(stored: Tx) -> Iterator[Tx]:
    with stored.begin_nested() as point:
        yield stored
        point.rollback()


@pytest.fixture(scope="module")
def stored() -> Iterator[Tx]:
    with memory_connection() as connection:
        connection.execute(text("PRAGMA foreign_keys = OFF"))
        create_schema(connection)
        connection.execute(insert(nodes), {"id": "here", "incarnation": 3, "address": "", "expires_at": 0})
        connection.execute(insert(nodes), {"id": "there", "incarnation": 7, "address": "", "expires_at": 0})
        for agent_id, owner in ((A, OURS), (B, OTHERS)):
            ownership_fence.create(connection, agent_id)
            needed = {
                column.name: _empty(column)
                for column in agents.c
                if not column.nullable and column.default is None and column.server_default is None
            }
            connection.execute(insert(agents), needed | {"id": agent_id, "organization_id": owner, "name": "a"})
        yield connection


def _empty(column: object) -> object:
    kind = str(getattr(column, "type", ""))
    return {} if kind == "JSON" else False if kind == "BOOLEAN" else 0 if "INT" in kind else ""


def run_of(number: int, **fields: object) -> Run:
    given = {"agent_id": A, "status": RunStatus.created, "created_at": 100 + number, **fields}
    return Run(RunId(f"run-00000000-0000-4000-8000-{number:012}"), **given)  # type: ignore[arg-type]


def opened(tx: Tx, number: int, owner: OrganizationId = OURS, **fields: object) -> Run:
    run = run_of(number, **fields)
    runs.open_run(tx, run, owner, INPUT, NODE)
    return run


def ended(run: Run, at: int = 500, reason: StopReason = StopReason.end_turn) -> Run:
    return replace(run, status=RunStatus.completed, stop_reason=reason, completed_at=at, step_count=2)


# --- the fence -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "node", "holds"),
    [
        (1, NODE, True),
        (0, NODE, False),
        (2, NODE, False),
        (1, Node("here", 2), False),
        (1, Node("here", 4), False),
        (1, Node("there", 3), False),
    ],
)
def test_only_the_very_claim_moves_the_fence(tx: Tx, epoch: int, node: Node, holds: bool) -> None:
    assert ownership_fence.claim(tx, A, NODE) == Claim(A, 1, NODE)
    if holds:
        ownership_fence.advance(tx, Claim(A, epoch, node))
    else:
        with pytest.raises(Fenced):
            ownership_fence.advance(tx, Claim(A, epoch, node))
    assert tx.execute(select(agent_head.c.version).where(agent_head.c.agent_id == A)).scalar_one() == int(holds)
    assert tx.execute(select(agent_head.c.version).where(agent_head.c.agent_id == B)).scalar_one() == 0


def test_a_claim_that_has_ended_here_moves_nothing(tx: Tx) -> None:
    claim = ownership_fence.claim(tx, A, NODE)
    claim.ended = True
    with pytest.raises(Fenced, match="unloaded"):
        ownership_fence.advance(tx, claim)


@pytest.mark.parametrize(
    ("incarnation", "free"), [(7, False), (6, True), (8, True)], ids=["alive", "before", "after a restart"]
)
def test_an_agent_of_another_live_node_cannot_be_claimed(tx: Tx, incarnation: int, free: bool) -> None:
    tx.execute(
        update(agent_head).where(agent_head.c.agent_id == A).values(owner="there", owner_incarnation=incarnation)
    )
    if free:
        assert ownership_fence.claim(tx, A, NODE).epoch == 1
    else:
        with pytest.raises(Fenced, match="another server"):
            ownership_fence.claim(tx, A, NODE)
        assert tx.execute(select(agent_head.c.epoch).where(agent_head.c.agent_id == A)).scalar_one() == 0


def test_claims_end_for_one_agent(tx: Tx) -> None:
    one, other = (ownership_fence.claim(tx, agent_id, NODE) for agent_id in (A, B))
    ownership_fence.end_claims(tx, A)
    with pytest.raises(Fenced):
        ownership_fence.advance(tx, one)
    ownership_fence.advance(tx, other)
    assert ownership_fence.claim(tx, A, NODE).epoch == one.epoch + 2
    gone = AgentId("agent-00000000-0000-4000-8000-00000000000f")
    for missing in (lambda: ownership_fence.end_claims(tx, gone), lambda: ownership_fence.claim(tx, gone, NODE)):
        with pytest.raises(NotFound):
            missing()


@pytest.mark.parametrize(("whose", "decided", "free"), [(A, True, False), (A, False, True), (B, True, True)])
def test_an_agent_whose_memory_is_replaced_cannot_be_claimed(tx: Tx, whose: AgentId, decided: bool, free: bool) -> None:
    row = {"agent_id": whose, "organization_id": OURS, "decided": decided, "request": {}, "created_at": 1}
    tx.execute(insert(memory_changes), row)
    if free:
        assert ownership_fence.claim(tx, A, NODE).epoch == 1
    else:
        with pytest.raises(StorageBusy):
            ownership_fence.claim(tx, A, NODE)


def test_a_node_that_comes_back_has_another_incarnation(tx: Tx) -> None:
    assert ownership_fence.join(tx, "here", "", 0) == Node("here", 4)
    assert ownership_fence.join(tx, "new", "", 0) == Node("new", 1)
    assert ownership_fence.join(tx, "there", "", 0) == Node("there", 8)


# --- runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", list(RunStatus))
def test_only_a_run_that_has_not_ended_is_changed(tx: Tx, status: RunStatus) -> None:
    run, other = opened(tx, 1), opened(tx, 2)
    tx.execute(update(runs_table).where(runs_table.c.id == run.id).values(status=status.value))
    lives = status in UNFINISHED
    assert (unfinished.find_unfinished(tx, run.id) is not None) == lives
    assert [left.run.id for left in unfinished.unfinished_of(tx, A)] == [run.id, other.id][0 if lives else 1 :]
    given = replace(INPUT, max_steps=9)
    runs.replace_input(tx, run.id, given)
    assert (unfinished.given(tx, run.id) == given) == lives
    for change in (runs.progress, runs.finish):
        if lives:
            with tx.begin_nested() as point:
                change(tx, ended(run))
                point.rollback()
        else:
            with pytest.raises(RunOver):
                change(tx, ended(run))
    assert runs.claim(tx, run.id, NODE) == lives
    assert runs.get(tx, other.id) == other


def test_a_run_ends_once_and_its_callback_is_due_from_then_on(tx: Tx) -> None:
    run = opened(tx, 1, callback_url="http://bell.example/", status=RunStatus.created)
    silent = opened(tx, 2)
    assert callbacks.due(tx, 10**9, 8, 8) == []
    runs.finish(tx, ended(run, at=500))
    runs.finish(tx, ended(silent, at=500))
    with pytest.raises(RunOver):
        runs.finish(tx, replace(ended(run, at=600), status=RunStatus.failed, stop_reason=StopReason.error))
    assert (runs.get(tx, run.id).status, runs.get(tx, run.id).completed_at) == (RunStatus.completed, 500)
    assert callbacks.due(tx, 499, 8, 8) == []
    (due,) = callbacks.due(tx, 500, 8, 8)
    assert (due.of, due.attempts) == (run.id, 0)
    callbacks.record_attempt(tx, run.id, 501, 500, "no", 700)
    assert callbacks.due(tx, 699, 8, 8) == []
    assert [one.attempts for one in callbacks.due(tx, 700, 8, 8)] == [1]
    callbacks.record_attempt(tx, run.id, 701, 204, None, None)
    assert callbacks.due(tx, 10**9, 8, 8) == []


def test_callbacks_of_an_organization_and_of_an_agent_take_turns(tx: Tx) -> None:
    made = [opened(tx, number, callback_url="http://x.example/") for number in range(1, 4)]
    others = [opened(tx, number, OTHERS, agent_id=B, callback_url="http://x.example/") for number in (4, 5)]
    for at, run in enumerate((*made, *others)):
        runs.finish(tx, ended(run, at=500 + at))
    assert [due.of for due in callbacks.due(tx, 999, 2, 8)] == [made[0].id, others[0].id, made[1].id, others[1].id]
    assert [due.of for due in callbacks.due(tx, 999, 3, 3)] == [made[0].id, others[0].id, made[1].id]


def test_a_run_is_found_by_its_client_id_in_its_conversation_only(tx: Tx) -> None:
    lane = ConversationId("conv-00000000-0000-4000-8000-000000000001")
    one, two = opened(tx, 1), opened(tx, 2)
    other = opened(tx, 3, conversation_id=lane)
    foreign = opened(tx, 4, OTHERS, agent_id=B)
    for run in (one, two, other, foreign):
        client_ids.add(tx, run.agent_id, run.id, ["same", "same"])
    client_ids.add(tx, A, one.id, ["another"])
    assert client_ids.newest(tx, A, "", "same", 5) == [two.id, one.id]
    assert client_ids.newest(tx, A, "", "same", 1) == [two.id]
    assert client_ids.newest(tx, A, lane, "same", 5) == [other.id]
    assert client_ids.newest(tx, B, "", "same", 5) == [foreign.id]
    assert client_ids.newest(tx, A, "", "unknown", 5) == []


def test_newer_runs_are_those_of_the_same_conversation_alone(tx: Tx) -> None:
    lane = ConversationId("conv-00000000-0000-4000-8000-000000000001")
    first = opened(tx, 1)
    opened(tx, 2, conversation_id=lane)
    opened(tx, 3, OTHERS, agent_id=B)
    opened(tx, 0)
    assert not runs.has_newer(tx, first)
    same_moment = opened(tx, 4, created_at=first.created_at)
    assert runs.has_newer(tx, first) and not runs.has_newer(tx, same_moment)
    assert runs.count_created(tx, A) == 4 and runs.count_created(tx, B) == 1
    assert runs.claim(tx, first.id, NODE) and runs.count_created(tx, A) == 3


def test_background_runs_that_have_not_ended_are_found_in_order(tx: Tx) -> None:
    lane = ConversationId("conv-00000000-0000-4000-8000-000000000001")
    opened(tx, 1)
    waiting = [opened(tx, number, background=True) for number in (2, 3)]
    apart = opened(tx, 4, background=True, conversation_id=lane)
    over = opened(tx, 5, background=True)
    runs.finish(tx, ended(over))
    assert [run.run_id for run in unfinished.in_background(tx)] == [waiting[0].id, waiting[1].id, apart.id]
    assert unfinished.newest_in_background(tx, A, "") == waiting[1].id
    assert unfinished.newest_in_background(tx, A, lane) == apart.id
    assert unfinished.newest_in_background(tx, B, "") is None


# --- streams ---------------------------------------------------------------------------------------------------------


def stream(tx: Tx, run_id: RunId) -> list[tuple[int, list[object]]]:
    return [(batch.number, [event["n"] for event in batch.events]) for batch in events.after(tx, run_id, 0, 100)]


@pytest.mark.parametrize(
    ("first", "count", "added"),
    [(0, 2, []), (0, 3, []), (0, 4, [3]), (1, 4, [3, 4]), (3, 2, [3, 4]), (2, 1, [])],
)
def test_events_that_come_again_are_stored_once(tx: Tx, first: int, count: int, added: list[int]) -> None:
    run = opened(tx, 1, background=True)
    events.append(tx, run.id, "a", 0, [{"n": number} for number in range(3)], 100)
    events.append(tx, run.id, "a", first, [{"n": number} for number in range(first, first + count)], 101)
    assert stream(tx, run.id) == [(1, [0, 1, 2]), *([(2, added)] if added else [])]


def test_a_segment_that_is_closed_takes_nothing_more_and_another_begins_anew(tx: Tx) -> None:
    run, other = opened(tx, 1, background=True), opened(tx, 2, background=True)
    events.append(tx, run.id, "a", 0, [{"n": 0}], 100, closing=[{"n": "end"}])
    events.append(tx, run.id, "a", 0, [{"n": 0}, {"n": 1}], 101)
    events.append(tx, other.id, "a", 0, [{"n": 7}], 101)
    events.append(tx, run.id, "b", 0, [{"n": 5}], 102)
    assert stream(tx, run.id) == [(1, [0, "end"]), (2, [5])]
    assert [batch.number for batch in events.after(tx, run.id, 1, 9)] == [2]
    assert [batch.number for batch in events.after(tx, run.id, 0, 1)] == [1]
    assert events.newest(tx, run.id) == ({"n": 5},)


@pytest.mark.parametrize(
    ("written", "completed", "goes"),
    [(199, 199, True), (200, 199, False), (199, 200, False), (199, None, False)],
)
def test_a_stream_goes_when_its_run_and_itself_are_old(tx: Tx, written: int, completed: int | None, goes: bool) -> None:
    run = opened(tx, 1, background=True)
    events.append(tx, run.id, "a", 0, [{"n": 0}], written)
    if completed is not None:
        runs.finish(tx, ended(run, at=completed))
    assert events.needs_cleanup(tx, 200) == goes
    events.clean_up(tx, 200)
    assert bool(stream(tx, run.id)) != goes


# --- approvals -------------------------------------------------------------------------------------------------------


def pending(number: int = 1, agent_id: AgentId = A, lane: str = "", at: int = 100) -> PendingCalls:
    return PendingCalls(agent_id, lane, MessageId(f"message-00000000-0000-4000-8000-{number:012}"), (), at)


def test_what_waits_is_taken_once_and_only_as_it_is(tx: Tx) -> None:
    waits, apart = pending(), pending(2, lane="conv-1")
    assert approvals.move(tx, None, waits) and approvals.move(tx, None, apart) and approvals.move(tx, None, None)
    later = replace(waits, answers=(ApprovalDecision("call_0", True),))
    assert not approvals.move(tx, pending(3), None) and not approvals.move(tx, pending(3), replace(later, request="x"))
    assert approvals.move(tx, waits, later) and approvals.get(tx, A, "") == later
    assert approvals.move(tx, later, None) and not approvals.move(tx, later, None)
    assert approvals.get(tx, A, "") is None and approvals.get(tx, A, "conv-1") == apart
    assert approvals.of_agent(tx, A) == [apart] and approvals.of_agent(tx, B) == []


@pytest.mark.parametrize(("before", "count"), [(99, 0), (100, 1), (101, 2)])
def test_what_has_waited_so_long_is_due(tx: Tx, before: int, count: int) -> None:
    approvals.move(tx, None, pending(1, at=100))
    approvals.move(tx, None, pending(2, lane="conv-1", at=101))
    found = approvals.due(tx, before, 5)
    assert [each.requested_at for each in found] == [100, 101][:count]
    assert approvals.due(tx, before, 1) == found[:1]
    tx.execute(update(agents).where(agents.c.id == A).values(stopped=True))
    assert approvals.due(tx, before, 5) == []
    assert tx.execute(select(approvals_table.c.message_id)).all()


# --- working memory --------------------------------------------------------------------------------------------------


def test_an_entry_is_there_until_its_end_and_not_from_its_end_on(tx: Tx) -> None:
    for agent_id in (A, B):
        entry = WorkingMemoryEntry("k", 1, 1, 10, 10, 100)
        forever = WorkingMemoryEntry("f", 1, 2, 10, 10)
        working_memory.insert_many(tx, agent_id, [(entry, "1"), (forever, "1")])
    assert not working_memory.has_lapsed(tx, A, 99)
    working_memory.drop_lapsed(tx, A, 99)
    assert [entry.key for entry in working_memory.every(tx, A)] == ["f", "k"]
    assert working_memory.has_lapsed(tx, A, 100)
    working_memory.drop_lapsed(tx, A, 100)
    assert [entry.key for entry in working_memory.every(tx, A)] == ["f"]
    assert [entry.key for entry in working_memory.every(tx, B)] == ["f", "k"]


def test_versions_rise_for_each_agent_by_itself_and_never_fall(tx: Tx) -> None:
    assert [working_memory.next_version(tx, A) for _ in range(3)] == [1, 2, 3]
    assert working_memory.next_version(tx, B) == 1
    assert working_memory.used(tx, A, "k") == (0, 0, 0)
    working_memory.insert_many(tx, A, [(WorkingMemoryEntry("k", 1, 4, 10, 10), "1")])
    assert working_memory.used(tx, A, "k") == (1, 2, 2) and working_memory.used(tx, A, "other") == (1, 2, 0)
    assert working_memory.used(tx, B, "k") == (0, 0, 0)
    assert not working_memory.remove(tx, B, "k") and working_memory.remove(tx, A, "k")


def test_usage_of_a_run_is_kept_with_its_end(tx: Tx) -> None:
    run = opened(tx, 1)
    used = Usage(3, 4, 7)
    runs.progress(tx, replace(run, usage=used, step_count=1, ttft_ns=5))
    assert (runs.get(tx, run.id).usage, runs.get(tx, run.id).step_count) == (used, 1)
    assert runs.get(tx, run.id).status is RunStatus.created
