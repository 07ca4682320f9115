"""Landlock from within the cell: after this no process of it can write outside its scratch, nor signal past it.

The mounts say the same already; this holds even if one of them were wrong. Where the kernel has no Landlock nothing
happens, and the caller is told.
"""

import ctypes
import os
import sys

_RULESET, _RULE, _RESTRICT = 444, 445, 446  # the same numbers on every architecture
_NO_NEW_PRIVILEGES = 38
_READ = 0b1101  # execute, read a file, read a directory
_WRITE_FILE = 0b10
_DEVICE_NODES = 1 << 6 | 1 << 11
_RIGHTS_BY_VERSION = {1: 13, 2: 14, 3: 15, 4: 15}  # how many rights on files there are; 16 from version 5 on
_TRUNCATE, _DEVICE_CONTROL = 1 << 14, 1 << 15
_SCOPED = 0b11  # abstract sockets and signals stay inside, from version 6 on


def restrict(writable: list[str]) -> int:
    """Forbids this process and its children to write anywhere but below these; returns the kernel's version, or 0."""
    libc = ctypes.CDLL(None, use_errno=True)
    version: int = libc.syscall(_RULESET, None, 0, 1)
    if version < 1:
        return 0
    handled = (1 << _RIGHTS_BY_VERSION.get(version, 16)) - 1
    rules = b"".join(map(_long, (handled, 0, _SCOPED)))[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _checked(libc.syscall(_RULESET, rules, len(rules), 0))
    _allow(libc, ruleset, "/", _READ & handled)
    _allow(libc, ruleset, "/dev", (_READ | _WRITE_FILE | _TRUNCATE | _DEVICE_CONTROL) & handled)
    for path in writable:
        _allow(libc, ruleset, path, handled & ~_DEVICE_NODES)
    _checked(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _checked(libc.syscall(_RESTRICT, ruleset, 0))
    os.close(ruleset)
    return version


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    directory = os.open(path, os.O_PATH | os.O_CLOEXEC)
    _checked(libc.syscall(_RULE, ruleset, 1, _long(rights) + directory.to_bytes(4, sys.byteorder), 0))
    os.close(directory)


def _long(number: int) -> bytes:
    return number.to_bytes(8, sys.byteorder)


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return answer
