"""Edits that people make from outside, and the promise about them: a prompt is never older than the last one that was
acknowledged before its step began. Each thing that is edited has one editor, so its edits have an order.
"""

from collections import defaultdict
from dataclasses import dataclass

from kelpie.sim.errors import Broken
from kelpie.sim.loop import SimLoop
from kelpie.sim.scenarios.people import Person

TRIES_MAX = 100
NEVER = float("inf")
_LATER = (409, 429)  # and whatever is the server's own fault


@dataclass(slots=True)
class Edit:
    """What is to be seen after it; `acknowledged_s` is when its editor could be sure of that."""

    value: str | None
    called_s: float
    acknowledged_s: float = NEVER
    astray: bool = False  # an attempt was given up unanswered, and may reach the server at any later time


class Edits:
    """All edits of a run, by what they change."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._by_key: dict[str, list[Edit]] = defaultdict(list)

    def began(self, key: str, value: str | None) -> None:
        """How the thing was made."""
        self._by_key[key].append(Edit(value, self._loop.time(), self._loop.time()))

    def call(self, key: str, value: str | None) -> Edit:
        """Begins an edit; the editor has finished with the one before."""
        edit = Edit(value, self._loop.time())
        self._by_key[key].append(edit)
        return edit

    async def make(
        self, person: Person, edit: Edit, method: str, path: str, body: object = None, *, gone: int | None = None
    ) -> None:
        """Asks until it is done. `gone` is the answer to a repeat that finds it done already. Raises Broken."""
        repeated = False
        for _ in range(TRIES_MAX):
            response = await person.ask(method, path, body)
            status = None if response is None else response.status
            edit.astray = edit.astray or response is None
            if status == 200 or (repeated and status is not None and status == gone):
                edit.acknowledged_s = min(edit.acknowledged_s, self._loop.time())
                return
            if status is not None and status < 500 and status not in _LATER:
                raise Broken("a sound request is accepted", f"{method} {path}: {status}")
            repeated = True
            await person.pause(0.2)
        raise Broken("the server recovers", f"{method} {path} failed {TRIES_MAX} times")

    def check(self, key: str, shown: str | None, began_s: float, seen_s: float) -> None:
        """Whether a prompt could hold this value. Raises Broken."""
        edits = self._by_key[key]
        last = max(number for number, edit in enumerate(edits) if edit.acknowledged_s <= began_s)
        could = {edit.value for at, edit in enumerate(edits) if edit.called_s <= seen_s and (at >= last or edit.astray)}
        if shown not in could:
            told = f"{key} was {shown!r} in a step that began at {began_s:.3f} s, after {edits[last]}"
            raise Broken("a prompt is not older than the last edit", told)
