"""`web_search`: the exact request of each provider, the results out of its answer, and every way in which it fails.

The answers have the form that the providers document.
"""

import asyncio
import gzip
import json
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from kelpie.core.errors import ToolError
from kelpie.core.permissions.quotas import Quota
from kelpie.core.settings.settings import Settings
from kelpie.core.tools.tools import Tool
from kelpie.tools.builtin import BUILTINS
from kelpie.tools.calls.argument_check import check_arguments
from kelpie.tools.calls.interface import CallContext
from kelpie.tools.web.search_providers.rate_limit import rest_seconds
from kelpie.tools.web.web_search import WebSearch
from kelpie.world.database import Database
from kelpie.world.http.port import NetworkHttp
from kelpie.world.ids import SeededIds
from kelpie.world.processes.processes import SystemProcesses
from kelpie.world.world import World
from tests.tools.web_server import Asked, WebServer, answer, in_turn, json_answer, open_web_server, silent
from tests.tools.workshop import ANN, NOW, TickingClock, make_agent

TOOL: Tool = BUILTINS["web_search"].row(make_agent(ANN).organization_id, NOW)
TAVILY = {
    "query": "tea",
    "follow_up_questions": None,
    "answer": None,
    "images": [],
    "results": [
        {
            "title": "Green tea",
            "url": "https://a.example/green",
            "content": "Leaves.",
            "score": 0.93,
            "raw_content": None,
        },
        {"title": "Black tea", "url": "https://b.example/black", "content": "Older leaves.", "score": 0.71},
    ],
    "response_time": 1.2,
    "request_id": "r-1",
}
EXA = {
    "requestId": "r-2",
    "resolvedSearchType": "neural",
    "results": [
        {
            "title": "Green tea",
            "url": "https://a.example/green",
            "publishedDate": "2025-01-02T00:00:00.000Z",
            "author": "Ann",
            "id": "https://a.example/green",
            "score": 0.4,
            "text": "The whole page.",
            "highlights": ["Leaves.", "Water."],
            "highlightScores": [0.5, 0.4],
        }
    ],
    "costDollars": {"total": 0.005},
}
BRAVE = {
    "type": "search",
    "query": {"original": "tea"},
    "web": {
        "type": "search",
        "results": [
            {
                "title": "Green <strong>tea</strong> &amp; more",
                "url": "https://a.example/green",
                "description": "<strong>Leaves</strong>.",
                "page_age": "2025-01-02T00:00:00",
                "extra_snippets": ["Water."],
            }
        ],
    },
}
SEARXNG = {
    "query": "tea",
    "number_of_results": 0,
    "results": [
        {
            "url": "https://a.example/green",
            "title": "Green tea",
            "content": "Leaves.",
            "engine": "duckduckgo",
            "score": 4.0,
            "category": "general",
            "publishedDate": None,
        },
        {"url": "https://other.example/", "title": "Other", "content": "", "score": 1.0},
    ],
    "answers": [],
    "suggestions": [],
    "unresponsive_engines": [],
}


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kelpie.tools.web.web_search.AGAIN_S", 0.01)


@pytest.fixture
async def web() -> AsyncIterator[WebServer]:
    async with open_web_server() as opened:
        yield opened


def world() -> World:
    rng = random.Random(1)
    return World(TickingClock(), SeededIds(rng), rng, Database, NetworkHttp(), SystemProcesses())  # pyright: ignore[reportArgumentType]


def searching(web: WebServer | None, **settings: Any) -> WebSearch:
    if web is not None and not any(name.endswith("base_url") for name in settings):
        settings |= {"tavily_api_key": "tvly-1", "tavily_base_url": web.url}
    return WebSearch(world(), replace(Settings(), **settings))


async def search(tool: WebSearch, query: str = "tea", *, quota: Quota | None = None, **arguments: Any) -> Any:
    call = CallContext(make_agent(ANN), NOW, "x", **({"quota": quota} if quota else {}))
    checked = check_arguments(TOOL.json_schema, {"query": query, **arguments})
    async with asyncio.timeout(60):
        return json.loads((await tool(TOOL, call, checked)).text)


