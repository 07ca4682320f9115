"""What is cleared away behind the turns: each kind of leavings after its time and not before, and trouble with one
keeps nothing from the others."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy import insert, select

from kelpie.accounts.quotas.disk_usage import DiskUsage
from kelpie.accounts.quotas.quotas import Quotas
from kelpie.agent.maintenance.cleanup import Cleanup
from kelpie.core.conversations.client_histories import ClientTurn
from kelpie.core.conversations.jobs import Job, JobStatus, JobType
from kelpie.core.ids import DEFAULT_ORGANIZATION, JobId
from kelpie.core.permissions.call_records import CallOutcome, CallQuery, CallRecord
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.storage.conversations import client_turns
from kelpie.storage.rows.piece_size import PieceSize
from kelpie.storage.runs import batches, jobs, tool_calls
from kelpie.storage.tables import client_turns as client_turns_table
from kelpie.storage.tables import jobs as jobs_table
from kelpie.storage.tables import journal, run_events, runs
from kelpie.world.database import Tx
from tests.tools.workshop import ANN, BEN, NOBODY, NOW, open_world

MINUTE = 60 * MICROS_PER_SECOND
DAY = 24 * 60 * MINUTE


class Unreadable:
    async def names(self) -> list[str]:
        raise PermissionError(13, "Permission denied")


async def test_a_directory_that_cannot_be_read_keeps_nothing_else_from_being_swept(tmp_path: Path) -> None:
    async with open_world(tmp_path) as made:
        unreadable: Any = Unreadable()
        world = replace(made, workspaces=unreadable)
        old = CallRecord(DEFAULT_ORGANIZATION, "old", None, CallOutcome.success, 1)
        await world.database.transact(lambda tx: tool_calls.add(tx, [old]))
        await Cleanup(world, 1.0, PieceSize(), DiskUsage(Quotas(world.clock))).clean_up()
        left = await world.database.read(lambda tx: tool_calls.select_calls(tx, DEFAULT_ORGANIZATION, CallQuery()))
        assert left == []


def turn(tx: Tx, name: str, at: int) -> None:
    """A key of the journal whose run is gone, and a turn of a client that sends its history again."""
    tx.execute(
        insert(journal), {"agent_id": ANN, "turn_id": name, "kind": "step", "epoch": 1, "step": 0, "created_at": at}
    )
    client_turns.add(tx, DEFAULT_ORGANIZATION, ClientTurn(name, ANN, "", "f", 1, at, None, None), None)


def batch(tx: Tx, name: str, ended_at: int | None, *, kind: JobType = JobType.batch, owed: bool = False) -> None:
    status = JobStatus.running if ended_at is None else JobStatus.completed
    job = Job(JobId(name), 1, 1, status, kind, completed_at=ended_at)
    jobs.add(tx, job, DEFAULT_ORGANIZATION)
    if owed:
        batches.change(tx, job, 1)


def stream(tx: Tx, name: str, at: int, ended_at: int | None) -> None:
    empty = {"input": {}, "metadata": {}, "request_config": {}, "usage": {}, "background": True, "step_count": 1}
    owner = {"owner": "n", "owner_incarnation": 1, "taken_up": 0, "callback_attempts": 0, "created_at": at}
    where = {"agent_id": ANN, "organization_id": DEFAULT_ORGANIZATION, "status": "completed", "completed_at": ended_at}
    tx.execute(insert(runs), {"id": name, **empty, **owner, **where})
    tx.execute(
        insert(run_events), {"run_id": name, "number": 1, "segment": "s", "upto": 1, "events": [], "created_at": at}
    )


async def test_each_kind_of_leavings_goes_after_its_time_and_not_before(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        month, day, kept = NOW - 30 * DAY, NOW - DAY, NOW - 60 * MINUTE

        def write(tx: Tx) -> None:
            for name, at in (("of a month", month - MINUTE), ("of less", month + 5 * MINUTE)):
                turn(tx, name, at)
                batch(tx, name, at)
                tool_calls.add(tx, [CallRecord(DEFAULT_ORGANIZATION, name, None, CallOutcome.success, at)])
            for name, at in (("of a day", day - MINUTE), ("of today", day + 5 * MINUTE)):
                turn(tx, name, at)
            batch(tx, "goes on", None)
            batch(tx, "owes a callback", 1, owed=True)
            batch(tx, "an upload", 1, kind=JobType.job)
            stream(tx, "over", kept - MINUTE, kept - MINUTE)
            stream(tx, "over lately", kept - MINUTE, kept + 5 * MINUTE)
            stream(tx, "goes on", kept - MINUTE, None)

        await world.database.transact(write)
        await Cleanup(world, 3600.0, PieceSize(), DiskUsage(Quotas(world.clock))).clean_up()

        def read(tx: Tx) -> list[list[str]]:
            columns = (journal.c.turn_id, client_turns_table.c.id, jobs_table.c.id, run_events.c.run_id)
            calls = tool_calls.select_calls(tx, DEFAULT_ORGANIZATION, CallQuery())
            return [sorted(tx.execute(select(column)).scalars()) for column in columns] + [
                [each.name for each in calls]
            ]

        assert await world.database.read(read) == [
            ["of today"],
            ["of a day", "of less", "of today"],
            ["an upload", "goes on", "of less", "owes a callback"],
            ["goes on", "over lately"],
            ["of less"],
        ]


class Held:
    """Workspaces of two agents, one of which is gone."""

    def __init__(self) -> None:
        self.there = [ANN, NOBODY]

    async def names(self) -> list[str]:
        return list(self.there)

    async def remove(self, agent_id: Any) -> None:
        self.there.remove(agent_id)

    async def size(self, _: Any) -> SimpleNamespace:
        return SimpleNamespace(bytes=7)


async def test_files_go_with_their_agent_and_those_that_stay_are_measured(tmp_path: Path) -> None:
    async with open_world(tmp_path) as made:
        held: Any = Held()
        world, disk = replace(made, workspaces=held), DiskUsage(Quotas(made.clock))
        await Cleanup(world, 1.0, PieceSize(), disk).clean_up()
        assert held.there == [ANN] and disk.used(DEFAULT_ORGANIZATION) == 7
        held.there.append(BEN)
        await Cleanup(world, 1.0, PieceSize(), disk).clean_up()
        assert held.there == [ANN, BEN] and disk.used(DEFAULT_ORGANIZATION) == 14
