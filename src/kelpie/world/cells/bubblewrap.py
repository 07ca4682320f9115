"""Cells on this machine, built by bubblewrap: the real adapter of the `Cells` port.

It starts cells and removes what they leave. Bubblewrap dies with the thread that started it, so cells are started from
the thread of the event loop, which lives as long as the server.
"""

import asyncio
import compileall
import platform
import shutil
import sys
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from pathlib import Path

from kelpie.core.errors import SandboxUnavailable
from kelpie.observe import logs
from kelpie.world.cells import orphans
from kelpie.world.cells import users as cell_users
from kelpie.world.cells.bubblewrap_cell import BubblewrapCell, CellBroken, CellHandles
from kelpie.world.cells.launch import start_isolated, start_unisolated
from kelpie.world.cells.mounts import PROGRAMS, shown_paths
from kelpie.world.cells.port import CellPlan
from kelpie.world.cells.self_test import Proof, lacking, prove
from kelpie.world.cells.users import CellUsers, NoUsers
from kelpie.world.isolation import control_group_search, seccomp
from kelpie.world.isolation.control_group import ControlGroups, Group
from kelpie.world.isolation.control_group_search import NoGroups

START_S = 20.0
NO_BUBBLEWRAP = (
    "code cannot be isolated on this server: bubblewrap is not installed. Install the package bubblewrap "
    "(apt install bubblewrap, dnf install bubblewrap), or see docs/security.md"
)
NOT_LINUX = "code cannot be isolated on this server: it needs Linux, or a Linux virtual machine"
NO_FILTER = (
    "code cannot be isolated on this server: which system calls to refuse is not known for {machine}; use x86-64 or "
    "AArch64"
)

_log = logs.get("sandbox")


