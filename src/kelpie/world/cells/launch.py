"""Starting the processes of a cell, with none of the server's descriptors but those they are meant to have.

A failed start raises OSError, and leaves neither a descriptor nor a directory.
"""

import os
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack

from kelpie.core.errors import SandboxUnavailable
from kelpie.world.cells import handshake
from kelpie.world.cells.bubblewrap_cell import CellHandles
from kelpie.world.cells.mounts import PROGRAMS, environment, isolation_options, program
from kelpie.world.cells.port import CellPlan
from kelpie.world.isolation.control_group import Group

NO_MOUNTS = "the server runs tool code without isolation, so a tool cannot have its own packages or a workspace"


def start_isolated(
    plan: CellPlan, bwrap: str, filtered: bytes, hidden: Sequence[str], user: int | None, group: Group | None
) -> CellHandles:
    """Starts bubblewrap, which sets up the isolation and starts the launcher in it; a cell with its own user waits
    until it is admitted."""
    with ExitStack() as kept, ExitStack() as given:
        ours, theirs = _sockets(kept, given)
        information, information_end = _pipe(kept, given)
        admission_end, admission = _pipe(given, kept) if user is not None else (None, None)
        # Code in the cell could read options on the command line, and with them paths of the host.
        seccomp = _in_memory(filtered, given)
        told = isolation_options(plan, information_end, seccomp, hidden, admission_end)
        options = _in_memory("\0".join([*told, ""]).encode(), given)
        command = [bwrap, "--args", str(options), "--", *program(plan, theirs, admission=admission_end)]
        descriptors = [
            theirs,
            information_end,
            options,
            seccomp,
            *([admission_end] if admission_end is not None else []),
        ]
        process, stdout, stderr = _start(command, descriptors, "/", group, user)
        kept.pop_all()
        return CellHandles(process, ours, stdout, stderr, group, environment(), information, admission, user)


def start_unisolated(plan: CellPlan, group: Group | None) -> CellHandles:
    """Starts the launcher alone: its programs are limited by rlimits, by Landlock where available, and nothing else."""
    if plan.mounts:
        raise SandboxUnavailable(NO_MOUNTS)
    with ExitStack() as kept, ExitStack() as given:
        scratch = tempfile.mkdtemp(prefix="kelpie-scratch-")
        kept.callback(os.rmdir, scratch)
        ours, theirs = _sockets(kept, given)
        command = program(plan, theirs, inside=str(PROGRAMS), writable=[scratch], ports=())
        process, stdout, stderr = _start(command, [theirs], scratch, group)
        kept.pop_all()
        return CellHandles(process, ours, stdout, stderr, group, environment(scratch), scratch=scratch)


def _sockets(kept: ExitStack, given: ExitStack) -> tuple[socket.socket, int]:
    """The server's end of the cell's socket, and the descriptor number of the cell's end."""
    ours, theirs = socket.socketpair()
    kept.callback(ours.close)
    given.callback(theirs.close)
    handshake.expect(ours)
    return ours, theirs.fileno()


def _start(
    command: Sequence[str], descriptors: Sequence[int], directory: str, group: Group | None, user: int | None = None
) -> tuple[subprocess.Popen[bytes], int, int]:
    """The process and the server's ends of its standard output and standard error."""
    if group is not None:
        command = group.entering(command)
    with ExitStack() as kept, ExitStack() as given:
        (stdout, stdout_end), (stderr, stderr_end) = _pipe(kept, given), _pipe(kept, given)
        if user is not None:  # else it could write to them, but not open /dev/stdout
            os.fchown(stdout_end, user, user)
            os.fchown(stderr_end, user, user)
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout_end, stderr=stderr_end, pass_fds=descriptors, env={},
            cwd=directory, start_new_session=True,
        )  # fmt: skip
        kept.pop_all()
        return process, stdout, stderr


def _pipe(kept: ExitStack, given: ExitStack) -> tuple[int, int]:
    ours, theirs = os.pipe()
    kept.callback(os.close, ours)
    given.callback(os.close, theirs)
    return ours, theirs


def _in_memory(data: bytes, given: ExitStack) -> int:
    descriptor = os.memfd_create("kelpie")
    given.callback(os.close, descriptor)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
