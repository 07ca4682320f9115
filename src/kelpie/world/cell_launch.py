"""Starting the processes of a cell, with nothing of ours but the descriptors they are meant to have."""

import os
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kelpie.core.errors import SandboxUnavailable
from kelpie.world.bubblewrap_cell import Hold
from kelpie.world.cell_walls import PROGRAMS, environment, program, walls
from kelpie.world.cells import Plan
from kelpie.world.control_group import Group

NO_MOUNTS = (
    "the server runs code without walls, and without them there are no packages of its own nor a workspace for it"
)
# Enters the groups that its first arguments name, then becomes the rest; a shell starts faster than anything else.
_ENTER = 'while [ "$1" != -- ]; do echo 0 > "$1" || exit 97; shift; done; shift; exec "$@"'


def walled(plan: Plan, bwrap: str, filtered: bytes, hidden: Sequence[str], group: Group | None) -> Hold:
    """Starts bubblewrap, which builds the walls and starts the launcher behind them."""
    ours, theirs = socket.socketpair()
    information, information_end = os.pipe()
    # Options given on the command line could be read in the cell, and with them paths of the host.
    seccomp = _in_memory(filtered)
    options = _in_memory("\0".join([*walls(plan, information_end, seccomp, hidden), ""]).encode())
    command = [bwrap, "--args", str(options), "--", *program(plan, theirs.fileno())]
    try:
        process, stdout, stderr = _start(command, [theirs.fileno(), information_end, options, seccomp], "/", group)
    except BaseException:  # raised again; the descriptors must not stay open
        ours.close()
        os.close(information)
        raise
    finally:
        theirs.close()
        _close(information_end, options, seccomp)
    return Hold(process, ours, stdout, stderr, group, environment(), information)


def unwalled(plan: Plan, group: Group | None) -> Hold:
    """Starts the launcher alone: what it runs is held by rlimits, Landlock where it is there, and nothing else."""
    if plan.mounts:
        raise SandboxUnavailable(NO_MOUNTS)
    scratch = tempfile.mkdtemp(prefix="kelpie-scratch-")
    ours, theirs = socket.socketpair()
    command = program(plan, theirs.fileno(), inside=str(PROGRAMS), writable=[scratch], ports=())
    try:
        process, stdout, stderr = _start(command, [theirs.fileno()], scratch, group)
    except BaseException:  # raised again; neither the descriptor nor the directory must stay
        ours.close()
        Path(scratch).rmdir()
        raise
    finally:
        theirs.close()
    return Hold(process, ours, stdout, stderr, group, environment(scratch), scratch=scratch)


def _start(
    command: Sequence[str], given: Sequence[int], directory: str, group: Group | None
) -> tuple[subprocess.Popen[bytes], int, int]:
    """The process and our ends of its standard output and standard error."""
    if group is not None:
        command = ["/bin/sh", "-c", _ENTER, "sh", *group.entries(), "--", *command]
    stdout, stdout_end = os.pipe()
    stderr, stderr_end = os.pipe()
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout_end, stderr=stderr_end, pass_fds=given, env={},
            cwd=directory, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        _close(stdout, stderr)
        raise SandboxUnavailable(f"a cell cannot be started: {error.strerror}") from None
    finally:
        _close(stdout_end, stderr_end)
    return process, stdout, stderr


def _in_memory(data: bytes) -> int:
    descriptor = os.memfd_create("kelpie")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _close(*descriptors: int) -> None:
    for each in descriptors:
        os.close(each)
