"""Cut points of a history: the messages that leave the context, and those that stay in it.

A cut never parts a call from its result, never takes a call without a result, and while a turn runs
never takes its input. Pure functions over rows without the system message; weights are bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from kelpie.agent.prompt.wellformed_history import weight
from kelpie.core.conversations.messages import Message, Role

_STEP = 0.1
_ANSWERS = frozenset({Role.assistant, Role.approval})


@dataclass(frozen=True, slots=True)
class Cut:
    evicted: tuple[Message, ...]
    kept: tuple[Message, ...]

    @property
    def has_new_content(self) -> bool:
        """True if anything leaves that an earlier summary does not contain."""
        return any(message.role is not Role.summary for message in self.evicted)


class Cuttable:
    """A history with the places where it may be cut. `pinned` means that a turn runs in it."""

    def __init__(self, said: Sequence[Message], *, pinned: bool) -> None:
        self._said = said
        self._places = _places(said)
        self._pinned = pinned or self._places[-1] != len(said)  # what waits for an answer was asked for
        self._asked = _asked(said) if self._pinned else []
        self._before = [0, *accumulate(map(weight, said))]

    def sliding(self, share: float, room: int) -> Cut | None:
        """The smallest share above the given one, in tenths, whose rest fits and is more than one message; or None."""
        total, tries = len(self._said) + 1, 0  # the system message counts
        while (portion := share + (tries := tries + 1) * _STEP) < 1:
            at = self._answer_up_to(min(round(portion * total) - 1, len(self._said) - 2))
            if at is not None and self._kept_weight(at) <= room and (cut := self._at(at)).has_new_content:
                return cut
        return None

    def whole(self, room: int) -> Cut | None:
        """All but open calls; while a turn runs, all but that turn or, if it does not fit, but its newest step."""
        at = self._places[-1]
        if self._pinned:
            newest = self._answer_up_to(len(self._said) - 1)
            at = at if newest is None else newest
            begun = max((place for place in self._places if self._asked and place <= self._asked[0]), default=None)
            if begun is not None and self._kept_weight(begun) <= room:
                at = begun
        cut = self._at(at)
        return cut if cut.has_new_content else None

    def newest(self, room: int) -> Cut | None:
        """The cut that keeps as much of the end as fits; when nothing fits, as little as may stay."""
        fitting = next((at for at in self._places if self._kept_weight(at) <= room), None)
        cut = self._at(fitting) if fitting is not None else self.whole(0)
        return cut if cut is not None and cut.has_new_content else None

    def _answer_up_to(self, last: int) -> int | None:
        places = (at for at in reversed(self._places) if 0 < at <= last and at < len(self._said))
        return next((at for at in places if self._said[at].role in _ANSWERS), None)

    def _kept_weight(self, at: int) -> int:
        asked = sum(weight(self._said[i]) for i in self._asked if i < at)
        return self._before[-1] - self._before[at] + asked

    def _at(self, at: int) -> Cut:
        said, stays = self._said, [i for i in self._asked if i < at]
        evicted = tuple(message for i, message in enumerate(said[:at]) if i not in stays)
        return Cut(evicted, (*(said[i] for i in stays), *said[at:]))


def _places(said: Sequence[Message]) -> list[int]:
    """Indexes before which every call has its result: 0 first, the end last if it qualifies."""
    places, waiting = list[int](), set[str]()
    for at, message in enumerate(said):
        if message.role is not Role.tool and not waiting:
            places.append(at)
        waiting -= {result.call_id for result in message.tool_returns}
        waiting |= {call.id for call in message.tool_calls}
    return places if waiting else [*places, len(said)]


def _asked(said: Sequence[Message]) -> list[int]:
    """Indexes of the newest input. Input carries an id of its client; rows that the server writes do not."""
    last = next((i for i in range(len(said) - 1, -1, -1) if _is_input(said[i])), None)
    if last is None:
        return []
    run = said[last].run_id
    return [i for i, message in enumerate(said) if _is_input(message) and message.run_id == run]


def _is_input(message: Message) -> bool:
    return message.role in (Role.user, Role.system) and message.otid is not None
