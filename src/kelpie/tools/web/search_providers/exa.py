"""Exa's wire format: `POST /search` with the key in `x-api-key`."""

from dataclasses import dataclass
from typing import Any, ClassVar

from kelpie.core.settings.web_settings import EXA_URL
from kelpie.tools.web.search_providers.search_provider import ProviderRequest, items, number_at, text_at, texts_at
from kelpie.tools.web.search_request import SearchRequest, SearchResult

TEXT_CHARS_MAX = 10_000
_TYPES = {"basic": "auto", "advanced": "deep"}


@dataclass(frozen=True, slots=True)
class Exa:
    api_key: str
    base_url: str = EXA_URL
    name: ClassVar[str] = "Exa"
    variable: ClassVar[str] = "EXA_API_KEY"

    @property
    def private(self) -> bool:
        return self.base_url != EXA_URL

    def request(self, asked: SearchRequest) -> ProviderRequest:
        contents: dict[str, Any] = {"highlights": True}
        if asked.include_text:
            contents["text"] = {"maxCharacters": TEXT_CHARS_MAX}
        body: dict[str, Any] = {
            "query": asked.query,
            "type": _TYPES[asked.search_depth],
            "numResults": asked.num_results,
            "contents": contents,
        }
        if asked.category:
            body["category"] = asked.category
        if asked.include_domains:
            body["includeDomains"] = list(asked.include_domains)
        if asked.exclude_domains:
            body["excludeDomains"] = list(asked.exclude_domains)
        if asked.start:
            body["startPublishedDate"] = f"{asked.start:%Y-%m-%dT%H:%M:%S.000Z}"
        if asked.end:
            body["endPublishedDate"] = f"{asked.end:%Y-%m-%dT%H:%M:%S.000Z}"
        if asked.user_location:
            body["userLocation"] = asked.user_location
        return ProviderRequest("/search", {"x-api-key": self.api_key}, body=body)

    def results(self, answer: Any) -> list[SearchResult]:
        """Raises ValueError."""
        return [
            SearchResult(
                text_at(item, "title"),
                text_at(item, "url"),
                text_at(item, "summary") or " … ".join(texts_at(item, "highlights")),
                number_at(item, "score"),
                text_at(item, "publishedDate") or None,
                text_at(item, "author") or None,
                text_at(item, "text") or None,
            )
            for item in items(answer, "results")
        ]

    def notes(self, asked: SearchRequest) -> list[str]:
        return []
