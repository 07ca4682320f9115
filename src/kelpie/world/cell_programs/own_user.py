"""The very first step in a cell of a server that is root: it stops being root, before anything else is even imported.

Bubblewrap leaves it three capabilities for that, and no way leads back to any of them. It runs inside the cell with the
standard library alone and is never imported by the server, which sees for itself who greets it.
"""

import ctypes
import os

_SET_DUMPABLE, _DROP_FROM_BOUNDS = 4, 24  # prctl
_CAPABILITIES = (6, 7, 8)  # to change groups and users, and to give up capabilities for good
_HEADER, _NONE = (0x20080522).to_bytes(4, "little") + bytes(4), bytes(24)  # capset: of this process, no capability


def become(user: int, admission: int) -> None:
    """This process and all that it starts are this user and this group from now on; the descriptor that bubblewrap
    waited at for that goes with root. Raises OSError."""
    os.close(admission)
    libc = ctypes.CDLL(None, use_errno=True)
    for each in _CAPABILITIES:
        _checked(libc.prctl(_DROP_FROM_BOUNDS, each, 0, 0, 0))
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    _checked(libc.capset(_HEADER, _NONE))
    # A process that changed its user may not open its own descriptors by their names, such as /dev/stdout.
    _checked(libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0))


def _checked(answer: int) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"a user of its own: {os.strerror(number)}")
