"""Tries one means of isolation on itself and prints whether it had an effect: a separate program, never imported.

`world.isolation.probes` runs it in a process that ends right after, because most of its effects on itself cannot be
undone. It prints one line, `yes` or `no` and the observation, using only the standard library to start fast.
"""

import ctypes
import errno
import fcntl
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

_USER, _NET = 0x10000000, 0x40000000  # CLONE_NEWUSER, CLONE_NEWNET
_NO_NEW_PRIVILEGES, _SECCOMP = 38, 22  # prctl
_RULESET, _RESTRICT = 444, 446  # the same numbers on every architecture
_READ_FILE = 1 << 2
_REFUSED = 99  # an error number that nothing else gives
_VM_API, _VM_CREATE, _VM_API_STABLE = 0xAE00, 0xAE01, 12

Seen = tuple[bool, str]


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def user_namespace() -> Seen:
    """A namespace in which this process has no user until one is mapped."""
    before = os.getuid()
    _checked(_libc().unshare(_USER), "unshare")
    after = os.getuid()
    outside = int(Path("/proc/sys/kernel/overflowuid").read_text())
    return after == outside, f"user {before} is {after} in a namespace of its own"


def network_namespace() -> Seen:
    """Checks whether a listening port of the loopback is out of reach from a network namespace of its own."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        address = door.getsockname()
        socket.create_connection(address, 1).close()
        _checked(_libc().unshare(_USER | _NET), "unshare")
        try:
            socket.create_connection(address, 1).close()
        except OSError as error:
            return True, f"no way out of a namespace of its own ({error.strerror})"
    return False, "the network is still there in a namespace of its own"


def landlock() -> Seen:
    """Forbids itself to read files, and tries to."""
    version = _libc().syscall(_RULESET, None, 0, 1)
    _checked(version, "landlock_create_ruleset")
    rules = ctypes.c_uint64(_READ_FILE)
    ruleset = _libc().syscall(_RULESET, ctypes.byref(rules), ctypes.sizeof(rules), 0)
    _checked(ruleset, "landlock_create_ruleset")
    _checked(_libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "prctl")
    _checked(_libc().syscall(_RESTRICT, ruleset, 0), "landlock_restrict_self")
    return _refused(lambda: Path("/proc/self/status").read_text(), f"ABI {version}, a forbidden read fails")


def seccomp() -> Seen:
    """Has the kernel refuse one system call with a special error number, and makes the call."""
    steps = (
        _Instruction(0x20, 0, 0, 0),  # load the number of the call
        _Instruction(0x15, 0, 1, _RULESET),
        _Instruction(0x06, 0, 0, 0x00050000 | _REFUSED),
        _Instruction(0x06, 0, 0, 0x7FFF0000),  # allow
    )
    program = _Program(len(steps), (_Instruction * len(steps))(*steps))
    _checked(_libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "prctl")
    _checked(_libc().prctl(_SECCOMP, 2, ctypes.byref(program), 0, 0), "prctl")
    _libc().syscall(_RULESET, None, 0, 1)
    return ctypes.get_errno() == _REFUSED, "a filter refuses the call it names"


def kvm() -> Seen:
    """Creates an empty virtual machine; this does not show whether it would boot a guest."""
    device = os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
    version = fcntl.ioctl(device, _VM_API, 0)
    os.close(fcntl.ioctl(device, _VM_CREATE, 0))
    return version == _VM_API_STABLE, f"API {version}, makes an empty machine; whether it boots a guest was not tried"


def jailed(directory: str) -> Seen:
    """Run inside a jail with a read-only root: checks whether writing and the network are out of reach."""
    file = Path(directory, f"kelpie-probe-{os.getpid()}")
    try:
        file.touch()
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
    else:
        file.unlink()
        return False, f"{directory} can be written to"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        return _refused(lambda: out.connect(("192.0.2.1", 9)), "read-only root, and no network")


def _refused(deed: Callable[[], object], seen: str) -> Seen:
    try:
        deed()
    except OSError as error:
        return True, f"{seen} ({error.strerror})"
    return False, f"{seen}, but it has no effect"


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(answer: int, call: str) -> None:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


_PROBES: dict[str, Callable[..., Seen]] = {
    each.__name__: each for each in (user_namespace, network_namespace, landlock, seccomp, kvm, jailed)
}

if __name__ == "__main__":
    try:
        works, told = _PROBES[sys.argv[1]](*sys.argv[2:])
    except OSError as error:
        works, told = False, f"{error.filename + ': ' if error.filename else ''}{error.strerror}"
    print("yes" if works else "no", told)
