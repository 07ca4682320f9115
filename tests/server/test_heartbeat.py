"""No request holds up the event loop: hostile bodies on every route, and the processor time of each callback.

The time is that of the loop's thread, so a busy machine hardly changes it, and it is compared with that of work which
is known, on the same machine and at the same time. Requests come from another thread.
"""

import asyncio
import base64
import gc
import gzip
import http.client
import http.server
import json
import threading
import time
from asyncio import events
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from kelpie.cli.server.process import GC_THRESHOLD
from kelpie.server.app import create_app
from kelpie.server.http.json_body import VALUES_MAX
from kelpie.tools.web import page_reader
from tests.server.neighbours import Neighbour, asked_for, move_in, routes
from tests.server.rig import client_of, open_rig
from tests.server.test_serving import serving
from tests.turns import in_turns

BLOCKED_S_MAX = 0.1  # of processor time; on a slow or busy machine as much more as the known work takes more than usual
KNOWN_S = 0.05
KNOWN_WORK = range(1_000_000)
REPEATS = 4
PARTS = 8  # of the routes, one of which has its turn
NOT_IMPLEMENTED = 501  # a route of a later version
DEADLINE_S = 600.0
JSON_BYTES = 2 * 1024 * 1024
BODY_BYTES = 16 * 1024 * 1024
# Routes that get the bodies which no route gets to see, because they are refused before.
WHOLLY = ("/v1/agents/{agent_id}/messages", "/v1/blocks/", "/v1/agents/{agent_id}/memory/restore")

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@dataclass
class Heartbeat:
    """The longest callback of the loop during each request, by the name of the request."""

    request: str | None = None  # None while the test itself works on the loop
    longest: dict[str, float] = field(default_factory=dict)
    known_s: float = field(default_factory=lambda: max(known_work_s() for _ in range(3)))

    def is_over(self, name: str) -> bool:
        """True if a request held up the loop for too long."""
        return self.longest.get(name, 0.0) > BLOCKED_S_MAX * max(1.0, self.known_s / KNOWN_S)

    def over(self) -> dict[str, float]:
        """The requests that did, each with its processor time in seconds."""
        return {name: round(took, 3) for name, took in self.longest.items() if self.is_over(name)}


def known_work_s() -> float:
    """The processor time of the known work."""
    began = time.thread_time()
    total = 0
    for number in KNOWN_WORK:
        total += number
    return time.thread_time() - began


@pytest.fixture
def heartbeat(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heartbeat]:
    """Measures every callback of the loop of this thread."""
    found = Heartbeat()
    run = events.Handle._run

    def measured(handle: events.Handle) -> None:
        began = time.thread_time()
        run(handle)
        took = time.thread_time() - began
        if found.request is not None and took > found.longest.get(found.request, 0.0):
            found.longest[found.request] = took

    monkeypatch.setattr(events.Handle, "_run", measured)
    gc.collect()
    gc.freeze()  # as the server does after its start
    threshold = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLD)
    yield found
    gc.set_threshold(*threshold)
    gc.unfreeze()


class Attacker:
    """Sends requests from a thread of its own; everything it builds is built there."""

    def __init__(self, url: str, user: str, heartbeat: Heartbeat) -> None:
        self._host = url.removeprefix("http://")
        self._user = user
        self._heartbeat = heartbeat

    async def send(
        self, name: str, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
    ) -> tuple[int, bytes]:
        """Repeats a request that took too long and keeps its shortest time: beside busy neighbours processor time is
        longer as well, and what a request itself takes, it takes each time."""
        self._heartbeat.request = name
        status, answer = await asyncio.to_thread(self._send, method, path, body, kind)
        # MCP servers and providers of this test cannot be reached.
        unreachable = any(code in answer for code in (b"mcp_connection_error", b"could not be resolved"))
        expected = status < 500 or status == NOT_IMPLEMENTED or unreachable
        assert expected, f"{name}: {status} {answer[:300]!r}"
        for _ in range(REPEATS):
            if not self._heartbeat.is_over(name):
                break
            took = self._heartbeat.longest[name]
            self._heartbeat.known_s = max(self._heartbeat.known_s, await asyncio.to_thread(known_work_s))
            self._heartbeat.longest[name] = 0.0
            await asyncio.to_thread(self._send, method, path, body, kind)
            self._heartbeat.longest[name] = min(took, self._heartbeat.longest[name])
        return status, answer

    def _send(self, method: str, path: str, body: bytes | None, kind: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self._host, timeout=60)
        try:
            connection.request(method, path, body, {"Content-Type": kind, "user_id": self._user})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


