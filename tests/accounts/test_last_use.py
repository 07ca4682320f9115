"""Last uses of keys: written to the minute, a few seconds later, and never lost on the way."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kelpie.accounts import last_use
from kelpie.accounts.last_use import EVERY, GATHER_S, LastUse
from kelpie.core.errors import StorageError
from kelpie.core.ids import KeyId
from kelpie.core.time import MICROS_PER_SECOND
from tests.llm.test_retry import in_virtual_time

ONE, TWO, THREE = (KeyId(f"key-{number}") for number in (1, 2, 3))


class Keys:
    """A world whose clock is set by hand, and what was written of its keys; a write takes `takes_s`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000 * EVERY
        self.written: list[dict[KeyId, int]] = []
        self.takes_s = 0.0
        self.fails = False
        self.clock = SimpleNamespace(now=lambda: self.now)
        self.database = SimpleNamespace(transact=self._transact)
        monkeypatch.setattr(last_use.api_keys, "record_use", lambda _tx, times: self.written.append(dict(times)))

    async def _transact(self, fn: Callable[[Any], Any]) -> None:
        await asyncio.sleep(self.takes_s)
        if self.fails:
            raise StorageError("The disk is full.")
        fn(None)

    def uses(self) -> LastUse:
        return LastUse(self)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_uses_of_a_moment_are_written_together_and_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        keys = Keys(monkeypatch)
        uses, start = keys.uses(), keys.now
        for key in (ONE, TWO, ONE):
            uses.note(key)
        await asyncio.sleep(GATHER_S * 1.5)
        assert keys.written == [{ONE: start, TWO: start}]
        keys.now = start + EVERY - 1
        uses.note(ONE)
        await asyncio.sleep(5)
        assert len(keys.written) == 1
        keys.now = start + EVERY
        uses.note(ONE)
        await asyncio.sleep(5)
        keys.now = start - 10 * EVERY  # the clock was set back
        uses.note(ONE)
        await asyncio.sleep(5)
        assert keys.written[1:] == [{ONE: start + EVERY}, {ONE: start - 10 * EVERY}]

    in_virtual_time(main)


def test_a_use_that_comes_during_a_write_is_written_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        keys = Keys(monkeypatch)
        keys.takes_s = 10.0
        uses = keys.uses()
        uses.note(ONE)
        await asyncio.sleep(GATHER_S + 5)
        uses.note(TWO)
        await asyncio.sleep(30)
        assert [list(each) for each in keys.written] == [[ONE], [TWO]]

    in_virtual_time(main)


def test_what_waits_is_written_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        keys = Keys(monkeypatch)
        unused, uses = keys.uses(), keys.uses()
        await unused.close()
        assert keys.written == []
        uses.note(ONE)
        await uses.close()
        await uses.close()
        assert [list(each) for each in keys.written] == [[ONE]]
        await asyncio.sleep(5)
        assert len(keys.written) == 1, "nothing goes on after it"

    in_virtual_time(main)


def test_a_use_that_could_not_be_written_is_written_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        keys = Keys(monkeypatch)
        keys.fails = True
        uses = keys.uses()
        uses.note(ONE)
        await asyncio.sleep(5)
        keys.fails = False
        keys.now += MICROS_PER_SECOND
        uses.note(ONE)
        await asyncio.sleep(5)
        assert keys.written == [{ONE: keys.now}]

    in_virtual_time(main)


def test_so_many_keys_are_remembered_and_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_use, "KEYS_MAX", 2)

    async def main() -> None:
        keys = Keys(monkeypatch)
        uses = keys.uses()
        for key in (ONE, TWO, THREE):
            uses.note(key)
        await asyncio.sleep(5)
        assert [list(each) for each in keys.written] == [[ONE, TWO]], "no more than that wait"
        keys.now += EVERY
        uses.note(TWO)
        await asyncio.sleep(5)
        keys.now += EVERY // 2
        uses.note(ONE)  # so that the other one is older
        await asyncio.sleep(5)
        uses.note(THREE)
        await asyncio.sleep(5)
        for key in (ONE, THREE, TWO):
            uses.note(key)
        await asyncio.sleep(5)
        assert [list(each) for each in keys.written[1:]] == [[TWO], [ONE], [THREE], [TWO]]

    in_virtual_time(main)
