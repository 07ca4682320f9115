"""Runs pip so that it takes wheels only: it starts no program and opens no source archive.

pip takes wheels only from its index when it is told so, but a package may name another one by its address, and pip
would unpack and build that one. It runs inside a cell, with the directory that contains pip as its first argument, and
is never imported by the server.
"""

import runpy
import sys
import tarfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

SOURCE = "a package names another one by the address of its source, and not of a wheel: refused"
_PROGRAMS = ("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system")


def main() -> None:
    sys.addaudithook(_refuse_programs)
    tarfile.open = _refuse_archive  # the first thing that pip does with a source archive
    sys.path.insert(0, sys.argv.pop(1))
    sys.argv[0] = "pip"
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


def _refuse_programs(event: str, _arguments: "tuple[Any, ...]") -> None:
    if event in _PROGRAMS:
        raise PermissionError(1, SOURCE)


def _refuse_archive(*_: "Any", **__: "Any") -> "NoReturn":
    raise PermissionError(1, SOURCE)


if __name__ == "__main__":
    main()
