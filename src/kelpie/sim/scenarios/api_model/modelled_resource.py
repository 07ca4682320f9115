"""A resource of one organization, and the model of it: the state that the API must show after every change.

One client changes a resource, one request after the other. The answer of a request decides the next state; where the
server says that it does not know, or does not answer, the state that can be read decides, and it must be the one before
or the one after. A run without faults has no such doubts.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from datetime import datetime
from typing import Any

from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.sim.loop.errors import Broken
from kelpie.sim.ports.clock import START
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.fixtures.clients import TRIES_MAX, ScenarioClient
from kelpie.sim.scenarios.records.archive_records import Fate, fate_of

PAGE = 2  # small, so that most lists have several
SLEEPS_MAX = 5
_NOT_NOW = (429, 503)


class ModelledResource(ABC):
    """One kind of resource. A subclass says which changes there are, and how the state is read."""

    def __init__(self, machine: Machine, client: ScenarioClient) -> None:
        self.machine = machine
        self.client = client
        self.state: Any = {}

    @abstractmethod
    async def act(self) -> None:
        """One random change."""

    @abstractmethod
    async def read(self) -> Any:
        """The state as the API shows it, in the form of the model."""

    @property
    def now(self) -> Micros:
        """The time by the clock of the server, which no fault of these scenarios changes."""
        return START + int((self.machine.loop.time() + self.machine.world.ahead_s) * MICROS_PER_SECOND)

    def current(self, state: Any) -> Any:
        """A state of the model without what has expired since."""
        return state

    async def check(self) -> None:
        """Raises Broken where the API does not show the state of the model."""
        seen = self.current(await self.read())
        self.state = self.current(self.state)
        if seen != self.state:
            told = f"{type(self).__name__} of {self.client.name}: {_difference(self.state, seen)}"
            raise Broken("the API shows what was done", told)

    async def change(
        self, method: str, path: str, body: Any, after: Any = None, *, refused: int | None = None
    ) -> dict[str, Any] | None:
        """Sends one change and returns its answer, None where it was not made or nobody knows.

        `after` is the state that it leads to, or a function of the answer that returns it. One that must be `refused`
        with this status leads to nothing.
        """
        response = await self.client.ask(method, path, body)
        fate = fate_of(response)
        told = f"{method} {path} {str(body)[:300]}"
        if refused is not None and response is not None and response.status == refused:
            return None
        if fate is Fate.unknown or (response is not None and response.status in _NOT_NOW):
            self.may_fail(told, None if response is None else response.body)
            await self._find_out(None if refused or fate is Fate.refused else after)
            return None
        assert response is not None
        if fate is Fate.refused:
            raise Broken("a sound request is accepted", f"{told}: {response.status} {response.body!r}")
        answer = response.json() if response.body else None
        if refused is not None:
            raise Broken("a wrong request is refused", f"{told} was not refused with {refused}, but got {answer}")
        self.state = after(answer) if callable(after) else deepcopy(after)
        return answer

    def may_fail(self, told: str, why: object) -> None:
        if not self.machine.faults.firings:
            raise Broken("nothing fails without a fault", f"{told}: {why!r}")

    async def _find_out(self, after: Any) -> None:
        """Reads what became of a change; where its effect depends on the answer, the state is what can be read."""
        if callable(after):
            self.state = await self.read()
            return
        seen = self.current(await self.read())
        after, self.state = self.current(after), self.current(self.state)
        if seen != self.state and (after is None or seen != after):
            told = f"{type(self).__name__}: {_difference(self.state, seen)} and {_difference(after, seen)}"
            raise Broken("a change in doubt is made or not", told)
        self.state = seen

    async def maybe(self, path: str) -> Any:
        """Reads something that need not be there: None for a 404."""
        for _ in range(TRIES_MAX):
            response = await self.client.ask("GET", path)
            if response is not None and response.status == 200:
                return response.json()
            if response is not None and response.status == 404:
                return None
            if response is not None and response.status < 500 and response.status not in _NOT_NOW:
                raise Broken("a sound request is accepted", f"GET {path}: {response.status} {response.body!r}")
            self.may_fail(f"GET {path}", None if response is None else response.body)
            await self.client.pause()
        raise Broken("the server recovers", f"GET {path} failed {TRIES_MAX} times")

    async def pages(
        self,
        path: str,
        query: str,
        of: Callable[[Any], str] = lambda one: one["id"],
        stays: Callable[[Any], bool] = lambda one: True,
    ) -> list[Any]:
        """A whole list by small pages; both directions must agree, but for what has ended meanwhile and does not
        stay."""
        lists = [await self._one_way(path, query, order, of, stays) for order in ("asc", "desc")]
        forth, back = ([one for one in found if stays(one)] for found in lists)
        if [of(one) for one in forth] != [of(one) for one in reversed(back)]:
            raise Broken("a list is the same in both directions", f"{path} {query}: {lists}")
        return forth

    async def _one_way(
        self, path: str, query: str, order: str, of: Callable[[Any], str], stays: Callable[[Any], bool]
    ) -> list[Any]:
        found: list[Any] = []
        for _ in range(TRIES_MAX):
            cursor = f"&after={of(found[-1])}" if found else ""
            page = await self.maybe(f"{path}?limit={PAGE}&order={order}{query}{cursor}")
            if page is None and found and not stays(found[-1]):  # a cursor that has ended meanwhile
                found = []
                continue
            if page is None:
                raise Broken("a sound request is accepted", f"{path}{query}{cursor} does not exist")
            found += page
            if len(page) > PAGE or len({of(one) for one in found}) != len(found):
                raise Broken("the pages of a list are the list", f"{path}{query}{cursor}: {page}")
            if len(page) < PAGE:
                return found
        raise Broken("a list ends", f"{path} {query} has more than {TRIES_MAX} pages")

    async def sleep_until(self, moment: Micros) -> None:
        """Waits for a moment of the server's clock."""
        for _ in range(SLEEPS_MAX):  # the first may end a microsecond too early
            await asyncio.sleep(max(moment - self.now, 0) / MICROS_PER_SECOND)


def _difference(wanted: Any, seen: Any) -> str:
    if isinstance(wanted, dict) and isinstance(seen, dict):
        keys = [key for key in {**wanted, **seen} if wanted.get(key) != seen.get(key)]
        return "; ".join(f"{key} is {seen.get(key)!r} and must be {wanted.get(key)!r}" for key in keys[:3])
    return f"is {seen!r} and must be {wanted!r}"


def micros(text: str | None) -> Micros | None:
    """A time of the API by the clock of the server."""
    return None if text is None else round(datetime.fromisoformat(text).timestamp() * MICROS_PER_SECOND)
