"""What is cleared away behind the turns: trouble with one kind of leavings keeps nothing from the others."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from kelpie.accounts.quotas.disk_usage import DiskUsage
from kelpie.accounts.quotas.quotas import Quotas
from kelpie.agent.maintenance.cleanup import Cleanup
from kelpie.core.ids import DEFAULT_ORGANIZATION
from kelpie.core.permissions.call_records import CallOutcome, CallQuery, CallRecord
from kelpie.storage.rows.piece_size import PieceSize
from kelpie.storage.runs import tool_calls
from tests.tools.workshop import open_world


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
