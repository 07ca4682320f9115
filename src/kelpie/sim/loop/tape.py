"""Record of a run: the tape of picks, which replays a run, and the trace, whose hash shows if two runs are the same.

A trace holds only what is the same in every process: labels, virtual times, sequence numbers. Never an address, never
`hash()`.
"""

import hashlib
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from struct import Struct

from kelpie.sim.loop.errors import TapeDiverged
from kelpie.sim.loop.schedules import Labelled

NOTES_MAX = 4000
_TIME = Struct("<d")


class Tape:
    """The picks of a run, in order; only moments with a choice are on it."""

    def __init__(self, picks: Iterable[int] = ()) -> None:
        self.picks = array("L", picks)

    def __len__(self) -> int:
        return len(self.picks)

    def record(self, index: int) -> None:
        self.picks.append(index)

    def prefix(self, length: int) -> "Tape":
        return Tape(self.picks[:length])

    def text(self) -> str:
        """One line that `Tape.parse` reads back; runs of zeros are counted."""
        parts: list[str] = []
        zeros = 0
        for pick in (*self.picks, 1):
            if pick == 0:
                zeros += 1
                continue
            if zeros:
                parts.append(f"0x{zeros}")
                zeros = 0
            parts.append(str(pick))
        return ",".join(parts[:-1])

    @classmethod
    def parse(cls, text: str) -> "Tape":
        """The tape of a line. Raises ValueError for another text."""
        picks: list[int] = []
        for part in filter(None, text.split(",")):
            if part.startswith("0x"):
                picks.extend([0] * int(part[2:]))
            else:
                picks.append(int(part))
        return cls(picks)


class Replay:
    """A policy that replays a tape. A loose one goes on in FIFO order where the tape does not fit, for shrinking."""

    name = "replay"

    def __init__(self, tape: Tape, *, strict: bool = True) -> None:
        self._picks = tape.picks
        self._at = 0
        self._strict = strict

    def pick(self, ready: Sequence[Labelled]) -> int:
        """Raises TapeDiverged when a strict tape has no such pick."""
        if self._at >= len(self._picks):
            if self._strict:
                raise TapeDiverged(f"the tape ended after {self._at} picks and the run goes on")
            return 0
        index = self._picks[self._at]
        self._at += 1
        if index < len(ready):
            return index
        if self._strict:
            raise TapeDiverged(f"pick {self._at} of the tape is {index}, but only {len(ready)} callbacks are ready")
        return 0


class Trace:
    """Hashes every event, and keeps the last noteworthy ones as text for the report."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self.events = 0
        self.notes: deque[str] = deque(maxlen=NOTES_MAX)

    def ran(self, label: str, now: float) -> None:
        """Records that a callback was run."""
        self.events += 1
        self._hash.update(label.encode())
        self._hash.update(_TIME.pack(now))

    def note(self, now: float, text: str) -> None:
        """Records an event worth reading: a fault, a commit, a packet."""
        self.events += 1
        line = f"{now:.6f} {text}"
        self._hash.update(line.encode())
        self.notes.append(line)

    def digest(self) -> str:
        return self._hash.hexdigest()
