"""The server's password: right ones are known again, wrong ones cost a slow hash each, one at a time."""

import asyncio

import pytest

from kelpie.accounts import password as module
from kelpie.accounts.password import GUESSES_WAITING_MAX, Password, generate, hashed
from kelpie.core.errors import ConfigurationError, Overloaded
from kelpie.world.ids import RandomIds

IDS = RandomIds()


async def test_a_password_that_was_set_matches_itself_alone() -> None:
    password = Password(IDS, plain="correct horse")
    assert await password.matches("correct horse")
    for wrong in ("", "correct", "correct horse ", "Correct horse", "x" * 5000):
        assert not await password.matches(wrong)


async def test_a_password_that_was_made_is_known_by_its_hash() -> None:
    made = generate(IDS)
    kept = hashed(made, IDS)
    assert made not in kept and made.replace("-", "") not in kept
    assert kept != hashed(made, IDS), "every hash has a salt of its own"
    password = Password(IDS, kept=kept)
    assert not password.is_known(made)
    assert not await password.matches("wrong")
    assert await password.matches(made)
    assert password.is_known(made) and not password.is_known("wrong")


async def test_the_slow_hash_is_not_worked_out_for_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    made = generate(IDS)
    password = Password(IDS, kept=hashed(made, IDS))
    hashes = 0
    slow = module.scrypt_aside

    async def counted(text: str, salt: bytes) -> bytes:
        nonlocal hashes
        hashes += 1
        return await slow(text, salt)

    monkeypatch.setattr(module, "scrypt_aside", counted)
    assert all(await asyncio.gather(*(password.matches(made) for _ in range(20))))
    assert all([await password.matches(made) for _ in range(20)])
    assert hashes == 1


async def test_guesses_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    password = Password(IDS, kept=hashed("x", IDS))
    go = asyncio.Event()

    async def stuck(text: str, salt: bytes) -> bytes:
        await go.wait()
        return b""

    monkeypatch.setattr(module, "scrypt_aside", stuck)
    guesses = [asyncio.create_task(password.matches(f"guess {number}")) for number in range(GUESSES_WAITING_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await password.matches("one more")
    go.set()
    assert not any(await asyncio.gather(*guesses))
    assert not await password.matches("one more"), "there is room again"


async def test_without_a_password_nothing_matches() -> None:
    assert not await Password(IDS).matches("")


@pytest.mark.parametrize("plain", ["", "x" * 1025])
def test_a_password_that_cannot_be_one_is_refused(plain: str) -> None:
    with pytest.raises(ConfigurationError, match="KELPIE_SERVER_PASSWORD"):
        Password(IDS, plain=plain)


@pytest.mark.parametrize("kept", ["", "scrypt", "scrypt$00$", "plain$00$00", "scrypt$zz$zz", "scrypt$00$00$00"])
def test_a_damaged_hash_is_told_with_the_remedy(kept: str) -> None:
    with pytest.raises(ConfigurationError, match="delete the file"):
        Password(IDS, kept=kept)
