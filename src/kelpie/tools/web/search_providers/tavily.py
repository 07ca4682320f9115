"""Tavily's wire format: `POST /search` with a bearer token."""

from dataclasses import dataclass
from typing import Any, ClassVar

from kelpie.core.settings.web_settings import TAVILY_URL
from kelpie.tools.web.search_providers.search_provider import ProviderRequest, items, number_at, text_at
from kelpie.tools.web.search_request import SearchRequest, SearchResult

RESULTS_MAX = 20
_TOPICS = {"news": "news", "financial report": "finance"}


@dataclass(frozen=True, slots=True)
class Tavily:
    api_key: str
    base_url: str = TAVILY_URL
    name: ClassVar[str] = "Tavily"
    variable: ClassVar[str] = "TAVILY_API_KEY"

    @property
    def private(self) -> bool:
        return self.base_url != TAVILY_URL

    def request(self, asked: SearchRequest) -> ProviderRequest:
        body: dict[str, Any] = {
            "query": asked.query,
            "search_depth": asked.search_depth,
            "max_results": min(asked.num_results, RESULTS_MAX),
            "topic": _TOPICS.get(asked.category or "", "general"),
        }
        if asked.include_text:
            body["include_raw_content"] = "markdown"
        if asked.include_domains:
            body["include_domains"] = list(asked.include_domains)
        if asked.exclude_domains:
            body["exclude_domains"] = list(asked.exclude_domains)
        if asked.start:
            body["start_date"] = asked.start.date().isoformat()
        if asked.end:
            body["end_date"] = asked.end.date().isoformat()
        return ProviderRequest("/search", {"authorization": f"Bearer {self.api_key}"}, body=body)

    def results(self, answer: Any) -> list[SearchResult]:
        """Raises ValueError."""
        return [
            SearchResult(
                text_at(item, "title"),
                text_at(item, "url"),
                text_at(item, "content"),
                number_at(item, "score"),
                text_at(item, "published_date") or None,
                None,
                text_at(item, "raw_content") or None,
            )
            for item in items(answer, "results")
        ]

    def notes(self, asked: SearchRequest) -> list[str]:
        found: list[str] = []
        if asked.num_results > RESULTS_MAX:
            found.append(f"Tavily gives at most {RESULTS_MAX} results.")
        if asked.category and asked.category not in _TOPICS:
            found.append(f"Tavily has no category '{asked.category}'; all pages were searched.")
        if asked.user_location:
            found.append("Tavily does not take 'user_location'; it was not used.")
        return found
