"""Passports in use: one for every tool call whose code may call back.

They are held in memory alone, because code never outlives the process that started it, and each is revoked when its
call ends. A passport is valid only on the API socket of the cell it was made for; see `server/edge/cell_listener.py`.
"""

import base64
import hashlib
from collections.abc import Generator
from contextlib import contextmanager

from kelpie.core.access.passports import Passport
from kelpie.core.errors import ToolError
from kelpie.world.clock import Clock
from kelpie.world.ids import Ids

PASSPORTS_MAX = 10_000
PREFIX = "kelpie-passport_"


class Passports:
    """Made once for a server."""

    def __init__(self, ids: Ids, clock: Clock) -> None:
        self._ids = ids
        self._clock = clock
        self._out: dict[bytes, Passport] = {}

    def __len__(self) -> int:
        return len(self._out)

    @contextmanager
    def issued(self, passport: Passport) -> Generator[str]:
        """The text of a passport, valid until the block ends or it expires. Raises ToolError."""
        if len(self._out) >= PASSPORTS_MAX:
            raise ToolError(f"{PASSPORTS_MAX} tools are running already, so this one was not started. Try again later.")
        text = PREFIX + base64.urlsafe_b64encode(self._ids.secret()).rstrip(b"=").decode()
        mark = _mark(text)
        self._out[mark] = passport
        try:
            yield text
        finally:
            del self._out[mark]

    def find(self, text: str) -> Passport | None:
        """The passport of this text, if there is one that has not expired."""
        found = self._out.get(_mark(text))
        return found if found is not None and found.expires_at > self._clock.now() else None


def _mark(text: str) -> bytes:
    """A digest to look up by, so that the time of a lookup reveals nothing about the text."""
    return hashlib.sha256(text.encode()).digest()
