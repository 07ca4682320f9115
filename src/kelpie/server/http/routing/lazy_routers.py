"""Routers that are loaded when they are first needed: most servers use few of their resources.

A router is loaded before the first request whose path begins as one of its routes does. So a request finds the same
route, and an unknown one the same refusal, as if all had been loaded, and they keep the order in which they are
declared.
"""

from collections.abc import Callable, Iterator, Sequence

from fastapi import APIRouter
from starlette.routing import BaseRoute


class LazyRouter:
    """A router, and the beginnings of the paths of all its routes; `*` stands for any one segment."""

    def __init__(self, load: Callable[[], APIRouter], *paths: str) -> None:
        self.load = load
        self.paths = paths


class _Place:
    """What is declared for a beginning of a path: routers that are not loaded yet, and longer beginnings."""

    __slots__ = ("following", "waiting")

    def __init__(self) -> None:
        self.following: dict[str, _Place] = {}
        self.waiting: list[int] = []

    def after(self, segment: str) -> Iterator["_Place"]:
        for name in (segment, "*"):
            if (place := self.following.get(name)) is not None:
                yield place


class LazyRouters:
    """The routers of one application, in whose list of routes they stand before all others."""

    def __init__(self, declared: Sequence[LazyRouter], routes: list[BaseRoute]) -> None:
        self._declared = declared
        self._routes = routes
        self._sizes = [0] * len(declared)  # how many routes of each router are in the list
        self._waiting = set(range(len(declared)))
        self._root = _Place()
        for number, router in enumerate(declared):
            for path in router.paths:
                place = self._root
                for segment in path.split("/")[1:]:
                    place = place.following.setdefault(segment, _Place())
                place.waiting.append(number)

    @property
    def loaded(self) -> int:
        """How many routers are loaded. An index of the routes is stale when this has grown."""
        return len(self._declared) - len(self._waiting)

    def load_for(self, path: str) -> None:
        """Loads the routers that may have a route for this path."""
        passed: list[_Place] = []
        places = [self._root]
        for segment in path.split("/")[1:]:
            places = [place for before in places for place in before.after(segment)]
            passed.extend(place for place in places if place.waiting)
        missing = {number for place in passed for number in place.waiting} & self._waiting
        for number in sorted(missing):
            self._load(number)
        for place in passed:
            place.waiting.clear()

    def load_all(self) -> None:
        """Loads every router: for the description of the API."""
        for number in sorted(self._waiting):
            self._load(number)

    def _load(self, number: int) -> None:
        routes = self._declared[number].load().routes
        at = sum(self._sizes[:number])
        self._routes[at:at] = routes  # including them would analyse every route a second time
        self._sizes[number] = len(routes)
        self._waiting.discard(number)
