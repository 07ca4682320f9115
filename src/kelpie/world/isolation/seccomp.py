"""The system calls that no process in a cell may make, as a program for the kernel's filter.

It is a list of refused calls, so that ordinary programs of any language run; a call on it either reaches past the
isolation (mounts, namespaces, other processes), or is a part of the kernel that tools do not need and that was
exploited before. Refusals are error numbers, so a program sees them like any other refusal.
"""

import errno
import platform
import struct

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
# Offsets in the kernel's record; of arguments the lower half.
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _THIRD, _FOURTH = 0, 4, 16, 24, 32, 40
_X32 = 0x40000000  # a second set of numbers on x86-64, through which a list of the first would be passed by
_NAMESPACES = 0x7E020000  # every CLONE_NEW flag that clone knows
_FAMILIES = (1, 2, 10)  # Unix, IPv4, IPv6: enough for a network that is empty
_PROTOCOLS = (0, 1, 6, 17, 58)  # any, ICMP, TCP, UDP; others would load parts of the kernel that no tool needs
_TCP, _TCP_ULP = 6, 31  # TLS and the like within the kernel
_SET_ID = 0o6000  # a program that runs as its owner, who is the server's user outside of the cell
_MAKES_A_FILE = 0x400040  # O_CREAT or O_TMPFILE: only then open looks at a mode
_TERMINAL_TRICKS = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX type into the terminal they share
_PLAIN_PERSONALITIES = (0, 0xFFFFFFFF)

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

# The numbers of x86-64 and of AArch64; None where the call does not exist.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # the tree of files
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "move_mount": (429, 429),
    "open_tree": (428, 428), "mount_setattr": (442, 442), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "fanotify_init": (300, 262), "fanotify_mark": (301, 263), "swapon": (167, 224),
    "swapoff": (168, 225), "quotactl": (179, 60), "quotactl_fd": (443, 443), "acct": (163, 89),
    "nfsservctl": (180, 42), "lookup_dcookie": (212, 18), "uselib": (134, None), "ustat": (136, None),
    "sysfs": (139, None),
    # other processes and namespaces
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "kcmp": (312, 272), "pidfd_getfd": (438, 438), "unshare": (272, 97),
    "setns": (308, 268),
    # parts of the kernel
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "create_module": (174, None),
    "get_kernel_syms": (177, None), "query_module": (178, None), "_sysctl": (156, None), "memfd_secret": (447, 447),
    "move_pages": (279, 239), "mbind": (237, 235), "migrate_pages": (256, 238), "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    # the machine
    "reboot": (169, 142), "syslog": (103, 116), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "adjtimex": (159, 171), "clock_adjtime": (305, 266), "sethostname": (170, 161), "setdomainname": (171, 162),
    "vhangup": (153, 58), "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None),
}  # fmt: skip
# Programs fall back to another call when the kernel reports that it does not know these.
_UNKNOWN: dict[str, tuple[int, int]] = {
    "clone3": (435, 435), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "openat2": (437, 437),
}  # fmt: skip
# It fills the disk faster than any check could notice; programs write instead when a file does not support it.
_FALLOCATE = (285, 47)
_CLONE, _SOCKET, _SOCKETPAIR, _IOCTL, _PERSONALITY = (56, 220), (41, 198), (53, 199), (16, 29), (135, 92)
_SETSOCKOPT = (54, 208)
# Calls that set a file's mode, and the argument with it; for those that open a file, also the argument with the flags.
_MODES: tuple[tuple[tuple[int | None, int | None], int, int | None], ...] = (
    ((90, None), _SECOND, None), ((91, 52), _SECOND, None), ((268, 53), _THIRD, None), ((452, 452), _THIRD, None),
    ((133, None), _SECOND, None), ((259, 33), _THIRD, None), ((85, None), _SECOND, None),
    ((2, None), _THIRD, _SECOND), ((257, 56), _FOURTH, _THIRD),
)  # fmt: skip


def program(machine: str | None = None) -> bytes | None:
    """The filter for this machine's architecture, as `bwrap --seccomp` reads it; None without a list for it."""
    found = _MACHINES.get(machine or platform.machine())
    if found is None:
        return None
    column, architecture = found
    steps = [
        _step(_LOAD, _ARCHITECTURE), _step(_EQUAL, architecture, 1, 0), _step(_RETURN, _KILL), _step(_LOAD, _NUMBER),
        _step(_AT_LEAST, _X32, 0, 1), _refuse(errno.ENOSYS),
    ]  # fmt: skip
    for call in _REFUSED.values():
        if (number := call[column]) is not None:
            steps += [_step(_EQUAL, number, 0, 1), _refuse(errno.EPERM)]
    for call in _UNKNOWN.values():
        steps += [_step(_EQUAL, call[column], 0, 1), _refuse(errno.ENOSYS)]
    steps += [_step(_EQUAL, _FALLOCATE[column], 0, 1), _refuse(errno.EOPNOTSUPP)]
    steps += _argument(_CLONE[column], _FIRST, [_step(_ANY_BIT, _NAMESPACES, 0, 1), _refuse(errno.EPERM)])
    for call in (_SOCKET, _SOCKETPAIR):
        families, protocols = _only(_FAMILIES, errno.EAFNOSUPPORT), _only(_PROTOCOLS, errno.EPROTONOSUPPORT)
        steps += _argument(call[column], _FIRST, [*families, _step(_LOAD, _THIRD), *protocols])
    steps += _argument(_PERSONALITY[column], _FIRST, _only(_PLAIN_PERSONALITIES, errno.EPERM))
    ulp = [_step(_EQUAL, _TCP, 0, 3), _step(_LOAD, _THIRD), _step(_EQUAL, _TCP_ULP, 0, 1), _refuse(errno.ENOPROTOOPT)]
    steps += _argument(_SETSOCKOPT[column], _SECOND, ulp)
    for numbers, mode, flags in _MODES:
        if (number := numbers[column]) is not None:
            steps += _mode(number, mode, flags)
    tricks = [each for code in _TERMINAL_TRICKS for each in (_step(_EQUAL, code, 0, 1), _refuse(errno.EPERM))]
    steps += _argument(_IOCTL[column], _SECOND, tricks)
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _argument(number: int, where: int, judge: list[bytes]) -> list[bytes]:
    """For one call: loads an argument and checks it; whatever is not refused is allowed."""
    inside = [_step(_LOAD, where), *judge, _step(_RETURN, _ALLOW)]
    return [_step(_EQUAL, number, 0, len(inside)), *inside]


def _only(values: tuple[int, ...], error: int) -> list[bytes]:
    """Continues after itself for one of the values, and refuses others."""
    return [*(_step(_EQUAL, value, len(values) - at, 0) for at, value in enumerate(values)), _refuse(error)]


def _mode(number: int, mode: int, flags: int | None) -> list[bytes]:
    judge = [_step(_ANY_BIT, _SET_ID, 0, 1), _refuse(errno.EPERM)]
    if flags is None:
        return _argument(number, mode, judge)
    return _argument(number, flags, [_step(_ANY_BIT, _MAKES_A_FILE, 0, 3), _step(_LOAD, mode), *judge])


def _refuse(error: int) -> bytes:
    return _step(_RETURN, _REFUSE | error)


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)