# --- bodies -----------------------------------------------------------------------------------------------------------


def generic_bodies() -> dict[str, bytes]:
    """Bodies that fit no route: nested, wide, long, and with as many values as are accepted."""
    many = VALUES_MAX - 100
    return {
        "deep": b"[" * JSON_BYTES,
        "empty lists": b"[" + b"[]," * (JSON_BYTES // 3 - 10) + b"1]",
        "many lists": b"[" + b"[]," * (many // 2) + b"1]",
        "quotes": b'["' + b'\\"' * (JSON_BYTES // 2 - 10) + b'"]',
        "commas in a text": b'["' + b"," * (JSON_BYTES - 10) + b'"]',
    }


def image_route_bodies() -> dict[str, bytes]:
    """The same for routes that take images."""
    return {
        "empty lists": b"[" + b"[]," * (BODY_BYTES // 3 - 10) + b"1]",
        "quotes and commas": b'["' + b'\\",' * (BODY_BYTES // 3 - 10) + b'"]',
        "backslashes and commas": b'["' + b"\\\\," * (BODY_BYTES // 3 - 10) + b'"]',
        "lists": b'{"messages": [' + b"{}," * (VALUES_MAX // 2 - 100) + b"{}]}",
    }


def fitting_bodies(route: APIRoute) -> dict[str, bytes]:
    """Bodies with the fields of a route, each with too many small values or a text that is too long."""
    model = getattr(route.body_field, "field_info", None)
    fields = sorted(_fields(getattr(model, "annotation", None))) or ["x"]
    share = (VALUES_MAX - 1000) // (len(fields) + 1)
    long = "x" * (JSON_BYTES // len(fields) - 200)
    numbered = {f"k{number}": number for number in range(share // 2)}
    values: dict[str, Any] = {
        "lists": [1] * share,
        "objects": numbered,
        "lists of objects": [{}] * (share // 2),
        "texts": long,
    }
    return {name: json.dumps(dict.fromkeys(fields, value)).encode() for name, value in values.items()}


def _fields(model: Any) -> set[str]:
    found: set[str] = set(getattr(model, "model_fields", {}))
    for inner in getattr(model, "__args__", ()):
        found |= _fields(inner)
    return found


def large_requests(one: Neighbour) -> Iterator[tuple[int, str, str, Any]]:
    """Requests as large as they may be, with the status of their answers."""
    agent, archive = one.ids["agent_id"], one.ids["archive_id"]
    said = [{"role": "user", "content": "x"}] * 9_000
    image = base64.b64encode(bytes(4_000_000)).decode()
    parts = [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": image}}] * 2
    metadata = {"x": [[]] * 2000, "text": "y" * 50_000}
    block = {"label": "large", "value": "x" * (JSON_BYTES - 200_000), "limit": JSON_BYTES, "metadata": metadata}
    rules = [{"type": "constrain_child_tools", "tool_name": f"t{n}", "children": ["a", "b"]} for n in range(900)]
    values = [{"key": f"k{n}", "value": {"a": [n, n]}, "type": "json"} for n in range(900)]
    source = "def large() -> str:\n    '''Large.'''\n" + "    x = [1, 2, (3, 4)]\n" * 11_000 + "    return ''\n"
    steps = "".join(f"{' ' * (n + 4)}try: pass\n{' ' * (n + 4)}finally:\n" for n in range(19))
    bomb = f"def bomb() -> str:\n    '''B.'''\n{steps}{' ' * 24}pass\n"
    choice = {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}]}
    recursive = {"name": "r", "parameters": {"type": "object", "properties": {"x": choice}, "$defs": {"A": choice}}}
    words = "word " * 2_000
    yield 200, "POST", "/v1/agents/", {"name": "many", "initial_message_sequence": said}
    yield 200, "POST", "/v1/agents/", {"name": "told", "tool_rules": rules, "metadata": metadata}
    yield 200, "POST", "/v1/agents/", {"name": "held", "memory_blocks": [{"label": f"b{n}"} for n in range(1000)]}
    yield 200, "POST", f"/v1/agents/{agent}/messages", {"input": "x" * (BODY_BYTES - 100)}
    yield 400, "POST", f"/v1/agents/{agent}/messages", {"messages": [{"role": "user", "content": parts}]}
    yield 200, "POST", f"/v1/agents/{agent}/messages", {"messages": said[:1000]}
    yield 200, "POST", f"/v1/agents/{agent}/messages", {"input": [{"type": "text", "text": "x"}] * 16_000}
    yield 400, "POST", f"/v1/agents/{agent}/messages/preview-raw-payload", {"input": "x" * (BODY_BYTES - 100)}
    yield 200, "POST", "/v1/blocks/", block
    yield 200, "PATCH", f"/v1/blocks/{one.ids['block_id']}", {"value": "word " * 400_000, "limit": JSON_BYTES}
    yield 200, "POST", f"/v1/archives/{archive}/passages", {"text": "word " * 19_999, "metadata": metadata}
    yield 200, "POST", f"/v1/archives/{archive}/passages/batch", {"passages": [{"text": "some words " * 150}] * 1000}
    yield 200, "PUT", f"/v1/identities/{one.ids['identity_id']}/properties", values
    yield 200, "PUT", f"/v1/agents/{agent}/working-memory/large", {"value": [[]] * 5_000}
    yield 200, "POST", "/v1/tools/", {"source_code": source}
    yield 400, "POST", "/v1/tools/", {"source_code": bomb}
    yield 400, "PUT", "/v1/tools/", {"source_code": bomb}
    yield 400, "PATCH", f"/v1/tools/{one.ids['tool_id']}", {"source_code": bomb}
    yield 400, "POST", "/v1/tools/run", {"source_code": bomb, "args": {}}
    yield 200, "POST", "/v1/tools/run", {"source_code": "def r(x): pass", "json_schema": recursive, "args": {"x": 1}}
    yield 400, "POST", "/v1/tools/generate-schema", {"code": "x();" * 60_000}
    yield 400, "POST", "/v1/tools/generate-schema", {"code": "interface A {" * 18_000, "source_type": "typescript"}
    yield 200, "POST", "/v1/tools/search", {"query": words}
    yield 200, "POST", "/v1/messages/search", {"query": words}
    yield 200, "POST", "/v1/passages/search", {"query": words}


# --- tests ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", in_turns("heartbeat", {str(part): part for part in range(PARTS)}, PARTS))
async def test_no_request_on_any_route_holds_up_the_loop(tmp_path: Path, heartbeat: Heartbeat, part: int) -> None:
    async with open_rig(tmp_path, lifecycle=False) as (kelpie, _), serving(kelpie, DEADLINE_S) as (url, _):
        async with client_of(kelpie) as client:
            one = await move_in(client, "treasure")
        attacker = Attacker(url, one.user, heartbeat)
        for number, (expected, method, path, body) in enumerate(large_requests(one)):
            raw = await asyncio.to_thread(lambda body=body: json.dumps(body).encode())
            status, answer = await attacker.send(f"{number} {method} {path}", method, path, raw)
            assert status == expected, f"{method} {path}: {status} {answer[:300]!r}"
        memory = f"/v1/agents/{one.ids['agent_id']}/memory"
        _, document = await attacker.send("checkpoint", "GET", f"{memory}/checkpoint")
        sending = f"/v1/agents/{one.ids['agent_id']}/messages"
        await attacker.send("no JSON", "POST", sending, b"\0" * BODY_BYTES, "text/plain")
        assert (await attacker.send("restore", "POST", f"{memory}/restore", document))[0] == 200
        heartbeat.request = None
        await _attack_routes(create_app(kelpie), one, attacker, part)
        assert not heartbeat.over()


async def _attack_routes(app: FastAPI, one: Neighbour, attacker: Attacker, part: int) -> None:
    generic = await asyncio.to_thread(generic_bodies)
    with_body = {route.path: route for route in app.routes if isinstance(route, APIRoute) and route.body_field}
    for method, path in list(routes(app))[part::PARTS]:
        address = quote(asked_for(path, one))
        if method == "GET" and "stream" not in path:
            await attacker.send(f"{method} {path} all", method, f"{address}?limit=0")
            await attacker.send(f"{method} {path} long", method, f"{address}?{'names=a&' * 2000}query={'x' * 9000}")
        if method not in ("POST", "PUT", "PATCH"):
            continue
        bodies = dict(generic) if path in WHOLLY else {"many lists": generic["many lists"]}
        if path == WHOLLY[0]:
            bodies |= {f"{name}, large": body for name, body in (await asyncio.to_thread(image_route_bodies)).items()}
        if path in with_body:
            bodies |= await asyncio.to_thread(fitting_bodies, with_body[path])
        for name, body in bodies.items():
            await attacker.send(f"{method} {path} {name}", method, address, body)


# --- the web ----------------------------------------------------------------------------------------------------------


def hostile_pages() -> dict[str, tuple[str, bytes]]:
    """Pages as large or as costly as they may be: kind (with `!` for a compressed one) and body."""
    words = b"<p>Some words that make a paragraph, and a few more of them.</p>"
    results = b"[" + b'{"title": "t", "url": "https://a.example/", "content": "c"},' * 33_000 + b"{}]"
    return {
        "/large": ("text/html", words * 100_000),
        "/bomb": ("text/html!", gzip.compress(bytes(50_000_000), 1)),
        "/nested": ("text/html", b"<div>" * 1_500_000),
        "/pdf": ("application/pdf", b"%PDF-1.7\n" + b"1 0 obj << /Length 5 >> stream\n" * 200_000),
        "/text": ("text/plain", b"word " * 1_600_000),
        "/search": ("application/json", b'{"results": ' + results + b"}"),
    }


@contextmanager
def web_server(pages: dict[str, tuple[str, bytes]]) -> Iterator[str]:
    """A web server in a thread of its own, whose work is not the loop's."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, body = pages[self.path]
            self.send_response(200)
            self.send_header("content-type", kind.rstrip("!"))
            if kind.endswith("!"):
                self.send_header("content-encoding", "gzip")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_no_page_of_the_web_holds_up_the_loop(
    tmp_path: Path, heartbeat: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_reader, "PROGRAM", replace(page_reader.PROGRAM, cpu_s=1))
    pages = await asyncio.to_thread(hostile_pages)
    with web_server(pages) as web:
        settings = {"web_private": True, "tavily_api_key": "x", "tavily_base_url": web}
        async with (
            open_rig(tmp_path, lifecycle=False, **settings) as (kelpie, _),
            serving(kelpie, DEADLINE_S) as (url, _),
        ):
            async with client_of(kelpie) as client:
                one = await move_in(client, "treasure")
                user = {"user_id": one.user}
                made = await client.post("/v1/agents/", json={"tools": ["web_search", "fetch_webpage"]}, headers=user)
            attacker, agent = Attacker(url, one.user, heartbeat), made.json()["id"]
            asked = {path: ("fetch_webpage", {"url": web + path}) for path in pages if path != "/search"}
            asked["/search"] = ("web_search", {"query": "tea", "num_results": 100})
            for path, (tool, arguments) in asked.items():
                body = json.dumps({"args": arguments}).encode()
                status, _ = await attacker.send(path, "POST", f"/v1/agents/{agent}/tools/{tool}/run", body)
                assert status == 200
            assert not heartbeat.over()
