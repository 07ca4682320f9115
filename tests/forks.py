"""The `kelpie` command in forks of a process that has imported the command line and the server already.

Importing them is most of what a command, and most of what the start of a server takes. A fork has an environment,
directory, limits and standard streams of its own, and runs the entry point of the command. A server that it starts in
the background is a fork of it in turn.
"""

import io
import multiprocessing
import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, Any

from kelpie.cli import app, main
from kelpie.cli.commands import demo
from kelpie.cli.commands.conversations import chat
from kelpie.cli.commands.operations import doctor
from kelpie.world.processes import server_process

PRELOADED = (
    __name__,
    "tests.command_tree",
    *(module.__name__ for module in (app, chat, demo, doctor)),
    "kelpie.cli.server.process",
    "uvloop",
    "pydantic.type_adapter",  # which typer imports late
    "encodings.idna",
    "tests.warm_server",
)

REAL_START = "REAL_START"  # set for a command whose `server start` shall start Python, as users have it

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(list(PRELOADED))


def fork(
    arguments: Sequence[str],
    env: Mapping[str, str],
    streams: tuple[Path, Path, Path],
    *,
    cwd: Path | None = None,
    open_files: tuple[int, int] | None = None,
) -> BaseProcess:
    """Starts `kelpie ...`: it reads the first of the streams, and appends to the others.

    It may open `open_files` (soft, hard) files.
    """
    return call(become, list(arguments), dict(env), streams, cwd or Path.cwd(), open_files)


def call(function: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Starts a fork that calls a function."""
    process = _FORKS.Process(target=function, args=arguments)
    process.start()
    return process


def become(
    arguments: list[str],
    env: dict[str, str],
    streams: tuple[Path, Path, Path],
    cwd: Path,
    open_files: tuple[int, int] | None,
) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    if open_files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, open_files)
    written = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for number, (path, mode) in enumerate(zip(streams, (os.O_RDONLY, written, written), strict=True)):
        opened = os.open(path, mode, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.exit(code_of(["kelpie", *arguments]))


def code_of(argv: list[str]) -> int:
    """Runs the entry point of the command in a fork, to its exit code."""
    if starts_forks():
        server_process.spawn_detached = _detached
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.argv = argv
    code = 1
    try:
        main.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException as error:  # noqa: BLE001 - told as Python tells it at the end of a process
        sys.excepthook(type(error), error, error.__traceback__)
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def starts_forks() -> bool:
    """Checks whether `server start` starts a fork of its process and not, as `REAL_START` asks for, a new Python."""
    return os.environ.pop(REAL_START, "") == ""


def _detached(argv: Sequence[str], *, log: IO[bytes]) -> int:
    """What `spawn_detached` does with the command line of a server, without a new Python."""
    _, _, _, module, *arguments = argv
    assert module == main.__name__, argv
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    os.setsid()
    for number, opened in enumerate((os.open(os.devnull, os.O_RDONLY), log.fileno(), log.fileno())):
        os.dup2(opened, number)
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    os._exit(code_of(["kelpie", *arguments]))
