"""The `kelpie` command in forks of a process that has imported the command line and the server already.

Importing them is most of what a command, and most of what the start of a server takes. A fork has an environment,
directory, limits and standard streams of its own, and runs the entry point of the command.
"""

import io
import multiprocessing
import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from kelpie.cli import app, main
from kelpie.cli.commands import demo
from kelpie.cli.commands.conversations import chat
from kelpie.cli.commands.operations import doctor

PRELOADED = (
    __name__,
    "tests.command_tree",
    *(module.__name__ for module in (app, chat, demo, doctor)),
    "kelpie.cli.server.process",
    "uvloop",
    "pydantic.type_adapter",  # which typer imports late
    "encodings.idna",
)

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
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.argv = ["kelpie", *arguments]
    main.main()
