"""Who a cell is outside of its walls, where the server is root: a user of its own that owns nothing on this machine.

The kernel counts no processes of root, and lets it read nearly everything; it does neither for a user like this. A cell
without a workspace gets the next user of a range, so that no two share one; a workspace belongs to one user for good,
and so do the cells that write to it. Whoever starts as root and cannot be turned into one of these is never let in.
"""

import asyncio
import errno
import hashlib
import os
import random
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from kelpie.core.tools.confinement import Mount
from kelpie.observe import logs
from kelpie.world.cells.mounts import USER
from kelpie.world.files import untrusted_tree

FIRST = 0x7000_0000  # above the users of people, services and containers, below what some programs take for negative
CELLS, WORKSPACES = 1 << 16, 1 << 24
_OF_WORKSPACES = range(FIRST + CELLS, FIRST + CELLS + WORKSPACES)
_CAPABILITIES = {
    0: "CHOWN", 1: "DAC_OVERRIDE", 3: "FOWNER", 5: "KILL", 6: "SETGID", 7: "SETUID", 31: "SETFCAP"
}  # fmt: skip
LESS = "give the server the capabilities that root has in a container: --cap-add with each of these names"
CLOSED = "allow other users to read what cells use: chmod -R o+rX {}"
FEW = "map all user ids into the server's user namespace, or none but unprivileged ones"
UNTRIED = "see docs/security.md; until then only a control group limits fork bombs"
_log = logs.get("sandbox")
_READ = stat.S_IROTH | stat.S_IXOTH


@dataclass(frozen=True, slots=True)
class NoUsers:
    """Why cells are the server's own user outside, and what to do about it; `seen` is None where nothing is amiss,
    because that is no root."""

    seen: str | None = None
    remedy: str = UNTRIED


class CellUsers:
    """Hands out users, and gives them what their cells are to write and to read."""

    def __init__(self) -> None:
        self._turns = count(random.randrange(CELLS))  # servers of one machine do not begin with the same one

    async def of(self, mounts: Sequence[Mount]) -> int | None:
        """The user for a cell with these mounts, which can be used by it from then on; None where they lie on a disk
        that keeps no owners. Raises OSError."""
        written = [mount.source for mount in mounts if mount.writable]
        user = _owner(written[0]) if written else FIRST + next(self._turns) % CELLS
        for source in written:
            if _about(source).st_uid != user and not await _give(source, user):
                _log.warning(
                    "workspace_owner_unchanged",
                    "Tool runs as root on the host side: the owner of its workspace cannot be changed",
                    path=source,
                )
                return None
        for source in (mount.source for mount in mounts if not mount.writable):
            if _about(source).st_mode & _READ != _READ:
                await asyncio.to_thread(untrusted_tree.make_readable, source)
        return user


async def _give(source: str, user: int) -> bool:
    """Gives away what is new, or from the time when cells were root; whether the disk took note of it."""
    try:
        await asyncio.to_thread(untrusted_tree.change_owner, source, user)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EINVAL, errno.ENOTSUP):
            raise
    return _about(source).st_uid == user


async def reclaim(mounts: Sequence[Mount]) -> None:
    """Makes ours again what such a user owns, where no cell becomes one any more. Raises OSError."""
    for source in (mount.source for mount in mounts if mount.writable):
        if _about(source).st_uid in _OF_WORKSPACES:
            await asyncio.to_thread(untrusted_tree.change_owner, source, os.geteuid())


def find(shown: Iterable[str], proc: Path = Path("/proc")) -> CellUsers | NoUsers:
    """Users for cells, or why there are none; the paths are what every cell is shown."""
    if os.geteuid() != 0 or _is_ordinary_outside((proc / "self/uid_map").read_text()):
        return NoUsers()
    status = (proc / "self/status").read_text()
    held = int(status.partition("CapEff:")[2].split()[0], 16)
    if lacking := [name for bit, name in _CAPABILITIES.items() if not held >> bit & 1]:
        return NoUsers(f"the server lacks {', '.join(lacking)}", LESS)
    if not all(_exists(FIRST, _OF_WORKSPACES.stop, proc / f"self/{kind}_map") for kind in ("uid", "gid")):
        return NoUsers("the server is in a user namespace without spare user ids", FEW)
    for path in shown:
        mode = _about(path).st_mode
        needed = _READ if stat.S_ISDIR(mode) else stat.S_IROTH
        if mode & needed != needed:
            return NoUsers(f"only root can read {path}", CLOSED.format(path))
    return CellUsers()


def admit(process: int, user: int) -> None:
    """Lets the first process of a cell know root, which it is, and the user that it will become. Raises OSError."""
    for kind in ("uid", "gid"):
        Path(f"/proc/{process}/{kind}_map").write_text(f"0 {os.geteuid()} 1\n{USER} {user} 1\n")


def _is_ordinary_outside(users: str) -> bool:
    """Whether our root is another user for the namespace around ours."""
    return any(inside == "0" != outside for inside, outside, _ in map(str.split, users.splitlines()))


def _exists(first: int, end: int, users: Path) -> bool:
    """Whether our namespace has all users from the first to before the end."""
    for line in users.read_text().splitlines():
        inside, _, length = map(int, line.split())
        if inside <= first and end <= inside + length:
            return True
    return False


def _about(path: str) -> os.stat_result:
    return Path(path).stat()


def _owner(workspace: str) -> int:
    """Whose it is, or is to be: who moves it to another place does not change that."""
    found = _about(workspace).st_uid
    if found in _OF_WORKSPACES:
        return found
    digest = hashlib.sha256(os.fsencode(workspace)).digest()
    return _OF_WORKSPACES[int.from_bytes(digest[:8]) % WORKSPACES]