async def failure(tool: WebSearch, **arguments: Any) -> str:
    with pytest.raises(ToolError) as caught:
        await search(tool, **arguments)
    return str(caught.value)


async def test_tavily(web: WebServer) -> None:
    web.routes["/search"] = json_answer(TAVILY)
    found = await search(
        searching(web),
        num_results=50,
        category="news",
        include_text=True,
        include_domains=["https://A.example/x", "*.b.example"],
        exclude_domains=["c.example"],
        start_published_date="2025-01-01",
        end_published_date="2025-02-01T10:00:00+02:00",
        user_location="us",
        search_depth="advanced",
    )
    [asked] = web.asked
    assert (asked.method, asked.path, asked.headers["authorization"]) == ("POST", "/search", "Bearer tvly-1")
    assert asked.json == {
        "query": "tea",
        "search_depth": "advanced",
        "max_results": 20,
        "topic": "news",
        "include_raw_content": "markdown",
        "include_domains": ["a.example", "b.example"],
        "exclude_domains": ["c.example"],
        "start_date": "2025-01-01",
        "end_date": "2025-02-01",
    }
    assert found["provider"] == "Tavily" and [one["score"] for one in found["results"]] == [0.93, 0.71]
    assert found["results"][0] == {
        "title": "Green tea",
        "url": "https://a.example/green",
        "content": "Leaves.",
        "score": 0.93,
    }
    assert found["notes"] == [
        "Tavily gives at most 20 results.",
        "Tavily does not take 'user_location'; it was not used.",
    ]


async def test_exa(web: WebServer) -> None:
    web.routes["/search"] = json_answer(EXA)
    found = await search(
        searching(web, exa_api_key="exa-1", exa_base_url=web.url),
        num_results=3,
        category="research paper",
        include_text=True,
        include_domains=["a.example"],
        start_published_date="2025-01-01",
        user_location="DE",
        search_depth="advanced",
    )
    [asked] = web.asked
    assert (asked.method, asked.path, asked.headers["x-api-key"]) == ("POST", "/search", "exa-1")
    assert asked.json == {
        "query": "tea",
        "type": "deep",
        "numResults": 3,
        "contents": {"highlights": True, "text": {"maxCharacters": 10_000}},
        "category": "research paper",
        "includeDomains": ["a.example"],
        "startPublishedDate": "2025-01-01T00:00:00.000Z",
        "userLocation": "DE",
    }
    assert found["results"] == [
        {
            "title": "Green tea",
            "url": "https://a.example/green",
            "content": "Leaves. … Water.",
            "score": 0.4,
            "published_date": "2025-01-02T00:00:00.000Z",
            "author": "Ann",
            "text": "The whole page.",
        }
    ]


async def test_brave(web: WebServer) -> None:
    web.routes["/res/v1/web/search"] = json_answer(BRAVE)
    tool = searching(web, brave_api_key="bsa-1", brave_base_url=f"{web.url}/")
    found = await search(
        tool,
        include_domains=["a.example", "b.example"],
        exclude_domains=["c.example"],
        end_published_date="2025-02-01",
        user_location="DE",
        search_depth="advanced",
    )
    [asked] = web.asked
    assert (asked.method, asked.headers["x-subscription-token"]) == ("GET", "bsa-1")
    assert asked.parameters == {
        "q": "tea (site:a.example OR site:b.example) -site:c.example",
        "count": "10",
        "result_filter": "web",
        "text_decorations": "false",
        "extra_snippets": "true",
        "country": "DE",
        "freshness": "1990-01-01to2025-02-01",
    }
    assert found["results"] == [
        {
            "title": "Green tea & more",
            "url": "https://a.example/green",
            "content": "Leaves. … Water.",
            "score": None,
            "published_date": "2025-01-02T00:00:00",
        }
    ]
    web.routes["/res/v1/web/search"] = json_answer({"type": "search", "query": {"original": "tea"}})
    assert (await search(tool))["results"] == []


