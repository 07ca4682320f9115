"""A `kelpie` command for shell scripts that is a fork of a process which has imported the command line already.

The command is a small program: it hands its arguments, environment, directory and standard streams to the host over a
socket, and ends with the exit code that comes back. It passes on no signals.
"""

import io
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kelpie.cli import main
from tests.forks import call

REQUEST_BYTES_MAX = 1_000_000
NO_CODE = 70  # the fork ended before it could tell

# Without `site`, which is most of what a start of Python takes.
PROGRAM = f"""#!{sys.executable} -IS
import os, socket, sys
with socket.socket(socket.AF_UNIX) as host:
    host.connect(os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "host"))
    import json
    asked = json.dumps([sys.argv, dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(host, [len(asked).to_bytes(4, "big")], [0, 1, 2])
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
        program.write_text(PROGRAM)
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
    sys.argv, env, cwd = json.loads(asked)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    for number, opened in enumerate(streams):
        os.dup2(opened, number)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    code = 1
    try:
        main.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException as error:  # noqa: BLE001 - told as Python tells it at the end of a process
        sys.excepthook(type(error), error, error.__traceback__)
    sys.stdout.flush()
    sys.stderr.flush()
    asking.sendall(bytes([code]))
    os._exit(code)
