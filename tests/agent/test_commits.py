"""A commit of a turn: tried again when the database is busy, looked up when its outcome is unknown, written once."""

from typing import Any, cast

import pytest

from kelpie.agent.journal import commits
from kelpie.agent.journal.commits import ATTEMPTS_MAX, JournalPosition
from kelpie.core.conversations.runs import Run, RunStatus
from kelpie.core.errors import CommitUnknown, StorageBusy, StorageError
from kelpie.core.ids import AgentId, RunId
from kelpie.storage.agents.ownership_fence import Claim, Node

AGENT, RUN = AgentId("agent-1"), RunId("run-1")
BUSY, UNKNOWN, DOWN = StorageBusy("busy"), CommitUnknown("lost"), StorageError("away")


class ScriptedDatabase:
    """Each transaction or read either works or raises what the script says; `stored` are the keys that are in."""

    def __init__(self, *writes: Exception | None, reads: tuple[Exception | None, ...] = (), lost_in: bool = False):
        self.writes, self.reads, self.lost_in = list(writes), list(reads), lost_in
        self.stored: list[int] = []
        self.bodies = 0

    async def transact(self, fn: Any) -> Any:
        error = self.writes.pop(0) if self.writes else None
        if error is not None and not (isinstance(error, CommitUnknown) and self.lost_in):
            raise error
        result = fn(self)
        if error is not None:
            raise error
        return result

    async def read(self, fn: Any) -> Any:
        if self.reads and (error := self.reads.pop(0)) is not None:
            raise error
        return fn(self)


@pytest.fixture(autouse=True)
def journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys are kept in the scripted database, and the fence never stops anything."""

    def add(tx: Any, _claim: Any, _run: Any, step: int, _kind: str, _at: int) -> None:
        tx.stored.append(step)

    def has(tx: Any, _agent: Any, _run: Any, step: int) -> bool:
        return step in tx.stored

    def advance(_tx: Any, _claim: Any) -> None:
        return

    monkeypatch.setattr(commits.journal_keys, "add", add)
    monkeypatch.setattr(commits.journal_keys, "has", has)
    monkeypatch.setattr(commits.ownership_fence, "advance", advance)


async def commit(database: ScriptedDatabase, number: int = 4) -> str:
    def body(tx: Any) -> str:
        tx.bodies += 1
        return "written"

    run = Run(RUN, AGENT, RunStatus.running, 1)
    position = JournalPosition(Claim(AGENT, 1, Node("node", 1)), run, number)
    return await commits.commit(cast("Any", database), position, "step", 1, body, lambda _: "recalled")


async def test_a_busy_database_is_tried_a_few_times() -> None:
    database = ScriptedDatabase(*[BUSY] * (ATTEMPTS_MAX - 1))
    assert await commit(database) == "written" and database.bodies == 1
    with pytest.raises(StorageBusy):
        await commit(ScriptedDatabase(*[BUSY] * ATTEMPTS_MAX))


async def test_a_commit_that_came_through_unheard_is_recalled_and_not_written_again() -> None:
    database = ScriptedDatabase(UNKNOWN, lost_in=True)
    assert await commit(database) == "recalled"
    assert database.stored == [4] and database.bodies == 1


async def test_a_commit_that_did_not_come_through_is_written_again() -> None:
    database = ScriptedDatabase(UNKNOWN)
    assert await commit(database) == "written"
    assert database.stored == [4] and database.bodies == 1
    with pytest.raises(CommitUnknown):
        await commit(ScriptedDatabase(*[UNKNOWN] * ATTEMPTS_MAX))


async def test_the_key_of_another_commit_proves_nothing() -> None:
    database = ScriptedDatabase(UNKNOWN)
    database.stored.append(3)
    assert await commit(database) == "written" and database.stored == [3, 4]


async def test_what_cannot_be_looked_up_stays_unknown() -> None:
    for lost_in in (False, True):
        database = ScriptedDatabase(UNKNOWN, reads=(DOWN,), lost_in=lost_in)
        with pytest.raises(CommitUnknown):
            await commit(database)
        assert database.bodies == lost_in, "it is not tried again"


async def test_a_failure_is_raised_at_once() -> None:
    database = ScriptedDatabase(DOWN)
    with pytest.raises(StorageError):
        await commit(database)
    assert database.bodies == 0 and database.stored == []
