"""What was looked up lately is bounded, and nothing old is ever kept."""

import asyncio

import pytest

from kelpie.accounts.cache import TtlCache


async def test_an_answer_is_kept_and_a_missing_one_is_not() -> None:
    known: TtlCache[str, int] = TtlCache()
    asked: list[str] = []

    async def look_up(key: str, answer: int | None) -> int | None:
        asked.append(key)
        return answer

    for _ in range(2):
        assert await known.find("a", lambda: look_up("a", 1)) == 1
        assert await known.find("b", lambda: look_up("b", None)) is None
    assert asked == ["a", "b", "b"]


async def test_an_answer_from_before_a_change_is_not_kept() -> None:
    known: TtlCache[str, int] = TtlCache()
    go = asyncio.Event()

    async def slow() -> int:
        await go.wait()
        return 1

    asking = asyncio.create_task(known.find("a", slow))
    await asyncio.sleep(0)
    known.forget()
    go.set()
    assert await asking == 1
    assert known.get("a") is None


async def test_it_is_bounded_in_number_and_in_age() -> None:
    known: TtlCache[int, int] = TtlCache(kept_max=3)

    async def itself(number: int) -> int:
        return number

    for number in range(10):
        await known.find(number, lambda number=number: itself(number))
    assert len(known) == 3 and known.get(9) == 9 and known.get(0) is None
    brief: TtlCache[int, int] = TtlCache(kept_s=0.0)
    await brief.find(1, lambda: itself(1))
    assert brief.get(1) is None


async def test_the_answer_that_was_not_used_for_longest_makes_room() -> None:
    known: TtlCache[str, int] = TtlCache(kept_max=2)
    known.keep("a", 1)
    known.keep("b", 2)
    assert known.get("a") == 1
    known.keep("c", 3)
    assert (known.get("a"), known.get("b"), known.get("c")) == (1, None, 3)


async def test_an_answer_is_kept_for_its_time_and_not_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s[0])
    known: TtlCache[str, int] = TtlCache(kept_s=10.0)
    known.keep("a", 1)
    now_s[0] = 109.9
    assert known.get("a") == 1, "using it does not make it younger"
    now_s[0] = 110.0
    assert known.get("a") is None and len(known) == 0
    known.keep("a", 2)
    known.keep("b", 3)
    known.forget()
    assert known.get("a") is None and known.get("b") is None
