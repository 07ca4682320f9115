"""Cells on this machine, built by bubblewrap: the `Cells` port for real.

It starts them and takes back what they leave. Bubblewrap dies with the thread that started it, so cells are started
from the thread of the event loop, which lives as long as the server.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import count

from kelpie.core.errors import SandboxUnavailable
from kelpie.world import control_group, seccomp
from kelpie.world.bubblewrap_cell import BubblewrapCell, Hold
from kelpie.world.cell_walls import environment, program, walls
from kelpie.world.cells import Plan
from kelpie.world.control_group import ControlGroups, Group

START_S = 20.0
NO_BUBBLEWRAP = (
    "code cannot be isolated on this server: bubblewrap is not installed. Install the package bubblewrap "
    "(apt install bubblewrap, dnf install bubblewrap), or see docs/security.md"
)
NOT_LINUX = "code cannot be isolated on this server: it needs Linux, or a Linux virtual machine"
# Enters the groups that its first arguments name, then becomes the rest; a shell starts faster than anything else.
_ENTER = 'while [ "$1" != -- ]; do echo 0 > "$1" || exit 97; shift; done; shift; exec "$@"'


class BubblewrapCells:
    """Starts cells. Without control groups only what one process takes is limited, not what all of them take."""

    def __init__(self, groups: Callable[[], ControlGroups | None] = control_group.find) -> None:
        self._find_groups = groups
        self._names = count(1)
        self._filter = seccomp.program()

    @cached_property
    def groups(self) -> ControlGroups | None:
        """Looked for when the first cell is wanted: a server that runs no code makes no groups."""
        return self._find_groups()

    async def start(self, plan: Plan) -> BubblewrapCell:
        """A cell that waits for its order. Raises SandboxUnavailable with what is missing."""
        if sys.platform != "linux":
            raise SandboxUnavailable(NOT_LINUX)
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise SandboxUnavailable(NO_BUBBLEWRAP)
        group = self.groups.make(f"cell-{next(self._names)}") if self.groups is not None else None
        try:
            hold = self._launch(bwrap, plan, group)
        except BaseException:  # raised again: without a cell nobody would take the group back
            if group is not None:
                group.remove()
            raise
        cell = BubblewrapCell(hold, plan, environment())
        try:
            async with asyncio.timeout(START_S):
                await cell.ready()
        except TimeoutError:
            await cell.kill()
            raise SandboxUnavailable(
                f"a cell did not start within {START_S:.0f} s; the machine is overloaded"
            ) from None
        except BaseException:  # raised again; also for a cancelled start the cell must go
            await cell.kill()
            raise
        return cell

    async def close(self) -> None:
        if (groups := self.__dict__.get("groups")) is not None:
            groups.close()

    def _launch(self, bwrap: str, plan: Plan, group: Group | None) -> Hold:
        """Starts bubblewrap with nothing of ours but the descriptors it is meant to have."""
        ours, theirs = socket.socketpair()
        stdout, stdout_end = os.pipe()
        stderr, stderr_end = os.pipe()
        information, information_end = os.pipe()
        filtered = _in_memory(self._filter) if self._filter is not None else None
        # Options given on the command line could be read in the cell, and with them paths of the host.
        options = _in_memory("\0".join([*walls(plan, information_end, filtered), ""]).encode())
        given = [theirs.fileno(), information_end, options, *([filtered] if filtered is not None else [])]
        command = [bwrap, "--args", str(options), "--", *program(plan, theirs.fileno())]
        if group is not None:
            command = ["/bin/sh", "-c", _ENTER, "sh", *group.entries(), "--", *command]
        try:
            process = _started(command, stdout_end, stderr_end, given)
        except BaseException:  # raised again; the descriptors must not stay open
            ours.close()
            _close(stdout, stderr, information)
            raise
        finally:
            theirs.detach()
            _close(stdout_end, stderr_end, *given)
        return Hold(process, ours, stdout, stderr, information, group)


def _started(command: Sequence[str], stdout: int, stderr: int, given: Sequence[int]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, pass_fds=given, env={}, cwd="/",
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise SandboxUnavailable(f"bubblewrap cannot be started: {error.strerror}") from None


def _in_memory(data: bytes) -> int:
    descriptor = os.memfd_create("kelpie")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _close(*descriptors: int) -> None:
    for each in descriptors:
        os.close(each)
