"""Sessions in browsers: bounded in number, swept up, and never opened for a key that has been revoked."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kelpie.accounts import sessions as module
from kelpie.accounts.sessions import LIFE_S, Sessions
from kelpie.app import Kelpie
from kelpie.core.access.credential_scopes import NewKey, Scope
from kelpie.core.errors import NotFound, Unauthorized
from kelpie.core.time import MICROS_PER_SECOND
from tests.server.rig import open_rig
from tests.server.test_keys_api import MovableClock

PASSWORD, HERE = "open sesame", "10.0.0.1"


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
async def kelpie(tmp_path: Path, clock: MovableClock) -> AsyncIterator[Kelpie]:
    async with open_rig(tmp_path, password=PASSWORD, clock=clock) as (opened, _):
        yield opened


async def works(kelpie: Kelpie, text: str) -> bool:
    kelpie.runtime.authenticator.forget()
    try:
        await kelpie.runtime.authenticator.admit(text, HERE)
    except Unauthorized:
        return False
    return True


async def test_the_oldest_session_makes_room_and_what_is_over_is_swept_up(
    kelpie: Kelpie, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SESSIONS_MAX", 2)
    sessions = Sessions(kelpie.world, kelpie.runtime.authenticator)
    texts = list[str]()
    for _ in range(3):
        clock.ahead += MICROS_PER_SECOND
        texts.append((await sessions.open(PASSWORD, HERE))[1])
    assert [await works(kelpie, text) for text in texts] == [False, True, True]
    await sessions.close(texts[2])
    assert [await works(kelpie, text) for text in texts] == [False, True, False]
    clock.ahead += LIFE_S * MICROS_PER_SECOND
    assert not await works(kelpie, texts[1])
    await sessions.open(PASSWORD, HERE)
    rows = await kelpie.world.database.read(lambda tx: tx.exec_driver_sql("SELECT count(*) FROM sessions").scalar_one())
    assert rows == 1


async def test_no_session_is_opened_for_a_key_that_is_revoked_at_that_moment(kelpie: Kelpie) -> None:
    keys, authenticator = kelpie.api().api_keys, kelpie.runtime.authenticator
    key, text = await keys.create(NewKey("k", (Scope.read,)))
    admit = authenticator.admit

    async def admitted_and_revoked(given: str | None, address: str) -> object:
        found = await admit(given, address)
        await keys.revoke(key.id)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(authenticator, "admit", admitted_and_revoked)
        with pytest.raises(NotFound):
            await Sessions(kelpie.world, authenticator).open(text, HERE)
