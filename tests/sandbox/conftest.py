"""A sandbox of this machine for every test that wants one; where the machine cannot isolate, the reason is told."""

from collections.abc import AsyncIterator

import pytest

from kelpie.core.errors import SandboxUnavailable
from kelpie.core.tools.confinement import Runner
from kelpie.sandbox.process import ProcessSandbox
from kelpie.world.cells.bubblewrap import BubblewrapCells
from kelpie.world.cells.port import CellPlan
from kelpie.world.clock import SystemClock
from tests.parts import lacks


@pytest.fixture
async def cells(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BubblewrapCells]:
    kept = tmp_path_factory.getbasetemp() / "isolation.json"  # the walls are proven once, not for every test
    found = BubblewrapCells(kept=kept)
    try:
        cell = await found.start(CellPlan(Runner.command))
    except SandboxUnavailable as error:
        lacks("sandbox", str(error))
    await cell.kill()
    yield found
    await found.close()


@pytest.fixture
async def sandbox(cells: BubblewrapCells) -> AsyncIterator[ProcessSandbox]:
    found = ProcessSandbox(cells, SystemClock())
    yield found
    await found.close()