async def test_searxng_at_a_private_address(web: WebServer) -> None:
    web.routes["/sx/search"] = json_answer(SEARXNG)
    tool = searching(web, searxng_base_url=f"{web.url}/sx")
    found = await search(tool, category="news", include_domains=["a.example"], search_depth="advanced")
    [asked] = web.asked
    assert asked.parameters == {"q": "tea site:a.example", "format": "json", "categories": "news"}
    assert [one["url"] for one in found["results"]] == ["https://a.example/green"]  # also where an engine ignores it
    assert found["results"][0]["score"] == 4.0 and "search depth" in found["notes"][0]
    web.routes["/sx/search"] = answer("Forbidden", status=403)
    assert "json under search.formats" in await failure(tool)


async def test_without_a_provider_the_missing_setting_is_named() -> None:
    told = await failure(searching(None))
    for variable in ("TAVILY_API_KEY", "EXA_API_KEY", "BRAVE_API_KEY", "SEARXNG_BASE_URL"):
        assert variable in told
    chosen = await failure(searching(None, web_search_provider="brave", tavily_api_key="x"))
    assert "set BRAVE_API_KEY" in chosen and "TAVILY" not in chosen


async def test_the_operator_chooses_among_several(web: WebServer) -> None:
    web.routes["/search"] = json_answer(SEARXNG)
    keys = {"tavily_api_key": "x", "tavily_base_url": "http://127.0.0.1:1", "searxng_base_url": web.url}
    assert (await search(searching(None, web_search_provider="searxng", **keys)))["provider"] == "SearXNG"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"query": "  "}, "'query' is empty"),
        ({"query": "x" * 1001}, "Shorten it"),
        ({"num_results": 0}, "1 to 100"),
        ({"num_results": 101}, "1 to 100"),
        ({"start_published_date": "yesterday"}, "2025-01-31"),
        ({"start_published_date": "2025-02-01", "end_published_date": "2025-01-01"}, "Swap them"),
        ({"include_domains": ["not a domain"]}, "is not a domain"),
        ({"exclude_domains": [f"a{n}.example" for n in range(21)]}, "more than 20"),
        ({"user_location": "Germany"}, "two-letter"),
        ({"search_depth": "deepest"}, "search_depth"),
    ],
)
async def test_a_wrong_argument_is_named_and_nothing_is_sent(
    web: WebServer, arguments: dict[str, Any], told: str
) -> None:
    assert told in await failure(searching(web), **arguments)
    assert not web.asked


async def test_a_key_that_is_rejected_is_the_operators_matter(web: WebServer) -> None:
    web.routes["/search"] = json_answer({"detail": {"error": "Unauthorized: missing or invalid API key."}}, 401)
    told = await failure(searching(web))
    assert "TAVILY_API_KEY" in told and "401" in told and "tvly-1" not in told
    assert len(web.asked) == 1
    web.routes["/search"] = json_answer({"detail": {"error": "This request exceeds your plan's limit."}}, 432)
    told = await failure(searching(web))
    assert "432" in told and "exceeds your plan" in told


async def test_a_rate_limit_is_waited_for_when_there_is_time(web: WebServer) -> None:
    web.routes["/search"] = in_turn(json_answer({"detail": "slow"}, 429, {"retry-after": "1"}), json_answer(TAVILY))
    assert len((await search(searching(web)))["results"]) == 2
    assert len(web.asked) == 2


async def test_a_long_rate_limit_fails_at_once_for_all(web: WebServer) -> None:
    web.routes["/search"] = json_answer({"detail": "slow"}, 429, {"retry-after": "120"})
    tool = searching(web)
    assert "Try again in 1" in await failure(tool)  # 120 s, less what a busy machine needed
    assert "Try again in 1" in await failure(tool)
    assert len(web.asked) == 1


