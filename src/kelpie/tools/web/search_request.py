"""A web search as the model asks for it, and its results: typed, checked and bounded. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from kelpie.core.errors import ToolError

QUERY_CHARS_MAX = 1000
RESULTS_MAX = 100
RESULTS_DEFAULT = 10
DOMAINS_MAX = 20
BASIC, ADVANCED = "basic", "advanced"
_DOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?)+")
_COUNTRY = re.compile(r"[A-Z]{2}")


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search. Dates are inclusive; the provider may ignore what it cannot filter by."""

    query: str
    num_results: int = RESULTS_DEFAULT
    category: str | None = None
    include_text: bool = False
    include_domains: tuple[str, ...] = ()
    exclude_domains: tuple[str, ...] = ()
    start: datetime | None = None
    end: datetime | None = None
    user_location: str | None = None
    search_depth: str = BASIC

    @property
    def advanced(self) -> bool:
        return self.search_depth == ADVANCED

    @property
    def query_with_sites(self) -> str:
        """The query with the search operators for its domains, for providers without a filter of their own."""
        only = " OR ".join(f"site:{domain}" for domain in self.include_domains)
        if len(self.include_domains) > 1:
            only = f"({only})"
        without = " ".join(f"-site:{domain}" for domain in self.exclude_domains)
        return " ".join(part for part in (self.query, only, without) if part)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One page that was found. `score` is the provider's, where it gives one; `text` is the page's, where asked for."""

    title: str
    url: str
    content: str
    score: float | None = None
    published_date: str | None = None
    author: str | None = None
    text: str | None = None


def parse(arguments: Mapping[str, Any]) -> SearchRequest:
    """Raises ToolError that names the argument and the remedy."""
    query = str(arguments["query"]).strip()
    if not query:
        raise ToolError("'query' is empty. Write what to search for.")
    if len(query) > QUERY_CHARS_MAX:
        raise ToolError(f"'query' has more than {QUERY_CHARS_MAX} characters. Shorten it.")
    number = arguments.get("num_results")
    number = RESULTS_DEFAULT if number is None else number
    if not 1 <= number <= RESULTS_MAX:
        raise ToolError(f"'num_results' must be 1 to {RESULTS_MAX}.")
    start, end = _date("start_published_date", arguments), _date("end_published_date", arguments)
    if start and end and start > end:
        raise ToolError("'start_published_date' is after 'end_published_date'. Swap them.")
    return SearchRequest(
        query,
        int(number),
        arguments.get("category"),
        bool(arguments.get("include_text")),
        _domains("include_domains", arguments),
        _domains("exclude_domains", arguments),
        start,
        end,
        _country(arguments.get("user_location")),
        arguments.get("search_depth") or BASIC,
    )


def fitting(asked: SearchRequest, found: Iterable[SearchResult]) -> list[SearchResult]:
    """The results at web addresses that the domains of the request allow, as many as it asks for."""
    hosts = ((one, _host(one.url)) for one in found)
    return [one for one, host in hosts if host is not None and _fits(asked, host)][: asked.num_results]


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return (parts.hostname or "").rstrip(".") if parts.scheme in ("http", "https") else None


def _fits(asked: SearchRequest, host: str) -> bool:
    if asked.include_domains and not any(_is_below(host, domain) for domain in asked.include_domains):
        return False
    return not any(_is_below(host, domain) for domain in asked.exclude_domains)


def _is_below(host: str, domain: str) -> bool:
    return host == domain or host.endswith(f".{domain}")


def _date(name: str, arguments: Mapping[str, Any]) -> datetime | None:
    text = arguments.get(name)
    if not text:
        return None
    try:
        found = datetime.fromisoformat(str(text).strip())
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ToolError(f"'{name}' is not an ISO 8601 date. Write it like 2025-01-31.") from None


def _domains(name: str, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    found: list[str] = []
    for text in arguments.get(name) or ():
        domain = re.sub(r"^https?://|^\*\.|/.*$", "", str(text).strip().lower())
        if not _DOMAIN.fullmatch(domain):
            raise ToolError(f"'{name}': '{str(text)[:80]}' is not a domain. Write it like example.com.")
        found.append(domain)
    if len(found) > DOMAINS_MAX:
        raise ToolError(f"'{name}' has more than {DOMAINS_MAX} domains. List fewer.")
    return tuple(dict.fromkeys(found))


def _country(text: Any) -> str | None:
    if not text:
        return None
    code = str(text).strip().upper()
    if not _COUNTRY.fullmatch(code):
        raise ToolError("'user_location' must be a two-letter country code, such as US.")
    return code
