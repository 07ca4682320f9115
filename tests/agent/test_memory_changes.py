"""Changes of memory in several transactions: who is told when one is cut off, and when the gate opens again."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kelpie.agent.maintenance.memory_changes import MemoryChanges
from kelpie.core.errors import CommitUnknown, Conflict, NotFound, StorageError
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId
from kelpie.storage.rows.piece_size import PieceSize

ANN, BEN = (AgentId(f"agent-00000000-0000-4000-8000-00000000000{n}") for n in (1, 2))
UNKNOWN, FAILED = CommitUnknown("The answer was lost."), StorageError("The disk failed.")


class Changes:
    """The changes of a server, where the transaction that begins a change, the one that decides it, and its writing
    end as a test says; `done` is what the gate and those who complete a change are told."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.decided: Exception | None = None
        self.written: Exception | None = None
        self.held: asyncio.Event | None = None
        told: Any = self
        world: Any = SimpleNamespace(database=told)
        self.changes = MemoryChanges(world, told, told, told, PieceSize())
        self.changes.when_unfinished(lambda: self.done.append("told"))

    def hold(self, organization: str, agent_id: str) -> None:
        self.done.append("closed")

    def release(self, organization: str, agent_id: str) -> None:
        self.done.append("open")

    async def transact(self, fn: Callable[..., Any]) -> Any:
        name = getattr(fn, "func", fn).__name__
        if name == "_decide" and self.decided is not None:
            raise self.decided
        return True  # it is begun, and nothing is left to be dropped

    async def write(self, _: object) -> str:
        if self.held is not None:
            await self.held.wait()
        if self.written is not None:
            raise self.written
        return "restored"

    async def change(self, agent_id: AgentId = ANN) -> Any:
        return await self.changes._change(agent_id, DEFAULT_ORGANIZATION, {"kind": "reset"}, b"", 0, lambda _: None)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Changes:
    made = Changes()
    monkeypatch.setattr(MemoryChanges, "_apply", lambda _, change: made.write(change))
    return made


async def test_the_gate_is_closed_while_it_is_written(made: Changes) -> None:
    assert await made.change() == "restored"
    assert made.done == ["closed", "open"]


@pytest.mark.parametrize("error", [FAILED, NotFound("Agent", ANN)])
async def test_what_is_not_decided_opens_the_gate_again(made: Changes, error: Exception) -> None:
    made.decided = error
    with pytest.raises(type(error)):
        await made.change()
    assert made.done == ["closed", "open"]


async def test_who_completes_changes_is_told_when_the_decision_is_not_known(made: Changes) -> None:
    made.decided = UNKNOWN
    with pytest.raises(CommitUnknown):
        await made.change()
    assert made.done == ["closed", "told"], "it may be decided, so nobody looks before that is known"


async def test_who_completes_changes_is_told_when_the_writing_is_cut_off(made: Changes) -> None:
    made.written = FAILED
    with pytest.raises(CommitUnknown):
        await made.change()
    assert made.done == ["closed", "told"]


async def test_a_change_that_can_never_be_completed_opens_the_gate(made: Changes) -> None:
    made.written = Conflict("An id was taken.")
    with pytest.raises(Conflict):
        await made.change()
    assert made.done == ["closed", "open"]


async def test_an_agent_has_one_change_at_a_time_which_goes_on_without_its_client(made: Changes) -> None:
    async with asyncio.timeout(20):
        made.held = asyncio.Event()
        first = asyncio.ensure_future(made.change())
        await asyncio.sleep(0)
        with pytest.raises(Conflict):
            await made.change()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        with pytest.raises(Conflict):
            await made.change()
        other = asyncio.ensure_future(made.change(BEN))
        made.held.set()
        assert await other == "restored"
        await asyncio.sleep(0)
        assert sorted(made.done) == ["closed", "closed", "open", "open"]
        assert await made.change() == "restored"
