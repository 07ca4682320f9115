"""A `kelpie` command for shell scripts that is a fork of a process which has imported the command line already.

The command is a small program: it hands its arguments, environment, directory and standard streams to the host over a
socket, and ends with the exit code that comes back. It passes on no signals.
"""

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.forks import call, code_of

REQUEST_BYTES_MAX = 1_000_000
NO_CODE = 70  # the fork ended before it could tell

# Without `site` and with only what Python has built in: the rest is most of what a start of Python takes.
PROGRAM = f"""#!{sys.executable} -IS
import posix, sys
from _socket import AF_UNIX, SCM_RIGHTS, SOL_SOCKET, socket
host = socket(AF_UNIX)
host.connect(%r)
env = [name + b"=" + value for name, value in posix.environ.items()]
words = [word.encode("utf-8", "surrogateescape") for word in sys.argv]
asked = b"\\0".join([posix.getcwdb(), str(len(words)).encode(), *words, *env])
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
host.sendmsg([len(asked).to_bytes(4, "big")], [(SOL_SOCKET, SCM_RIGHTS, streams)])
host.sendall(asked)
told = host.recv(1)
sys.exit(told[0] if told else {NO_CODE})
"""


@contextmanager
def command_host() -> Iterator[Path]:
    """A directory for PATH with the command, for as long as the host runs."""
    with tempfile.TemporaryDirectory(prefix="kelpie-") as name, socket.socket(socket.AF_UNIX) as listener:
        directory = Path(name)  # a short one: the address of a socket has 108 bytes at most
        program = directory / "kelpie"
        program.write_text(PROGRAM % str(directory / "host"))
        program.chmod(0o755)
        listener.bind(str(directory / "host"))
        listener.listen()
        process = call(_host, listener)
        try:
            yield directory
        finally:
            process.kill()
            process.join()


def _host(listener: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    while True:
        asking, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _answer(asking)
        asking.close()


def _answer(asking: socket.socket) -> None:
    """In the fork: the command, and its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(asking, 4, 3)
    wanted = min(int.from_bytes(size, "big"), REQUEST_BYTES_MAX)
    asked = b""
    while len(asked) < wanted:
        asked += asking.recv(wanted - len(asked))
    cwd, count, *rest = map(os.fsdecode, asked.split(b"\0"))
    words, env = rest[: int(count)], rest[int(count) :]
    os.environ.clear()
    for each in env:
        name, _, value = each.partition("=")
        os.environ[name] = value
    os.chdir(cwd)
    for number, opened in enumerate(streams):
        os.dup2(opened, number)
    code = code_of(words)
    asking.sendall(bytes([code]))
    os._exit(code)
