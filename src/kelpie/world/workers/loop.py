"""The loop inside a worker process: reads a request, answers it with the program's function, and waits for the next.

Limits are set before the first request: memory for the whole process, processor time for each request, no new
processes, and no writes to files. A process that has grown says so with its answer and ends, because Python rarely
gives memory back.
"""

import importlib
import os
import resource
import struct
from collections.abc import Callable
from pathlib import Path

HEAD = struct.Struct(">IB")  # length of the body, and a flag
ANSWER, LAST_ANSWER, NO_MEMORY = 0, 1, 2  # flags of an answer
CONTENT, FILE = 0, 1  # flags of a request: the request itself, or a file that holds it, see `file_request`
PATH = struct.Struct(">I")  # length of a path
GROWN_BYTES = 96 * 1024 * 1024


def serve(program: str, memory_bytes: int, cpu_s: int) -> None:
    """Answers requests from the standard input until it is closed."""
    answer: Callable[[bytes], bytes] = importlib.import_module(program).answer
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NPROC, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_AS, memory_bytes)
    while (head := _read(HEAD.size)) is not None:
        length, kind = HEAD.unpack(head)
        request = _read(length)
        if request is None:
            return
        _allow(cpu_s)
        try:
            body, flag = answer(_from_file(request) if kind == FILE else request), ANSWER
        except MemoryError:
            body, flag = b"", NO_MEMORY
        if flag == ANSWER and _resident_bytes() > GROWN_BYTES:
            flag = LAST_ANSWER
        _write(HEAD.pack(len(body), flag) + body)
        if flag != ANSWER:
            return


def file_request(path: str, head: bytes) -> bytes:
    """A request that stands in a file, and what goes before it."""
    name = path.encode()
    return PATH.pack(len(name)) + name + head


def _from_file(request: bytes) -> bytes:
    length = PATH.unpack_from(request)[0]
    path, head = request[PATH.size : PATH.size + length], request[PATH.size + length :]
    content = Path(path.decode()).read_bytes()
    return head + content if head else content


def _limit(kind: int, most: int) -> None:
    """Lowers a limit to this, unless the operator has set a lower one."""
    _, hard = resource.getrlimit(kind)
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (value, value))


def _allow(cpu_s: int) -> None:
    """Lets the process use this much more processor time; past it the kernel ends the process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = int(used.ru_utime + used.ru_stime) + cpu_s + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _resident_bytes() -> int:
    """Memory in use now. The largest so far, which `getrusage` knows, would count the server that started this."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()
    except OSError:
        return 0  # no such file on this system


def _read(length: int) -> bytes | None:
    """Exactly this many bytes; None at the end of the input."""
    parts: list[bytes] = []
    while length:
        part = os.read(0, min(length, 1 << 20))
        if not part:
            return None
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]
