"""The interface of a search provider: a request out of a search, and results out of its answer. Pure; no I/O.

A provider's module reads only the documented fields of an answer and takes any of them to be missing or of another
type.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, cast

from kelpie.tools.web.search_request import RESULTS_MAX, SearchRequest, SearchResult


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """One HTTP request: GET with parameters, or POST with a JSON body."""

    path: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    parameters: Mapping[str, str] | None = None
    body: Mapping[str, Any] | None = None


class SearchProvider(Protocol):
    """One provider with its key."""

    name: ClassVar[str]  # that people read
    variable: ClassVar[str]  # of the environment, that sets it up

    @property
    def base_url(self) -> str: ...

    @property
    def private(self) -> bool:
        """True if the operator has chosen its address, which then may be a private one."""
        ...

    def request(self, asked: SearchRequest) -> ProviderRequest: ...

    def results(self, answer: Any) -> list[SearchResult]:
        """The results in an answer with status 200. Raises ValueError if it has another form."""
        ...

    def notes(self, asked: SearchRequest) -> list[str]:
        """What of the search this provider cannot do."""
        ...


def items(answer: Any, *path: str) -> list[Mapping[str, Any]]:
    """The first objects in the list at this path of an answer. Raises ValueError if there is none."""
    found = answer
    for key in path:
        found = cast("Mapping[str, Any]", found).get(key) if isinstance(found, Mapping) else None
    if not isinstance(found, list):
        raise ValueError(f"there is no list {'.'.join(path)}")
    listed = cast("list[object]", found)[:RESULTS_MAX]
    return [cast("Mapping[str, Any]", each) for each in listed if isinstance(each, Mapping)]


def text_at(item: Mapping[str, Any], key: str) -> str:
    """The text under a key; empty if there is none."""
    value = item.get(key)
    return value if isinstance(value, str) else ""


def texts_at(item: Mapping[str, Any], key: str) -> list[str]:
    """The texts in the list under a key."""
    value = item.get(key)
    listed = cast("Sequence[object]", value) if isinstance(value, list) else ()
    return [each for each in listed if isinstance(each, str)]


def number_at(item: Mapping[str, Any], key: str) -> float | None:
    """The number under a key."""
    value = item.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
