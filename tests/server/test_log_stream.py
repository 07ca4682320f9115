"""The log as a stream of events: filtered by the server, resumed by an id, bounded, and ended with its credential."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from kelpie.app import Kelpie
from kelpie.observe import logs
from kelpie.observe.recent_lines import RecentLines
from kelpie.server.app import create_app
from kelpie.server.http.sse import EventStream
from kelpie.server.kelpie.operations.logs import PIECE, LineFilter, follow, resumed_at
from tests.server.rig import client_of, open_rig
from tests.server.test_sse import DEADLINE_S, Client

PASSWORD = "open sesame"
OURS = {"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:8283"}

_log = logs.get("test")


@asynccontextmanager
async def reading(
    kelpie: Kelpie, query: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[Client, asyncio.Task[None]]]:
    """A client that reads the stream until the block ends."""
    client = Client()
    given = {"host": "127.0.0.1:8283"} | dict(headers or {})
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/v1/kelpie/logs/stream",
        "raw_path": b"/v1/kelpie/logs/stream",
        "query_string": urlencode(query).encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8283),
    }
    task = asyncio.create_task(create_app(kelpie)(scope, client.receive, client.send))
    try:
        yield client, task
    finally:
        client.gone.set()
        client.reading.set()
        async with asyncio.timeout(DEADLINE_S):
            await task


def events(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The ids and contents of all events of a stream."""
    found: list[tuple[str, dict[str, Any]]] = []
    for frame in text.split("\n\n"):
        parts = dict(line.split(": ", 1) for line in frame.splitlines() if not line.startswith(":"))
        if "data" in parts:
            found.append((parts.get("id", ""), json.loads(parts["data"])))
    return found


