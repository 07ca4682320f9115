"""SearXNG's wire format: `GET /search` with `format=json`, which the server's settings must allow."""

from dataclasses import dataclass
from typing import Any, ClassVar

from kelpie.tools.web.search_providers.search_provider import ProviderRequest, items, number_at, text_at
from kelpie.tools.web.search_request import SearchRequest, SearchResult

_CATEGORIES = {"news": "news", "research paper": "science", "github": "it", "tweet": "social media"}


@dataclass(frozen=True, slots=True)
class Searxng:
    base_url: str
    name: ClassVar[str] = "SearXNG"
    variable: ClassVar[str] = "SEARXNG_BASE_URL"

    @property
    def private(self) -> bool:
        return True

    def request(self, asked: SearchRequest) -> ProviderRequest:
        parameters = {"q": asked.query_with_sites, "format": "json"}
        if category := _CATEGORIES.get(asked.category or ""):
            parameters["categories"] = category
        return ProviderRequest("/search", {}, parameters)

    def results(self, answer: Any) -> list[SearchResult]:
        """Raises ValueError."""
        return [
            SearchResult(
                text_at(item, "title"),
                text_at(item, "url"),
                text_at(item, "content"),
                number_at(item, "score"),
                text_at(item, "publishedDate") or None,
            )
            for item in items(answer, "results")
        ]

    def notes(self, asked: SearchRequest) -> list[str]:
        found: list[str] = []
        if asked.advanced:
            found.append("SearXNG has one search depth; 'search_depth' was not used.")
        if asked.category and asked.category not in _CATEGORIES:
            found.append(f"SearXNG has no category '{asked.category}'; all pages were searched.")
        if asked.start or asked.end:
            found.append("SearXNG does not filter by date; the dates were not used.")
        if asked.include_text:
            found.append("SearXNG gives no full texts; use fetch_webpage.")
        if asked.user_location:
            found.append("SearXNG does not take 'user_location'; it was not used.")
        return found
