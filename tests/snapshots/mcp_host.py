"""A scripted MCP server at a host of the simulated internet: `> mcp NAME JSON` says what it offers and answers.

The fields, each of which stays until another command changes it:

    version   of the protocol (2025-11-25), one of the stateless ones too
    tools     the list; with `changes` whoever listens is told of a new one
    answers   by tool, or by method: one answer, or a list of which each is used once and the last stays
    token     that requests must carry; with `login` the tokens of an authorization server at the same host, which
              registers clients unless `login` is "client", and refuses tokens with the text of `refuses_tokens`
    http      status of every answer, for a server that is broken (200)
    page      tools on one page of the list

An answer is a result, or has one of `text`, `refuse` (an error), `http` (a status), `question` (asked of a person
before the next answer of the list), `cut` (the connection breaks). With `after` it comes after so many seconds.
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

    def tell(self, told: dict[str, Any]) -> None:
        """What it offers and answers from now on."""
        self._told |= told
        for name, answers in told.get("answers", {}).items():
            self._answers[name] = answers if isinstance(answers, list) else [answers]
        if "tools" in told:
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
        elif asked.method == "GET":
            await self._listen(answer)
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

    # --- messages ----------------------------------------------------------------------------------------------------

    async def _post(
        self, asked: OutgoingRequest, message: dict[str, Any], answer: OutgoingResponse, stream: str | None
    ) -> None:
        method = message.get("method")
        if method is None:
            waiting = self._asked.pop(str(message.get("id")), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message.get("result") or {})
        if method is None or "id" not in message:
            await answer.start(202)
            return
        if method in _SEEN:
            params = {name: value for name, value in message["params"].items() if name != "_meta"}
            unusual = {key: value for key, value in asked.headers.items() if key not in (*_USUAL, *_OF_PROTOCOL)}
            self.received.append((method, params, unusual))
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
            await answer.start(told["http"])
            await answer.send(str(told.get("body", "")).encode())
        elif "question" in told:
            await self._ask(message, told["question"], answer, begun=stream is not None)
        elif stream is not None:
            await _event(answer, _answered(message, told))
        else:
            headers = {"mcp-session-id": "one"} if method == "initialize" else {}
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

    async def _listen(self, answer: OutgoingResponse, first: str | None = None) -> None:
        if not self._told.get("changes"):
            await answer.start(405)
            return
        await answer.start(200, _STREAM)
        if first is not None:
            await _event(answer, {"jsonrpc": "2.0", "method": first})
        while True:
            await self._changed.wait()
            await _event(answer, {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

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
            if refusal := self._told.get("refuses_tokens"):
                await answer.start(400, _JSON)
                await answer.send(json.dumps({"error": refusal}).encode())
                return True
            self._numbers += 1
            access = f"access_token_{self._numbers}"
            self._ends_s[access] = asyncio.get_running_loop().time() + LIFE_S
            told = {"access_token": access, "token_type": "Bearer", "expires_in": LIFE_S}
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


async def _event(answer: OutgoingResponse, message: Mapping[str, Any]) -> None:
    await answer.send(f"event: message\ndata: {json.dumps(message)}\n\n".encode())
