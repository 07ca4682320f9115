"""A Kelpie server that records its own Python calls. `bench/call_paths.py` starts it and says when to record.

    python bench/load/traced_server.py [--record] server start --foreground

The arguments are those of the command `kelpie`, which runs in this process. Standard input takes one command a line:
`record` forgets what was recorded and begins anew; `end SECONDS` waits until the server has started no function for
that long, stops recording and prints one line of JSON, which is `null` when the server did not come to rest. With
`--record` the server records from its first function on.
"""

import dis
import json
import os
import sys
import threading
import time
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TextIO

POLL_S = 0.01
REST_S_MAX = 60.0
# An event loop runs tasks above these frames. What stands below them started the loop, and called none of the tasks.
# The writer of the database looks at its files several times a second, also when nobody asks for anything.
_PERIODIC = {("world.sqlite.database", "_Writer._watch"), ("world.sqlite.database", "_gather")}
_LOOPS = tuple(str(Path("asyncio", name)) for name in ("runners.py", "base_events.py", "events.py"))


class Recorder:
    """The functions of the package that started or went on, in order.

    A function that started comes with its stack. Each element is the module and the qualified name of a function. What
    a task of the event loop does that ran before the recording is left out; threads of a pool all run before.
    """

    def __init__(self, root: Path) -> None:
        self._root = f"{root}{os.sep}"
        self._modules: dict[CodeType, tuple[str, int] | None] = {}
        self._recording = False
        self._records: list[dict[str, Any]] = []
        self._outermost: dict[int, FrameType] = {}  # by id, which a frame keeps while it is held here
        self._newest = time.monotonic()

    def install(self) -> None:
        """Watches this thread and every thread that starts later."""
        threading.setprofile(self._watch)
        sys.setprofile(self._watch)

    def record(self) -> None:
        self._records = []
        self._outermost = {}
        self._newest = time.monotonic()
        self._recording = True

    def end(self, quiet_s: float) -> list[dict[str, Any]] | None:
        """What was recorded; None when the server did not come to rest."""
        asked = time.monotonic()
        while (now := time.monotonic()) - self._newest < quiet_s and now - asked < REST_S_MAX:
            time.sleep(POLL_S)
        self._recording = False
        self._outermost = {}
        if now - self._newest < quiet_s:
            newest = next(record["stack"] for record in reversed(self._records) if "stack" in record)
            print("still running:", newest, file=sys.stderr, flush=True)
            return None
        return self._records

    def _watch(self, frame: FrameType, event: str, _argument: object) -> None:
        if not self._recording or event != "call":
            return
        here = self._module(frame.f_code)
        if here is None:
            return
        module, start = here
        begins = frame.f_lasti == start  # otherwise a coroutine or generator goes on after it waited
        stack, outermost = self._stack(frame)
        if begins and outermost is frame:
            self._outermost[id(frame)] = frame
        worker = id(outermost) not in self._outermost and threading.get_ident() == threading.main_thread().ident
        if worker or not _PERIODIC.isdisjoint(stack) or any(function == "<module>" for _, function in stack):
            return  # a task that ran before, a periodic check, or an import
        if not begins:
            self._records.append({"module": module})
            return
        self._newest = time.monotonic()
        self._records.append({"module": module, "stack": stack})

    def _stack(self, frame: FrameType) -> tuple[list[tuple[str, str]], FrameType]:
        """The functions of the package on the stack, the newest first, down to the event loop, and the last frame."""
        found: list[tuple[str, str]] = []
        outermost, below = frame, frame
        while below is not None and not below.f_code.co_filename.endswith(_LOOPS):
            here = self._module(below.f_code)
            if here is not None:
                found.append((here[0], below.f_code.co_qualname))
                outermost = below
            below = below.f_back
        return found, outermost

    def _module(self, code: CodeType) -> tuple[str, int] | None:
        """The module of a function of the package and the offset at which the function starts; None for others."""
        if code not in self._modules:
            found = None
            if code.co_filename.startswith(self._root):
                name = code.co_filename.removeprefix(self._root).removesuffix(".py").replace(os.sep, ".")
                found = name.removesuffix(".__init__"), _start(code)
            self._modules[code] = found
        return self._modules[code]


def _start(code: CodeType) -> int:
    """The offset of the first RESUME; those with another argument stand behind a `yield` or an `await`."""
    return next(each.offset for each in dis.get_instructions(code) if each.opname == "RESUME")


def _obey(recorder: Recorder, answers: TextIO) -> None:
    sys.setprofile(None)  # for this thread
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "record":
            recorder.record()
            found = None
        else:
            found = recorder.end(float(arguments[0]))
        print(json.dumps(found), file=answers, flush=True)


def main() -> None:
    arguments = sys.argv[1:]
    spec = find_spec("kelpie")
    assert spec is not None and spec.submodule_search_locations is not None, "kelpie is not installed"
    recorder = Recorder(Path(spec.submodule_search_locations[0]))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the server prints must not mix with the answers
    threading.Thread(target=_obey, args=(recorder, answers), daemon=True).start()
    recorder.install()
    if arguments[:1] == ["--record"]:
        del arguments[0]
        recorder.record()
    sys.argv[1:] = arguments
    (command,) = entry_points(group="console_scripts", name="kelpie")
    command.load()()


if __name__ == "__main__":
    main()
