"""`web_search`: one search with the provider of this server, within a limit on time and size.

A search has no effect outside, so a request that failed on the way is sent again while there is time. The pages that
were found are not fetched.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import orjson

from kelpie import __version__
from kelpie.core.errors import Overloaded, ToolError
from kelpie.core.settings.settings import Settings
from kelpie.core.tools.tools import Tool
from kelpie.fairness.fair_slots import FairSlots, SlotLimits
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.observe import logs
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.tools.web.raw_exchange import ENCODINGS, NotDecodable, RawAnswer, TooLarge, decoded, read_body
from kelpie.tools.web.search_providers.rate_limit import RateLimit, rest_seconds
from kelpie.tools.web.search_providers.search_provider import SearchProvider
from kelpie.tools.web.search_request import SearchRequest, SearchResult, fitting, parse
from kelpie.world.lazy_imports import lazily
from kelpie.world.world import World

with lazily:
    from kelpie.tools.web.search_providers import providers as _providers

AT_ONCE = 32
WAITING_MAX = 256
ATTEMPTS_MAX = 3
AGAIN_S = 0.5  # before a request that failed on the way is sent again
ANSWER_BYTES_MAX = 2 * 1024 * 1024  # parsed on the event loop
TITLE_CHARS_MAX, URL_CHARS_MAX, CONTENT_CHARS_MAX = 300, 2048, 2000
TEXT_CHARS_MAX = 40_000  # of all results together
TOLD_CHARS_MAX = 300  # of what a provider says about an error

_log = logs.get("web")


class _TryAgain(Exception):
    """The request may succeed when it is sent again, after a pause. Its text is the reason."""

    def __init__(self, why: str, pause_s: float | None = None) -> None:
        super().__init__(why)
        self.pause_s = AGAIN_S if pause_s is None else pause_s


class WebSearch:
    """The search of one server."""

    def __init__(self, world: World, settings: Settings, share: OrganizationShare | None = None) -> None:
        self._world = world
        self._settings = settings
        self._slots = FairSlots(
            SlotLimits("web_search_full", "web search", AT_ONCE, WAITING_MAX, settings.web_search_s), share
        )
        self._rate_limit: RateLimit | None = None

    async def __call__(self, tool: Tool, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
        """The results as JSON. Raises ToolError."""
        provider, asked = _providers.search_provider(self._settings), parse(arguments)
        limit_s = min(self._settings.web_search_s, call.quota.wall_s or self._settings.web_search_s)
        try:
            async with asyncio.timeout(limit_s) as limit, self._slots.slot(call.agent.consumer):
                deadline = limit.when()
                assert deadline is not None
                found = await self._search(provider, asked, deadline)
        except TimeoutError:
            raise ToolError(
                f"{provider.name} did not answer within {limit_s:g} s. Try again, or answer without it."
            ) from None
        except Overloaded as error:
            raise ToolError(f"Nothing was searched: {error}.") from None
        return Outcome(_rendered(provider, asked, fitting(asked, found)))

    async def _search(self, provider: SearchProvider, asked: SearchRequest, deadline: float) -> list[SearchResult]:
        """Raises ToolError."""
        rate_limit = self._rate_limit = self._rate_limit or RateLimit(provider.name, self._world.random)
        why, pause_s = "", 0.0
        for _ in range(ATTEMPTS_MAX):
            await asyncio.sleep(pause_s * (1 + self._world.random.random()))
            await rate_limit.wait(deadline)
            try:
                answer = await self._ask(provider, asked)
                return self._read(provider, answer, rate_limit)
            except _TryAgain as error:
                why, pause_s = str(error), error.pause_s
        raise ToolError(f"{why} Try again later, or answer without it.")

    async def _ask(self, provider: SearchProvider, asked: SearchRequest) -> RawAnswer:
        request = _http_request(provider, asked)
        transport = self._world.http.transport(public=not provider.private)
        try:
            response = await transport.handle_async_request(request)
            try:
                return RawAnswer(response.status_code, response.headers, await read_body(response, ANSWER_BYTES_MAX))
            finally:
                await response.aclose()
        except TooLarge:
            raise ToolError(f"The answer of {provider.name} is too large. Ask for fewer results.") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _TryAgain(f"{provider.name} could not be reached: {str(error) or type(error).__name__}.") from None
        finally:
            await transport.aclose()

    def _read(self, provider: SearchProvider, answer: RawAnswer, rate_limit: RateLimit) -> list[SearchResult]:
        """Raises ToolError and _TryAgain."""
        status = answer.status
        if status == 429:
            rate_limit.rest(rest_seconds(answer.headers, self._world.clock.now()))
            raise _TryAgain(f"The rate limit of {provider.name} is used up.", pause_s=0)  # `RateLimit` waits
        if status >= 500:
            raise _TryAgain(f"{provider.name} failed with status {status}.")
        if status in (401, 403):
            _log.warning("web_search_rejected", "Search provider rejected the server's key", provider=provider.name)
            raise ToolError(_rejected(provider, status))
        if status != 200:
            raise ToolError(f"{provider.name} refused the search with status {status}{_told(answer)}.")
        try:
            body = decoded(answer.body, answer.encoding, ANSWER_BYTES_MAX)
            return provider.results(orjson.loads(body))
        except TooLarge:
            raise ToolError(f"The answer of {provider.name} is too large. Ask for fewer results.") from None
        except (ValueError, NotDecodable) as error:
            raise ToolError(f"{provider.name} sent an answer that is not a list of results: {error}.") from None


def _http_request(provider: SearchProvider, asked: SearchRequest) -> httpx.Request:
    made = provider.request(asked)
    headers = {
        "accept": "application/json",
        "accept-encoding": ENCODINGS,
        "user-agent": f"Kelpie/{__version__}",
        **made.headers,
    }
    url = httpx.URL(provider.base_url.rstrip("/") + made.path)
    if made.body is None:
        return httpx.Request("GET", url, params=dict(made.parameters or {}), headers=headers)
    headers["content-type"] = "application/json"
    return httpx.Request("POST", url, content=orjson.dumps(made.body), headers=headers)


def _rejected(provider: SearchProvider, status: int) -> str:
    if provider.variable == "SEARXNG_BASE_URL":
        return (
            f"SearXNG refused the search with status {status}. The operator must list json under search.formats in its "
            "settings.yml. Answer without it."
        )
    return (
        f"{provider.name} rejected the key of this server (status {status}). The operator must check "
        f"{provider.variable}. Answer without it."
    )


def _told(answer: RawAnswer) -> str:
    """What the provider says about an error, cut."""
    try:
        text = decoded(answer.body, answer.encoding, ANSWER_BYTES_MAX).decode(errors="replace")
    except (TooLarge, NotDecodable):
        return ""
    text = " ".join(text.split())[:TOLD_CHARS_MAX]
    return f": {text}" if text else ""


def _rendered(provider: SearchProvider, asked: SearchRequest, found: list[SearchResult]) -> str:
    each_max = TEXT_CHARS_MAX // max(1, len(found))
    answer: dict[str, Any] = {"query": asked.query, "provider": provider.name}
    answer["results"] = [_shown(one, each_max) for one in found]
    if notes := provider.notes(asked):
        answer["notes"] = notes
    return orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode()


def _shown(one: SearchResult, chars_max: int) -> dict[str, Any]:
    content = one.content[: min(CONTENT_CHARS_MAX, chars_max)]
    shown: dict[str, Any] = {
        "title": one.title[:TITLE_CHARS_MAX],
        "url": one.url[:URL_CHARS_MAX],
        "content": content,
        "score": one.score,
        "published_date": one.published_date and one.published_date[:40],
        "author": one.author and one.author[:TITLE_CHARS_MAX],
        "text": one.text and one.text[: max(0, chars_max - len(content))],
    }
    return {name: value for name, value in shown.items() if value is not None or name == "score"}