def test_the_time_to_wait_is_read_from_every_form_and_bounded() -> None:
    def rest(headers: dict[str, str]) -> float:
        return rest_seconds(headers, 1_700_000_000_000_000)

    assert rest({}) == 1.0 and rest({"retry-after": "7"}) == 7.0 and rest({"retry-after": "-5"}) == 1.0
    assert rest({"retry-after": "1e9"}) == 300.0 and rest({"retry-after": "nan"}) == 1.0
    assert rest({"retry-after": "soon"}) == 1.0
    assert rest({"retry-after": "Tue, 14 Nov 2023 22:13:30 GMT"}) == 10.0
    assert rest({"x-ratelimit-reset": "3, 1419704"}) == 3.0


async def test_a_failure_on_the_way_is_tried_again_and_then_told(web: WebServer) -> None:
    web.routes["/search"] = in_turn(answer("oops", status=500), json_answer(TAVILY))
    assert len((await search(searching(web)))["results"]) == 2
    web.routes["/search"] = answer("oops", status=503)
    web.asked.clear()
    assert "failed with status 503" in await failure(searching(web))
    assert len(web.asked) == 3
    closed = searching(web, tavily_api_key="x", tavily_base_url="http://127.0.0.1:1")
    assert "could not be reached: connection refused" in await failure(closed)


async def test_a_provider_that_does_not_answer_is_left_in_time(web: WebServer) -> None:
    web.routes["/search"] = silent
    assert "did not answer within 0.3 s" in await failure(searching(web, web_search_s=0.3))
    assert "did not answer within 0.2 s" in await failure(searching(web), quota=Quota(wall_s=0.2))


async def test_answers_that_are_no_results_are_errors(web: WebServer) -> None:
    for body in (b"<html>", b"[]", b"{}", b'{"results": {}}', b"[" * 5000, b"\xff\xfe"):
        web.routes["/search"] = answer(body, "application/json")
        assert "not a list of results" in await failure(searching(web))
    web.routes["/search"] = json_answer(
        {"results": [1, None, {}, {"url": 5, "title": []}, {"url": "ftp://x/", "score": True}]}
    )
    assert (await search(searching(web)))["results"] == []


async def test_answers_are_bounded_also_when_they_are_compressed(web: WebServer) -> None:
    web.routes["/search"] = answer(b"x" * (10 * 1024 * 1024), "application/json")
    assert "too large" in await failure(searching(web))
    bomb = gzip.compress(b"x" * (10 * 1024 * 1024))
    web.routes["/search"] = answer(bomb, "application/json", headers={"content-encoding": "gzip"})
    assert "too large" in await failure(searching(web))

    async def endless(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    web.routes["/search"] = endless
    assert "too large" in await failure(searching(web))
    whole = gzip.compress(json.dumps(TAVILY).encode())
    web.routes["/search"] = answer(whole, "application/json", headers={"content-encoding": "gzip"})
    assert len((await search(searching(web)))["results"]) == 2
    long = {
        "results": [
            {"title": "t" * 999, "url": f"https://a.example/{n}", "content": "c" * 9999, "raw_content": "r" * 99999}
            for n in range(10)
        ]
    }
    web.routes["/search"] = json_answer(long)
    found = await search(searching(web), include_text=True)
    assert len(json.dumps(found)) < 50_000 and len(found["results"]) == 10


async def test_a_default_address_of_a_provider_must_be_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that answers with a private address gets neither the key nor the query."""

    async def resolve(self: object, host: str, port: int = 0, family: int = 0) -> list[dict[str, Any]]:
        return [{"hostname": host, "host": "127.0.0.1", "port": port, "family": family, "proto": 0, "flags": 0}]

    monkeypatch.setattr("aiohttp.ThreadedResolver.resolve", resolve)
    told = await failure(searching(None, tavily_api_key="tvly-1", web_search_s=5.0))
    assert "api.tavily.com is not a public address" in told
