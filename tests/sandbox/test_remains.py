"""Cells that were never finished: nothing of them is left, whoever gave up on them."""

import asyncio
import ctypes
import os
import select
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kelpie.core.tools.confinement import Runner
from kelpie.world.cells import bubblewrap, handshake, orphans
from kelpie.world.cells.bubblewrap import START_S, BubblewrapCells
from kelpie.world.cells.bubblewrap_cell import CellHandles
from kelpie.world.cells.launch import start_isolated
from kelpie.world.cells.port import CellPlan
from kelpie.world.cells.users import FIRST
from kelpie.world.isolation import seccomp
from kelpie.world.isolation.control_group_search import NoGroups

_SUBREAPER = 36  # prctl
PLAN = CellPlan(Runner.command)


def _begun() -> CellHandles:
    """A cell that waits at its admission."""
    bwrap, filtered = shutil.which("bwrap"), seccomp.program()
    assert bwrap is not None and filtered is not None
    return start_isolated(PLAN, bwrap, filtered, [], FIRST, None)


async def _first(hold: CellHandles) -> int:
    """A descriptor of its first process."""
    assert hold.information is not None
    process = await handshake.Report(asyncio.get_running_loop(), hold.information).first()
    assert process is not None
    return os.pidfd_open(process)


def _ended(process: int, wait_s: float = 0) -> bool:
    return bool(select.select([process], [], [], wait_s)[0])


@contextmanager
def _closing(*descriptors: int) -> Iterator[None]:
    try:
        yield
    finally:
        for each in descriptors:
            os.close(each)


@pytest.fixture
def adopting() -> Iterator[None]:
    """Processes that lose their parent become our children."""
    libc = ctypes.CDLL(None)
    assert libc.prctl(_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    assert libc.prctl(_SUBREAPER, 0, 0, 0, 0) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only cells of root wait to be admitted")
async def test_what_a_server_left_that_was_killed_while_it_started_a_cell_is_ended(cells: BubblewrapCells) -> None:
    holds = [_begun(), _begun()]
    begun, left = [await _first(hold) for hold in holds]
    with _closing(begun, left):
        holds[1].process.kill()
        holds[1].process.wait()
        orphans.end()
        assert _ended(left, 30) and not _ended(begun), "a cell that is still being started is left alone"
        for hold in holds:
            hold.release()
        orphans.end()
        assert _ended(begun, 30)


def _children(process: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


async def test_a_start_that_is_given_up_leaves_nothing(
    cells: BubblewrapCells, adopting: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without groups, and before anybody has heard of its first process."""

    def begun(*arguments: Any) -> CellHandles:
        hold, until = start_isolated(*arguments), time.monotonic() + START_S
        while not _children(hold.process.pid):
            assert time.monotonic() < until, "bubblewrap did not start"
        return hold

    monkeypatch.setattr(bubblewrap, "start_isolated", begun)
    without = BubblewrapCells(lambda: NoGroups("none are wanted", "none"), lambda _: cells.users)
    for _ in range(5):
        starting = asyncio.create_task(without.open(PLAN))
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    assert [each for each in _children(os.getpid()) if orphans._is_left(Path("/proc", str(each)))] == []
    await without.close()
