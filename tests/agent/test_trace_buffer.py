"""Prompts of steps that are not stored yet: shown at once, stored later or at the end, and bounded."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from sqlalchemy import func, select

from kelpie.agent.journal import trace_buffer
from kelpie.agent.journal.trace_buffer import TraceBuffer
from kelpie.app import Kelpie
from kelpie.core.conversations.runs import Trace
from kelpie.core.errors import StorageError
from kelpie.core.ids import StepId
from kelpie.llm.provider.interface import ExchangeRecord
from kelpie.storage.runs import traces
from kelpie.storage.runs.traces import Tracing
from kelpie.storage.tables import step_traces
from kelpie.world.clock import SystemClock
from kelpie.world.database import Tx
from kelpie.world.world import World
from tests.server.rig import client_of, make_agent, open_rig, said

PROMPT = b'{"model": "m", "messages": [{"role": "user", "content": "%s"}]}'


async def stored(kelpie: Kelpie) -> int:
    def count(tx: Tx) -> int:
        return tx.execute(select(func.count()).select_from(step_traces)).scalar_one()

    return await kelpie.world.database.read(count)


async def spoken(client: httpx.AsyncClient, puppet: Any, agent_id: str, said_by_user: bytes) -> str:
    """The step of one turn."""
    puppet.script.append(replace(said("fine"), exchanged=ExchangeRecord(PROMPT % said_by_user, b"{}")))
    await client.post(f"/v1/agents/{agent_id}/messages", json={"input": "hi"})
    return (await client.get("/v1/steps/", params={"agent_id": agent_id, "limit": 1})).json()[0]["id"]


async def prompt(client: httpx.AsyncClient, step: str) -> list[str]:
    return [part["text"] for part in (await client.get(f"/v1/kelpie/steps/{step}/prompt")).json()["parts"]]


async def test_a_prompt_is_shown_before_it_is_stored_and_after_a_restart(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as (kelpie, puppet), client_of(kelpie) as client:
        agent = await make_agent(client)
        steps = [await spoken(client, puppet, agent["id"], word) for word in (b"one", b"two")]
        assert await stored(kelpie) == 0
        before = [await prompt(client, step) for step in steps]
        assert before == [["one"], ["two"]]
    async with open_rig(tmp_path) as (kelpie, _), client_of(kelpie) as client:
        assert await stored(kelpie) == 2
        assert [await prompt(client, step) for step in steps] == before


async def test_the_prompts_of_a_deleted_agent_are_gone_before_and_after_they_would_be_stored(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as (kelpie, puppet), client_of(kelpie) as client:
        agent, other = await make_agent(client), await make_agent(client)
        gone, left = [await spoken(client, puppet, each["id"], b"x") for each in (agent, other)]
        assert (await client.delete(f"/v1/agents/{agent['id']}")).status_code == 200
        assert (await client.get(f"/v1/kelpie/steps/{gone}/prompt")).status_code == 404
        buffer = kelpie.runtime.turn_dependencies.traces
        assert buffer is not None
        await buffer.write()
        assert (await client.get(f"/v1/kelpie/steps/{gone}/prompt")).status_code == 404
        assert await prompt(client, left) == ["x"]


async def test_a_prompt_for_which_there_is_no_room_is_written_with_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_buffer, "BYTES_MAX", 0)
    async with open_rig(tmp_path) as (kelpie, puppet), client_of(kelpie) as client:
        agent = await make_agent(client)
        step = await spoken(client, puppet, agent["id"], b"large")
        assert await stored(kelpie) == 1 and await prompt(client, step) == ["large"]


# --- the buffer alone -----------------------------------------------------------------------------------------------


class Database:
    """Runs no SQL: `add` is replaced by what notes the traces."""

    def __init__(self) -> None:
        self.broken = False
        self.written: list[list[Trace]] = []

    async def transact(self, fn: Callable[[Any], None]) -> None:
        if self.broken:
            raise StorageError("The disk is full.")
        fn(self.written)


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    def note(tx: list[list[Trace]], new: list[Trace], kept: int) -> None:
        del kept
        tx.append(new)

    monkeypatch.setattr(traces, "add", note)
    monkeypatch.setattr(trace_buffer, "OVERHEAD_BYTES", 0)
    return Database()


def buffer_of(database: Database, kept: int) -> TraceBuffer:
    return TraceBuffer(cast("World", SimpleNamespace(clock=SystemClock(), database=database)), Tracing(kept, 1000))


def trace(number: int, size: int = 10) -> Trace:
    return Trace(StepId(f"step-{number}"), number, b"a" * size, size, None, 0)


async def test_only_the_newest_wait_and_are_written(database: Database) -> None:
    buffer = buffer_of(database, 3)
    for number in range(10):
        buffer.put(trace(number))
    assert [buffer.find(StepId(f"step-{number}")) for number in range(10)] == [None] * 7 + [trace(n) for n in (7, 8, 9)]
    await buffer.write()
    assert database.written == [[trace(7), trace(8), trace(9)]]
    assert buffer.find(StepId("step-9")) is None, "the database has it now"


async def test_a_transaction_writes_a_bounded_number_of_bytes(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_buffer, "PIECE_BYTES", 25)
    buffer = buffer_of(database, 10)
    for number, size in enumerate((10, 10, 10, 99, 10)):
        buffer.put(trace(number, size))
    await buffer.write()
    assert [[each.created_at for each in piece] for piece in database.written] == [[0, 1], [2], [3], [4]]


async def test_what_a_broken_disk_refused_waits_within_its_bounds(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_buffer, "BYTES_MAX", 100)
    buffer, database.broken = buffer_of(database, 1000), True
    for number in range(10):
        assert buffer.has_room(trace(number))
        buffer.put(trace(number))
    assert not buffer.has_room(trace(10))
    with pytest.raises(StorageError):
        await buffer.write()
    await buffer.close()
    assert buffer.find(StepId("step-0")) == trace(0) and database.written == []
    database.broken = False
    await buffer.close()
    assert database.written == [[trace(number) for number in range(10)]]
    assert buffer.has_room(trace(10))


async def test_the_worker_writes_what_is_due_and_at_once_what_is_much(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = buffer_of(database, 1000)
    round_of = buffer._round  # pyright: ignore[reportPrivateUsage]
    assert await round_of() == trace_buffer.IDLE_S
    buffer.put(trace(0))
    assert 0 < await round_of() <= trace_buffer.WRITE_AFTER_S and database.written == []
    monkeypatch.setattr(trace_buffer, "WRITE_EARLY_BYTES", 5)
    assert await round_of() == trace_buffer.IDLE_S and database.written == [[trace(0)]]
    monkeypatch.undo()
    monkeypatch.setattr(trace_buffer, "WRITE_AFTER_S", 0.0)
    monkeypatch.setattr(traces, "add", lambda tx, new, _: tx.append(new))
    buffer.put(trace(1))
    assert await round_of() == trace_buffer.IDLE_S and database.written == [[trace(0)], [trace(1)]]
