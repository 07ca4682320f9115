"""Orphans of a server that was killed while it started a cell: a first process whose bubblewrap is gone.

Everything else of a cell dies with the server. This process waits for its users to be set; it has run nothing, and
would wait for ever.
"""

import os
from pathlib import Path

from kelpie.world.processes import killing

_OURS = b"import launcher; launcher.main()"  # the command it would have run; see `mounts.program`


def end(proc: Path = Path("/proc")) -> int:
    """Ends such processes, also of other servers, as far as this server may; returns their number."""
    ended = 0
    for each in proc.glob("[0-9]*"):
        try:
            process = os.pidfd_open(int(each.name))  # first: it can come to mean no other one while we look
        except OSError:
            continue
        try:
            if _is_left(each):
                killing.kill(process)
                ended += 1
        except OSError:
            continue  # it ended by itself, or belongs to another user
        finally:
            os.close(process)
    return ended


def _is_left(process: Path) -> bool:
    """Checks whether a process was to become a cell, has no users yet, and no bubblewrap above it that could set
    them."""
    command = (process / "cmdline").read_bytes()
    if not command.partition(b"\0")[0].endswith(b"bwrap") or _OURS not in command:
        return False
    if (process / "uid_map").read_text().strip():
        return False
    parent = (process / "status").read_text().partition("PPid:")[2].split()[0]
    above = process.parent / parent / "cmdline"
    return parent == "0" or _OURS not in above.read_bytes()
