"""A program for worker processes that does what a test asks for."""

import json
import os

_HELD: list[bytes] = []


def answer(request: bytes) -> bytes:
    kind = request[:4]
    if kind == b"echo":
        return request[4:]
    return _TASKS[request]()


def _spin() -> bytes:
    while True:
        pass


def _grow() -> bytes:
    return bytes(1 << 30)


def _swell() -> bytes:
    _HELD.append(b"x" * (120 * 1024 * 1024))
    return b"done"


def _die() -> bytes:
    os._exit(3)


def _write() -> bytes:
    file = os.memfd_create("sample")
    try:
        os.write(file, b"x")
    except OSError as error:
        return (error.strerror or "").encode()
    return b"written"


_TASKS = {
    b"pid": lambda: str(os.getpid()).encode(),
    b"env": lambda: json.dumps(dict(os.environ)).encode(),
    b"spin": _spin,
    b"grow": _grow,
    b"swell": _swell,
    b"die": _die,
    b"write": _write,
}
