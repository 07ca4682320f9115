"""Runs Python in a cell: a function with arguments, or a script.

Source and arguments come as JSON and stay data; the source is compiled, nothing is pasted into it. It is never imported
by the server.
"""

import json
import os
import sys
from importlib import import_module

# What most tools need sooner or later and is cheap; a cell that waits for its order has the time.
USUAL = ("traceback", "typing", "datetime", "math")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kelpie.world.cell import python_function
else:
    import python_function


def prepare(wanted: "Callable[[], bool]") -> None:
    """Imports what is usual while nobody wants anything."""
    for name in USUAL:
        if wanted():
            return
        import_module(name)


def run(request: bytes, reply: "Callable[[bytes], None]") -> None:
    """Runs what the request says. A script ends this process as Python would; a function's result is replied."""
    told: dict[str, Any] = json.loads(request)
    sys.path[:0] = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.argv = [python_function.FILE]
    if told.get("function") is None:
        source: str = told["source"]
        sys.path[:0] = told.get("paths") or []
        sys.excepthook = lambda _kind, error, _frames: print(python_function.trace(error), end="", file=sys.stderr)
        exec(compile(source, python_function.FILE, "exec"), python_function.module_of("__main__", source).__dict__)
        return
    answer = json.dumps(python_function.perform(told)).encode()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    reply(answer)
