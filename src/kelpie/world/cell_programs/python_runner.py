"""Runs Python in a cell: a function with arguments, or a script.

Source and arguments come as JSON and stay data; the source is compiled, nothing is pasted into it. It is never imported
by the server.
"""

import os
import sys

SOON_S = 0.05
# What most tools need sooner or later and is cheap; a cell that waits for its order has the time.
USUAL = ("json", "traceback", "typing", "datetime", "math")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kelpie.world.cell_programs import python_function, quick_json
else:
    import python_function
    import quick_json


def prepare(wanted: "Callable[[float], bool]") -> None:
    """Imports what is usual while nobody wants anything for so many seconds: an order may be on its way already."""
    for number, name in enumerate(USUAL):
        if wanted(0.0 if number else SOON_S):
            return
        __import__(name)


def run(request: bytes, reply: "Callable[[bytes], None]") -> None:
    """Runs what the request says. A script ends this process as Python would; a function's result is replied."""
    told: dict[str, Any] = quick_json.loads(request)
    sys.path[:0] = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.argv = [python_function.FILE]
    if told.get("function") is None:
        source: str = told["source"]
        sys.path[:0] = told.get("paths") or []
        sys.excepthook = lambda _kind, error, _frames: print(python_function.trace(error), end="", file=sys.stderr)
        exec(compile(source, python_function.FILE, "exec"), python_function.module_of("__main__", source).__dict__)
        return
    answer = quick_json.dumps(python_function.perform(told))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    reply(answer)
