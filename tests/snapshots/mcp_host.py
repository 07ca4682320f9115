"""A scripted MCP server at a host of the simulated internet: `> mcp NAME JSON` says what it offers and answers.

The fields, each of which stays until another command changes it:

    version   of the protocol (2025-11-25), one of the stateless ones too
    tools     the list; with `changes` whoever listens is told of a new one
    answers   by tool, or by method: one answer, or a list of which each is used once and the last stays
    token     that requests must carry; with `login` the tokens of an authorization server at the same host, which
              registers clients unless `login` is "client", and refuses tokens with the text of `refuses_tokens`;
              they live for `life` seconds (100), come after `slow_tokens` seconds, and end with `ends_tokens`
    http      status of every answer, for a server that is broken (200)
    page      tools on one page of the list
    session   name of the sessions that begin from now on ("one"); requests of other sessions get a 404
    shows     what is shown besides calls, with the headers of the protocol: methods, and GET, DELETE or "answer"
    says      what whoever listens is told, now and with every change: messages, or "end" (the stream ends)
    resumes   whether the rest of a broken stream is to be had (true)

An answer is a result, or has one of `text`, `refuse` (an error), `http` (a status, with `headers`), `question` (asked
of a person before the next answer of the list), `cut` (the connection breaks). With `after` it comes after so many
seconds.
With `stream` it comes in a stream, after the events of that list: messages ("TOKEN" is the progress token of the
call), pauses in seconds, and "break", where the connection ends; the rest is for who asks what follows the last event.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from kelpie.mcp.protocol.versions import V2025_11, is_stateless
from kelpie.sim.network.outgoing_http import OutgoingRequest, OutgoingResponse

_JSON = {"content-type": "application/json"}
_STREAM = {"content-type": "text/event-stream"}
_USUAL = ("accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent")
_OF_PROTOCOL = ("mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name", "last-event-id")
_SEEN = ("tools/call", "tasks/cancel", "tasks/update")
_NEVER_S = 24 * 3600.0
LIFE_S = 100  # of an access token


class McpHost:
    """`received` are the calls since somebody looked: method, parameters, and the headers that are not usual."""

    def __init__(self) -> None:
        self.received: list[tuple[str, Any, dict[str, str]]] = []
        self._told: dict[str, Any] = {}
        self._answers: dict[str, list[dict[str, Any]]] = {}
        self._changed = asyncio.Event()
        self._asked: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._streams: dict[str, OutgoingResponse] = {}
        self._numbers = 0
        self._ends_s: dict[str, float] = {}  # of access tokens
        self._broken: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {}  # what follows an event

    def tell(self, told: dict[str, Any]) -> None:
        """What it offers and answers from now on."""
        self._told |= told
        for name, answers in told.get("answers", {}).items():
            self._answers[name] = answers if isinstance(answers, list) else [answers]
        if told.get("ends_tokens"):
            self._ends_s.clear()
        if "tools" in told or "says" in told:
            self._changed.set()
            self._changed = asyncio.Event()

    async def __call__(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        path, _, query = asked.path.partition("?")
        host = asked.headers["host"]
        if self._told.get("login") and await self._of_login(path, host, asked, answer):
            return
        if path.startswith("/.well-known"):
            await answer.start(404)
        elif not self._admits(asked.headers.get("authorization")):
            await answer.start(401, {"www-authenticate": "Bearer"})
        elif self._told.get("http", 200) != 200:
            await answer.start(self._told["http"])
        elif path == "/sse":
            await self._open_legacy(answer)
        elif asked.headers.get("mcp-session-id", self._session) != self._session:
            self._show(asked, asked.method, "another session")
            await answer.start(404)
        elif asked.method in ("GET", "DELETE"):
            self._show(asked, asked.method)
            await self._get(asked, answer)
        elif asked.method == "POST":
            await self._post(asked, json.loads(asked.body), answer, query if path == "/messages" else None)

    def _admits(self, authorization: str | None) -> bool:
        if self._told.get("login"):
            token = (authorization or "").removeprefix("Bearer ")
            return asyncio.get_running_loop().time() < self._ends_s.get(token, -1.0)
        return "token" not in self._told or authorization == f"Bearer {self._told['token']}"

    @property
    def _version(self) -> str:
        version: str = self._told.get("version", V2025_11)
        return version

    @property
    def _session(self) -> str:
        session: str = self._told.get("session", "one")
        return session

    def _show(self, asked: OutgoingRequest, what: str, told: Any = None) -> None:
        """Notes what was asked, if it is of those that are shown."""
        shown = self._told.get("shows", ())
        hidden = _USUAL if shown else (*_USUAL, *_OF_PROTOCOL)
        if what in (*_SEEN, *shown):
            headers = {key: asked.headers[key] for key in asked.headers if key not in hidden}
            # The end of a session is told beside everything else, sooner or later.
            at = 0 if what == "DELETE" else len(self.received)
            self.received.insert(at, (what, told, headers))

    # --- messages ----------------------------------------------------------------------------------------------------

    async def _post(
        self, asked: OutgoingRequest, message: dict[str, Any], answer: OutgoingResponse, stream: str | None
    ) -> None:
        method = message.get("method")
        if method is None:
            self._show(asked, "answer", message.get("result") or message.get("error"))
            waiting = self._asked.pop(str(message.get("id")), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message.get("result") or {})
        if method is None or "id" not in message:
            self._show(asked, method or "", message.get("params"))
            await answer.start(202)
            return
        self._show(asked, method, {name: it for name, it in (message.get("params") or {}).items() if name != "_meta"})
        if stream is not None:
            await answer.start(202)
            answer = self._streams[stream]
        if method == "subscriptions/listen":
            await self._listen(answer, "notifications/subscriptions/acknowledged")
            return
        told = self._next(method, message.get("params") or {})
        await asyncio.sleep(told.pop("after", 0.0))
        if "cut" in told:
            answer.cut()
        elif "http" in told:
            await answer.start(told["http"], told.get("headers"))
            await answer.send(str(told.get("body", "")).encode())
        elif "stream" in told:
            await answer.start(200, _STREAM)
            await self._stream(message, told, answer)
        elif "question" in told:
            await self._ask(message, told["question"], answer, begun=stream is not None)
        elif stream is not None:
            await _event(answer, _answered(message, told))
        else:
            headers = {"mcp-session-id": self._session} if method == "initialize" else {}
            await answer.start(200, _JSON | headers)
            await answer.send(json.dumps(_answered(message, told)).encode())

    def _next(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        name = params["name"] if method == "tools/call" else method
        if answers := self._answers.get(name):
            return dict(answers.pop(0) if len(answers) > 1 else answers[0])
        kind = {"resultType": "complete"} if is_stateless(self._version) else {}
        offers = {"tools": {"listChanged": True} if self._told.get("changes") else {}}
        match method:
            case "initialize" if not is_stateless(self._version):
                told = {"protocolVersion": self._version, "capabilities": offers, "serverInfo": {"name": "scripted"}}
            case "server/discover" if is_stateless(self._version):
                told = {"supportedVersions": [self._version], "capabilities": offers}
            case "tools/list":
                told = self._page(int(params.get("cursor", "0")))
            case "tools/call":
                told = {"text": f"done {json.dumps(params.get('arguments'))}"}
            case _:
                return {"refuse": {"code": -32601, "message": f"no method {method}"}}
        return {**kind, **told}

    def _page(self, first: int) -> dict[str, Any]:
        tools, size = self._told.get("tools", []), self._told.get("page", 1000)
        page = {"tools": [{"inputSchema": {"type": "object"}, **tool} for tool in tools[first : first + size]]}
        return page | ({"nextCursor": str(first + size)} if first + size < len(tools) else {})

    async def _ask(
        self, message: Mapping[str, Any], question: dict[str, Any], answer: OutgoingResponse, *, begun: bool
    ) -> None:
        """Asks a person in the stream of the call, and goes on with the next answer of the tool if there is one."""
        self._numbers += 1
        key = f"ask-{self._numbers}"
        waiting = self._asked[key] = asyncio.get_running_loop().create_future()
        if not begun:
            await answer.start(200, _STREAM)
        await _event(answer, {"jsonrpc": "2.0", "id": key, "method": "elicitation/create", "params": question})
        given = await waiting
        self.received.append(("answer", given, {}))
        refused = {"text": "nobody answered", "isError": True}
        told = self._next("tools/call", message["params"]) if given.get("action") == "accept" else refused
        await _event(answer, _answered(message, told))

    async def _stream(
        self, message: dict[str, Any], told: dict[str, Any], answer: OutgoingResponse, at: int = 0
    ) -> None:
        """The events from this one on, until one that breaks the stream; the last is the answer."""
        events: list[Any] = told["stream"]
        for place in range(at, len(events)):
            key = f"{message['id']}/{place}"
            match events[place]:
                case "break":
                    answer.cut()
                    return
                case dict(said):
                    self._broken[key] = (message, told, place + 1)
                    token = message["params"].get("_meta", {}).get("progressToken")
                    await _event(answer, json.loads(json.dumps(said).replace('"TOKEN"', json.dumps(token))), key)
                case pause:
                    await asyncio.sleep(pause)
        await _event(answer, _answered(message, {name: it for name, it in told.items() if name != "stream"}))

    async def _get(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        """Who listens, who ends a session, and who asks for the rest of a stream that broke."""
        last = asked.headers.get("last-event-id")
        if asked.method == "DELETE":
            await answer.start(204)
        elif last in self._broken and self._told.get("resumes", True):
            message, told, place = self._broken[last]
            skipped = place + 1 if told["stream"][place : place + 1] == ["break"] else place
            await answer.start(200, _STREAM)
            await self._stream(message, told, answer, skipped)
        elif last is not None:
            await answer.start(405)
        else:
            await self._listen(answer)

    async def _listen(self, answer: OutgoingResponse, first: str | None = None) -> None:
        if not self._told.get("changes"):
            await answer.start(405)
            return
        await answer.start(200, _STREAM)
        if first is not None:
            await _event(answer, {"jsonrpc": "2.0", "method": first})
        while True:
            await self._changed.wait()
            said = self._told.get("says") or [{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}]
            for each in said:
                if each == "end":
                    return
                await _event(answer, each)

    async def _open_legacy(self, answer: OutgoingResponse) -> None:
        self._numbers += 1
        key = f"session={self._numbers}"
        self._streams[key] = answer
        await answer.start(200, _STREAM)
        await answer.send(f"event: endpoint\ndata: /messages?{key}\n\n".encode())
        await asyncio.sleep(_NEVER_S)

    # --- login -------------------------------------------------------------------------------------------------------

    async def _of_login(self, path: str, host: str, asked: OutgoingRequest, answer: OutgoingResponse) -> bool:
        """Answers as the authorization server of this host; False for what it does not know."""
        base = f"http://{host}"
        if path.startswith("/.well-known/oauth-protected-resource"):
            told: dict[str, Any] = {"resource": f"{base}/mcp", "authorization_servers": [base]}
        elif path.startswith("/.well-known/oauth-authorization-server"):
            told = {
                "issuer": base,
                "authorization_endpoint": f"{base}/authorize",
                "token_endpoint": f"{base}/token",
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
            } | ({"registration_endpoint": f"{base}/register"} if self._told["login"] != "client" else {})
        elif path == "/register":
            self.received.append(("register", json.loads(asked.body), {}))
            told = {"client_id": "registered", "token_endpoint_auth_method": "none"}
        elif path == "/token":
            form = {name: values[0] for name, values in parse_qs(asked.body.decode()).items()}
            kept = {name: value for name, value in form.items() if name != "code_verifier"}
            known = asked.headers.get("authorization")
            self.received.append(("token", kept, {"authorization": known} if known else {}))
            await asyncio.sleep(self._told.get("slow_tokens", 0.0))
            if refusal := self._told.get("refuses_tokens"):
                await answer.start(400, _JSON)
                await answer.send(json.dumps({"error": refusal}).encode())
                return True
            self._numbers += 1
            access = f"access_token_{self._numbers}"
            life_s = self._told.get("life", LIFE_S)
            self._ends_s[access] = asyncio.get_running_loop().time() + life_s
            told = {"access_token": access, "token_type": "Bearer", "expires_in": life_s}
            if self._told.get("refreshes", True):
                told["refresh_token"] = f"refresh_token_{self._numbers}"
        else:
            return False
        await answer.start(200, _JSON)
        await answer.send(json.dumps(told).encode())
        return True


def _answered(message: Mapping[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    head = {"jsonrpc": "2.0", "id": message["id"]}
    if "refuse" in told:
        return {**head, "error": told["refuse"]}
    if "text" in told:
        told = {**told, "content": [{"type": "text", "text": told["text"]}]}
        del told["text"]
    return {**head, "result": told}


async def _event(answer: OutgoingResponse, message: Mapping[str, Any], key: str = "") -> None:
    head = f"id: {key}\n" if key else ""
    await answer.send(f"{head}event: message\ndata: {json.dumps(message)}\n\n".encode())
