"""Host users of cells, where the server is root: each cell is a user of its own that owns nothing on this machine.

The kernel counts no processes of root, and lets it read nearly everything; neither is true for such a user. A cell
without a workspace gets the next user of a range, so that no two share one; a workspace belongs to one user for good,
and so do the cells that write to it. A process that starts as root and cannot switch to such a user never gets an
order.
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
CLOSED = "allow other users to read what sandboxes use: chmod -R o+rX {}"
FEW = "map all user ids into the server's user namespace, or none but unprivileged ones"
UNTRIED = "see docs/security.md; until then only a control group limits fork bombs"
_log = logs.get("sandbox")
_READ = stat.S_IROTH | stat.S_IXOTH


@dataclass(frozen=True, slots=True)
class NoUsers:
    """Reason why cells run as the server's own user, and the remedy; `seen` is None if that is no problem, because the
    server is not root."""

    seen: str | None = None
    remedy: str = UNTRIED


class CellUsers:
    """Assigns users, and gives them ownership of what their cells write and access to what they read."""

    def __init__(self) -> None:
        self._turns = count(random.randrange(CELLS))  # servers of one machine do not begin with the same one

    async def of(self, mounts: Sequence[Mount]) -> int | None:
        """The user for a cell with these mounts, which that user can access from then on; None where they lie on a disk
        without owners. Raises OSError."""
        written = [mount.source for mount in mounts if mount.writable and mount.ours]
        user = _owner(written[0]) if written else FIRST + next(self._turns) % CELLS
        for source in written:
            if _about(source).st_uid != user and not await _give(source, user):
                _log.warning(
                    "workspace_owner_unchanged",
                    "Tool runs as root on the host side: the owner of its workspace cannot be changed",
                    path=source,
                )
                return None
        for source in (mount.source for mount in mounts if not mount.writable and mount.ours):
            if _about(source).st_mode & _READ != _READ:
                await asyncio.to_thread(untrusted_tree.make_readable, source)
        return user


async def _give(source: str, user: int) -> bool:
    """Changes the owner of new files, or of files from the time when cells were root; False if the disk stores no
    owners."""
    try:
        await asyncio.to_thread(untrusted_tree.change_owner, source, user)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EINVAL, errno.ENOTSUP):
            raise
    return _about(source).st_uid == user


async def reclaim(mounts: Sequence[Mount]) -> None:
    """Returns to the server's user what such a user owns, when cells no longer have users. Raises OSError."""
    for source in (mount.source for mount in mounts if mount.writable and mount.ours):
        if _about(source).st_uid in _OF_WORKSPACES:
            await asyncio.to_thread(untrusted_tree.change_owner, source, os.geteuid())


def find(shown: Iterable[str], proc: Path = Path("/proc")) -> CellUsers | NoUsers:
    """Users for cells, or the reason why there are none; the paths are those that every cell sees."""
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
    """Maps root, which the first process of a cell is, and the user that it will become. Raises OSError."""
    for kind in ("uid", "gid"):
        Path(f"/proc/{process}/{kind}_map").write_text(f"0 {os.geteuid()} 1\n{USER} {user} 1\n")


def _is_ordinary_outside(users: str) -> bool:
    """Checks whether this root is another user in the namespace around this one."""
    return any(inside == "0" != outside for inside, outside, _ in map(str.split, users.splitlines()))


def _exists(first: int, end: int, users: Path) -> bool:
    """Checks whether this namespace has all users of the range."""
    for line in users.read_text().splitlines():
        inside, _, length = map(int, line.split())
        if inside <= first and end <= inside + length:
            return True
    return False


def _about(path: str) -> os.stat_result:
    return Path(path).stat()


def _owner(workspace: str) -> int:
    """The owner of a path, now or in future; moving it to another directory does not change that."""
    found = _about(workspace).st_uid
    if found in _OF_WORKSPACES:
        return found
    digest = hashlib.sha256(os.fsencode(workspace)).digest()
    return _OF_WORKSPACES[int.from_bytes(digest[:8]) % WORKSPACES]
