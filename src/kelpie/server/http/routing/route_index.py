"""Index of routes by the segments of their paths: a request finds its route without trying the pattern of every other.

The result is the one that Starlette's router comes to: of all routes that fit the path and the method, the first in the
order in which they were added. A path that fits none, also for its method alone, is left to that router.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.routing import BaseRoute, Route

_NAMED = re.compile(r"\{(\w+)(:path)?\}")

Found = tuple[Route, dict[str, str]]


class _Leaf:
    """A route at the end of its path, with the names of the segments that vary."""

    __slots__ = ("methods", "names", "order", "route")

    def __init__(self, order: int, route: Route, names: tuple[str, ...]) -> None:
        self.order = order
        self.route = route
        self.methods = frozenset(route.methods or ())
        self.names = names


class _Node:
    """What may follow a beginning of a path: a fixed segment, any segment, or any rest."""

    __slots__ = ("any_rest", "any_segment", "fixed", "leaves")

    def __init__(self) -> None:
        self.fixed: dict[str, _Node] = {}
        self.any_segment: _Node | None = None
        self.any_rest: list[_Leaf] = []
        self.leaves: list[_Leaf] = []


class RouteIndex:
    """The routes of one application, up to the first whose path this index does not understand."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._root = _Node()
        for order, route in enumerate(routes):
            if not isinstance(route, Route) or not self._add(order, route):
                break

    def find(self, method: str, path: str) -> Found | None:
        """The route of a request and the parameters in its path; None when the application's own router must say."""
        best: tuple[_Leaf, tuple[str, ...]] | None = None
        segments = path.split("/")
        waiting: list[tuple[_Node, int, tuple[str, ...]]] = [(self._root, 1, ())]
        while waiting:
            node, at, given = waiting.pop()
            ends: list[tuple[_Leaf, tuple[str, ...]]] = []
            if at == len(segments):
                ends = [(leaf, given) for leaf in node.leaves]
            else:
                segment = segments[at]
                if (following := node.fixed.get(segment)) is not None:
                    waiting.append((following, at + 1, given))
                if node.any_segment is not None and segment:
                    waiting.append((node.any_segment, at + 1, (*given, segment)))
                if node.any_rest:
                    rest = (*given, "/".join(segments[at:]))
                    ends = [(leaf, rest) for leaf in node.any_rest]
            for leaf, values in ends:
                if method in leaf.methods and (best is None or leaf.order < best[0].order):
                    best = leaf, values
        return None if best is None else (best[0].route, dict(zip(best[0].names, best[1], strict=True)))

    def _add(self, order: int, route: Route) -> bool:
        """False for a path with a pattern other than a whole segment or the whole rest."""
        first, *segments = route.path.split("/")
        named = [_NAMED.fullmatch(segment) for segment in segments]
        plain = all(match or "{" not in segment for match, segment in zip(named, segments, strict=True))
        if first or not plain or any(match and match[2] for match in named[:-1]):
            return False
        names = tuple(match[1] for match in named if match)
        node = self._root
        for segment, match in zip(segments, named, strict=True):
            if match is None:
                node = node.fixed.setdefault(segment, _Node())
            elif match[2]:
                node.any_rest.append(_Leaf(order, route, names))
                return True
            else:
                node.any_segment = node.any_segment or _Node()
                node = node.any_segment
        node.leaves.append(_Leaf(order, route, names))
        return True


def scope_of(found: Found, router: Any) -> Mapping[str, Any]:
    """What Starlette's router adds to the scope of a request for which it found a route."""
    route, params = found
    return {"endpoint": route.endpoint, "path_params": params, "route": route, "router": router}