async def test_lines_arrive_as_they_are_written_and_only_those_that_match(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as (kelpie, _):
        _log.warning("test_line", "An earlier line of the stream test", api_key="sk-secret-of-the-stream")
        query = {"contains": "OF THE STREAM TEST", "level": "warning"}
        async with reading(kelpie, query) as (client, _):
            await client.hears("An earlier line")
            _log.info("test_line", "A lower line of the stream test")
            _log.error("test_line", "Another matter")
            _log.error("test_line", "A later line of the stream test")
            await client.hears("A later line")
        shown = [told["line"]["event"] for _, told in events(client.text)]
        assert shown[-2:] == ["An earlier line of the stream test", "A later line of the stream test"]
        assert "A lower line" not in client.text and "Another matter" not in client.text
        assert "sk-secret-of-the-stream" not in client.text
        start = client.got[0]
        assert start["status"] == 200 and (b"content-type", b"text/event-stream; charset=utf-8") in start["headers"]


@pytest.mark.parametrize("as_header", [True, False], ids=["Last-Event-ID", "after"])
async def test_a_client_that_comes_back_gets_every_line_once(tmp_path: Path, as_header: bool) -> None:
    async with open_rig(tmp_path) as (kelpie, _):
        query: dict[str, Any] = {"contains": f"resumed {as_header}"}
        async with reading(kelpie, query) as (client, _):
            _log.error("test_line", f"first resumed {as_header}")
            await client.hears("first resumed")
        last, _ = events(client.text)[-1]
        _log.error("test_line", f"second resumed {as_header}")
        given = ({}, {"Last-Event-ID": last}) if as_header else ({"after": last}, {})
        async with reading(kelpie, query | given[0], given[1]) as (client, _):
            await client.hears("second resumed")
            _log.error("test_line", f"third resumed {as_header}")
            await client.hears("third resumed")
        shown = [told["line"]["event"] for _, told in events(client.text)]
        assert shown == [f"second resumed {as_header}", f"third resumed {as_header}"]
        async with reading(kelpie, query | {"limit": 0}) as (client, _):
            await client.hears("waiting")  # it has begun
            _log.error("test_line", f"fourth resumed {as_header}")
            await client.hears("fourth resumed")
        assert len(events(client.text)) == 1, "with limit=0 it begins with what is written from now on"


async def test_the_stream_ends_when_the_session_ends(tmp_path: Path) -> None:
    async with open_rig(tmp_path, password=PASSWORD) as (kelpie, _), client_of(kelpie) as http:
        opened = await http.post("/session", json={"credential": PASSWORD}, headers=OURS)
        cookie = opened.headers["set-cookie"].partition(";")[0]
        async with reading(kelpie, {}, OURS | {"Cookie": cookie}) as (client, task):
            _log.error("test_line", "A line for a person who is signed in")
            await client.hears("who is signed in")
            assert (await http.delete("/session", headers=OURS | {"Cookie": cookie})).status_code == 200
            async with asyncio.timeout(DEADLINE_S):
                await task
        assert client.got[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
        async with reading(kelpie, {}, OURS | {"Cookie": cookie}) as (client, task):
            await task
        assert client.got[0]["status"] == 401


async def test_the_stream_ends_when_the_server_stops(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as (kelpie, _), reading(kelpie, {}) as (client, task):
        _log.error("test_line", "The last line before the stop")
        await client.hears("before the stop")
        kelpie.stopping = True
        async with asyncio.timeout(DEADLINE_S):
            await task


async def test_only_the_operator_follows_the_log_and_bad_input_is_refused(tmp_path: Path) -> None:
    async with open_rig(tmp_path, password=PASSWORD) as (kelpie, _), client_of(kelpie) as http:
        operator = {"Authorization": f"Bearer {PASSWORD}"}
        made = await http.post("/v1/kelpie/keys", json={"name": "all", "scopes": ["admin"]}, headers=operator)
        for headers, status in (({"Authorization": f"Bearer {made.json()['key']}"}, 403), ({}, 401)):
            assert (await http.get("/v1/kelpie/logs/stream", headers=headers)).status_code == status
        for query in ({"after": "no id"}, {"level": "loud"}, {"limit": 2001}, {"contains": "x" * 201}):
            refused = await http.get("/v1/kelpie/logs/stream", params=query, headers=operator)
            assert refused.status_code in (400, 422) and next(iter(query)) in refused.text, refused.text


async def _always() -> bool:
    return True


def _stream(lines: RecentLines) -> EventStream:
    return EventStream(follow(lines, LineFilter("debug", ""), 0, _always), stall_s=DEADLINE_S)


async def test_a_slow_client_is_told_what_it_missed_and_costs_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, taken = RecentLines(150), list[int]()
    after = lines.after
    monkeypatch.setattr(lines, "after", lambda number: (taken.append(number), after(number))[1])
    for place in range(10):
        lines.add("info", f'{{"event": "early {place}"}}')
    client = Client()
    client.reads = 3  # the beginning and two lines, then it reads no more
    task = asyncio.create_task(_stream(lines)({"type": "http"}, client.receive, client.send))
    await client.hears("early 1")
    for place in range(1000):
        lines.add("info", f'{{"event": "line {place}"}}')
        if place % 100 == 0:
            await asyncio.sleep(0)
    assert len(taken) == 1, "while its client does not read, a stream takes no further lines"
    client.reads = None
    client.reading.set()
    await client.hears("line 999")
    client.gone.set()
    with suppress(asyncio.CancelledError):
        await task
    told = [each for _, each in events(client.text)]
    assert [each["line"]["event"] for each in told[:10]] == [f"early {place}" for place in range(10)]
    assert told[10] == {"skipped": 850}
    assert [each["line"]["event"] for each in told[11:]] == [f"line {place}" for place in range(850, 1000)]
    assert PIECE < 150


async def test_a_client_that_leaves_ends_its_stream_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = RecentLines()
    one, other = Client(), Client()
    tasks = [asyncio.create_task(_stream(lines)({"type": "http"}, each.receive, each.send)) for each in (one, other)]
    lines.add("info", '{"event": "for both"}')
    await one.hears("for both")
    await other.hears("for both")
    one.gone.set()
    async with asyncio.timeout(DEADLINE_S):
        await tasks[0]
    lines.add("info", '{"event": "for one"}')
    await other.hears("for one")
    assert "for one" not in one.text
    other.gone.set()
    async with asyncio.timeout(DEADLINE_S):
        await tasks[1]


def test_the_id_of_another_process_starts_anew() -> None:
    lines, earlier = RecentLines(), RecentLines()
    for place in range(5):
        earlier.add("info", f"earlier {place}")
        lines.add("info", f"later {place}")
    assert resumed_at(lines, "") is None
    assert resumed_at(lines, f"{lines.origin}-3") == 3
    assert resumed_at(lines, f"{earlier.origin}-3") is None
    assert resumed_at(lines, f"{lines.origin}-99") is None
