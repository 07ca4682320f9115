"""Lines of the standard input to a function, and its answers to the standard output: several lines at once.

A slow answer holds up no other. Lines are bounded in size, and so is the number that are worked on: while it is
reached, no further line is read. `kelpie mcp serve` runs on it.
"""

import contextlib
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore, Lock
from typing import BinaryIO

LINE_BYTES_MAX = 16 * 1024 * 1024
AT_ONCE = 16

Answer = Callable[[bytes], Iterable[bytes]]  # of one line; each item becomes a line


class LineBridge:
    """One standard input and output."""

    def __init__(self, answer: Answer, source: BinaryIO | None = None, target: BinaryIO | None = None) -> None:
        self._answer = answer
        self._source = source or sys.stdin.buffer
        self._target = target or sys.stdout.buffer
        self._places = BoundedSemaphore(AT_ONCE)
        self._writing = Lock()
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Works until the input ends, and then until every line has its answer. Raises ValueError for a line that is
        too long, and what the function raises."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while line := self._source.readline(LINE_BYTES_MAX + 1):
                if len(line) > LINE_BYTES_MAX:
                    raise ValueError(f"a line of the input has more than {LINE_BYTES_MAX} bytes")
                if line.strip():
                    self._places.acquire()
                    pool.submit(self._work, line.strip()).add_done_callback(self._note)
                if self._failure is not None:
                    break
        if self._failure is not None:
            raise self._failure

    def _note(self, done: Future[None]) -> None:
        self._failure = self._failure or done.exception()

    def _work(self, line: bytes) -> None:
        try:
            with contextlib.suppress(BrokenPipeError):  # nobody reads the answers any more
                for answer in self._answer(line):
                    self._write(answer)
        finally:
            self._places.release()

    def _write(self, answer: bytes) -> None:
        with self._writing:
            self._target.write(answer + b"\n")
            self._target.flush()
