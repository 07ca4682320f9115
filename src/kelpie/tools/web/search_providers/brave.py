"""The wire format of Brave Search: `GET /res/v1/web/search` with the key in `x-subscription-token`."""

import html
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from kelpie.core.settings.web_settings import BRAVE_URL
from kelpie.tools.web.search_providers.search_provider import ProviderRequest, items, text_at, texts_at
from kelpie.tools.web.search_request import SearchRequest, SearchResult

RESULTS_MAX = 20
_EARLIEST, _LATEST = "1990-01-01", "2099-12-31"
_TAG = re.compile(r"</?[a-z]{1,10}>")


@dataclass(frozen=True, slots=True)
class Brave:
    api_key: str
    base_url: str = BRAVE_URL
    name: ClassVar[str] = "Brave Search"
    variable: ClassVar[str] = "BRAVE_API_KEY"

    @property
    def private(self) -> bool:
        return self.base_url != BRAVE_URL

    def request(self, asked: SearchRequest) -> ProviderRequest:
        parameters = {
            "q": asked.query_with_sites,
            "count": str(min(asked.num_results, RESULTS_MAX)),
            "result_filter": "web",
            "text_decorations": "false",
        }
        if asked.advanced:
            parameters["extra_snippets"] = "true"
        if asked.user_location:
            parameters["country"] = asked.user_location
        if asked.start or asked.end:
            start = asked.start.date().isoformat() if asked.start else _EARLIEST
            end = asked.end.date().isoformat() if asked.end else _LATEST
            parameters["freshness"] = f"{start}to{end}"
        return ProviderRequest("/res/v1/web/search", {"x-subscription-token": self.api_key}, parameters)

    def results(self, answer: Any) -> list[SearchResult]:
        """Raises ValueError."""
        if isinstance(answer, dict) and answer.get("type") == "search" and "web" not in answer:
            return []  # nothing was found
        return [
            SearchResult(
                _plain(text_at(item, "title")),
                text_at(item, "url"),
                " … ".join(_plain(text) for text in (text_at(item, "description"), *texts_at(item, "extra_snippets"))),
                None,
                text_at(item, "page_age") or None,
            )
            for item in items(answer, "web", "results")
        ]

    def notes(self, asked: SearchRequest) -> list[str]:
        found: list[str] = []
        if asked.num_results > RESULTS_MAX:
            found.append(f"Brave Search gives at most {RESULTS_MAX} results.")
        if asked.category:
            found.append("Brave Search has no categories; all pages were searched.")
        if asked.include_text:
            found.append("Brave Search gives no full texts; use fetch_webpage.")
        return found


def _plain(text: str) -> str:
    """A snippet without its markup."""
    return html.unescape(_TAG.sub("", text))
