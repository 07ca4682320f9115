"""Look-ups of credentials and users: what is remembered of them, and who waits while an address guesses."""

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kelpie.accounts import authentication, credentials
from kelpie.accounts.authentication import SUSPECT_LOOK_UPS_MAX, Authenticator
from kelpie.accounts.login_failures import FAILURES_MAX
from kelpie.core.access.callers import User
from kelpie.core.access.credential_scopes import OPERATOR
from kelpie.core.errors import Overloaded, Unauthorized
from kelpie.core.ids import KeyId, OrganizationId, UserId
from kelpie.core.settings.settings import Settings
from kelpie.world.clock import SystemClock
from kelpie.world.ids import SeededIds

GUESSER, OTHER = "10.0.0.1", "10.0.0.2"


class Rows:
    """A world whose rows are read when `gate` is set; `proved` is what a credential is proved to be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ids = SeededIds(random.Random(1))
        self.clock = SystemClock()
        self.database = SimpleNamespace(read=self._read)
        self.gate = asyncio.Event()
        self.gate.set()
        self.reading = self.reads = 0
        self.proved: Any = None
        self.user: User | None = None
        monkeypatch.setattr(authentication, "_proved", lambda *_: self.proved)
        monkeypatch.setattr(authentication.accounts, "find_user", lambda *_: self.user)

    def authenticator(self) -> Authenticator:
        return Authenticator(self, Settings(password="open sesame"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    def key(self) -> str:
        return str(credentials.fresh(KeyId, self.ids))

    async def _read(self, fn: Callable[[Any], Any]) -> Any:
        self.reading += 1
        self.reads += 1
        try:
            await self.gate.wait()
            return fn(None)
        finally:
            self.reading -= 1


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_an_address_that_guesses_keeps_nobody_else_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(monkeypatch)
    door = rows.authenticator()
    for number in range(FAILURES_MAX + 2):
        with pytest.raises(Unauthorized if number < FAILURES_MAX else Overloaded):
            await door.admit(rows.key(), GUESSER)
    rows.gate.clear()
    guesses = [asyncio.create_task(door.admit(rows.key(), GUESSER)) for _ in range(8)]
    await settled()
    assert rows.reading == SUSPECT_LOOK_UPS_MAX
    others = [asyncio.create_task(door.admit(rows.key(), OTHER)) for _ in range(3)]
    await settled()
    assert rows.reading == SUSPECT_LOOK_UPS_MAX + 3, "who guessed nothing is looked up at once"
    guesses[0].cancel()
    await settled()
    assert rows.reading == SUSPECT_LOOK_UPS_MAX + 3, "the next one has its place"
    rows.gate.set()
    ended = await asyncio.gather(*guesses[1:], *others, return_exceptions=True)
    assert [type(each) for each in ended] == [Overloaded] * 7 + [Unauthorized] * 3
    rows.proved = (OPERATOR, None)
    assert await door.admit(rows.key(), GUESSER) == OPERATOR, "a right key is never refused"


async def test_what_is_known_is_not_looked_up_until_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(monkeypatch)
    door, wrong, right = rows.authenticator(), rows.key(), rows.key()
    for _ in range(2):
        with pytest.raises(Unauthorized):
            await door.admit(wrong, OTHER)
    assert rows.reads == 1
    rows.proved = (OPERATOR, None)
    for _ in range(2):
        assert await door.admit(right, OTHER) == OPERATOR
    assert rows.reads == 2
    door.forget()
    assert await door.admit(wrong, OTHER) == OPERATOR
    rows.proved = None
    door.forget()
    with pytest.raises(Unauthorized):
        await door.admit(right, OTHER)


async def test_a_user_who_has_moved_acts_for_the_new_organization_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(monkeypatch)
    door, user_id = rows.authenticator(), UserId("user-00000000-0000-4000-8000-000000000005")
    north, south = (OrganizationId(f"org-00000000-0000-4000-8000-00000000000{number}") for number in (5, 6))
    rows.user = User(user_id, north, "ann", 0, 0)
    for _ in range(2):
        assert (await door.caller(OPERATOR, user_id)).organization_id == north
    assert rows.reads == 1
    rows.user = User(user_id, south, "ann", 0, 0)
    door.forget()
    assert (await door.caller(OPERATOR, user_id)).organization_id == south
    rows.user = None
    door.forget()
    assert (await door.caller(OPERATOR, user_id)).operator