class BubblewrapCells:
    """Starts cells. Without control groups only each process is limited, not all of them together.

    Before the first cell is handed out, the isolation is tested; a test result stored in a file counts until the
    machine restarts. With `lowered`, code runs without isolation where the machine offers none, and that is logged
    once.
    """

    def __init__(
        self,
        groups: Callable[[], ControlGroups | NoGroups] = control_group_search.find,
        users: Callable[[Iterable[str]], CellUsers | NoUsers] = cell_users.find,
        *,
        kept: Path | None = None,
        lowered: Callable[[str], None] | None = None,
    ) -> None:
        self._find_groups = groups
        self._groups: ControlGroups | NoGroups | None = None
        self._find_users = users
        self._users: CellUsers | NoUsers | None = None
        self._users_hold = False
        self._kept = kept
        self._hidden = [str(kept.parent.resolve())] if kept is not None else []  # the server's own data
        self._lowered = lowered
        self._names = count(1)
        self._filter = seccomp.program()
        self._proving = asyncio.Lock()
        self._lacking: str | None = None
        self._proven = False

    @property
    def groups(self) -> ControlGroups | NoGroups:
        """The control groups, searched for when the first cell is needed: a server that runs no code makes no
        groups."""
        if self._groups is None:
            self._groups = self._find_groups()
        return self._groups

    @property
    def users(self) -> CellUsers | NoUsers:
        """The users of cells on the host; searched for when the first cell is needed."""
        if self._users is None:
            self._users = self._find_users([str(PROGRAMS), *shown_paths()])
        return self._users

    @property
    def lacking(self) -> str | None:
        """Reason why no code can be isolated here, as far as it was tried."""
        return self._lacking

    @property
    def unbounded(self) -> str | None:
        """Reason why the limits of a call apply to each of its processes only, as far as it was tried."""
        found = self._groups
        return f"there are no control groups ({found.seen}); {found.remedy}" if isinstance(found, NoGroups) else None

    @property
    def has_groups(self) -> bool:
        return isinstance(self.groups, ControlGroups)

    async def start(self, plan: CellPlan) -> BubblewrapCell:
        """A cell that waits for its order. Raises SandboxUnavailable with what is missing."""
        if not self._proven:
            async with self._proving:
                await self._prove()
        if self._lacking is None:
            return await self.open(plan)
        if self._lowered is None:
            raise SandboxUnavailable(self._lacking)
        return await self._started(plan, partial(start_unisolated, plan))

    async def open(self, plan: CellPlan) -> BubblewrapCell:
        """A cell whose isolation is not tested yet. Raises SandboxUnavailable with what is missing."""
        if sys.platform != "linux":
            raise SandboxUnavailable(NOT_LINUX)
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise SandboxUnavailable(NO_BUBBLEWRAP)
        if self._filter is None:
            raise SandboxUnavailable(NO_FILTER.format(machine=platform.machine()))
        launch = partial(start_isolated, plan, bwrap, self._filter, self._hidden)
        users = self.users
        try:
            cell = await self._opened(plan, launch, users)
        except CellBroken as error:
            if self._users_hold or isinstance(users, NoUsers):
                raise
            cell = await self._opened(plan, launch, NoUsers())  # this raises what has nothing to do with users
            self._users = NoUsers(str(error))
            return cell
        self._users_hold = self._users_hold or cell.user is not None
        return cell

    async def _opened(
        self, plan: CellPlan, launch: Callable[[int | None, Group | None], CellHandles], users: CellUsers | NoUsers
    ) -> BubblewrapCell:
        try:
            if isinstance(users, CellUsers):
                user = await users.of(plan.mounts)
            else:
                user = await cell_users.reclaim(plan.mounts)
        except OSError as error:
            raise SandboxUnavailable(f"the files of a sandbox cannot be prepared: {error.strerror}") from error
        return await self._started(plan, partial(launch, user))

    async def _prove(self) -> None:
        if self._proven:
            return
        if sys.platform == "linux" and (left := await asyncio.to_thread(orphans.end)):
            _log.warning("leftover_cells_ended", "Cells left behind by a killed server were ended", count=left)
        compileall.compile_dir(PROGRAMS, quiet=2)  # in the cell nothing can be written, so every start would do it
        before, self._lacking = self._lacking, await lacking(self, self._kept)
        self._proven = self._lacking is None  # else it is tried again: the operator may have fixed it
        if self._lacking is not None and self._lacking != before and self._lowered is not None:
            self._lowered(self._lacking)
        if self._proven and isinstance(self.groups, NoGroups):
            _log.warning(
                "sandbox_limits_per_process", "Sandbox limits apply to each process separately", reason=self.unbounded
            )
        if self._proven and isinstance(self.users, NoUsers) and self.users.seen is not None:
            _log.warning(
                "sandbox_runs_as_root",
                "Sandbox runs tools as root on the host side",
                reason=self.users.seen,
                remedy=self.users.remedy,
            )

    async def _started(self, plan: CellPlan, launch: Callable[[Group | None], CellHandles]) -> BubblewrapCell:
        try:
            return await self._ready(self._launched(plan, launch))
        except OSError as error:  # there are no more descriptors, processes or groups to be had
            raise SandboxUnavailable(f"a sandbox cannot be started on this server now: {error.strerror}") from error

    async def _ready(self, cell: BubblewrapCell) -> BubblewrapCell:
        try:
            async with asyncio.timeout(START_S):
                await cell.ready()
        except TimeoutError:
            await cell.kill()
            raise SandboxUnavailable(
                f"a sandbox did not start within {START_S:.0f} s; the machine is overloaded"
            ) from None
        except BaseException:  # raised again; also for a cancelled start the cell must go
            await cell.kill()
            raise
        return cell

    def _launched(self, plan: CellPlan, launch: Callable[[Group | None], CellHandles]) -> BubblewrapCell:
        """A cell whose processes are started. Raises OSError, and then leaves nothing behind."""
        group = self._group()
        try:
            hold = launch(group)
            try:
                return BubblewrapCell(hold, plan)
            except OSError:
                hold.release()
                raise
        except BaseException:  # raised again: without a cell nothing would remove the group
            if group is not None:
                group.remove()
            raise

    def _group(self) -> Group | None:
        name = f"cell-{next(self._names)}"
        try:
            return self.groups.make(name) if isinstance(self.groups, ControlGroups) else None
        except FileNotFoundError:  # another process removed the directory: there may be another
            self._groups = None
            return self.groups.make(name) if isinstance(self.groups, ControlGroups) else None

    async def close(self) -> None:
        if isinstance(self._groups, ControlGroups):
            self._groups.close()


def proven() -> Proof:
    """Attacks the isolation of this machine from within a cell, thoroughly; takes some seconds."""

    async def attack() -> Proof:
        cells = BubblewrapCells()
        try:
            return await prove(cells, platform.machine(), thoroughly=True)
        finally:
            await cells.close()

    return asyncio.run(attack())
