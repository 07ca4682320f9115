"""A model over real HTTP that plays a script, in OpenAI's words or in Anthropic's, whole or streamed.

It keeps every request. A reply is text, or calls as (name, arguments).
"""

import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OPENAI, ANTHROPIC = "openai/gpt-4.1-mini", "anthropic/claude-3-5-haiku-20241022"
HANDLES = (OPENAI, ANTHROPIC)

Call = tuple[str, dict[str, Any]]

# By the kind of an Anthropic block: the field that is streamed, and the kind and field of its pieces.
_DELTAS = {
    "text": ("text", "text_delta", "text"),
    "thinking": ("thinking", "thinking_delta", "thinking"),
    "tool_use": ("input", "input_json_delta", "partial_json"),
}


# The list prices, which are not known to hold for another address.
PRICES = "openai/gpt-4.1-mini=0.40/1.60/0.10,anthropic/claude-3-5-haiku-20241022=0.80/4.00/0.08/1.00"


def wires(url: str) -> dict[str, str]:
    """The settings of a server that asks the model at this address, whichever wire it is asked over."""
    keys = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    return {"OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_BASE_URL": url, "KELPIE_MODEL_PRICES": PRICES, **keys}


class WireModel:
    """What will be said next, and what was asked."""

    def __init__(self) -> None:
        self.script: deque[str | list[Call]] = deque()
        self.asked: list[dict[str, Any]] = []
        self.url = ""

    def will(self, *replies: str | list[Call]) -> None:
        self.script.clear()
        self.asked.clear()
        self.script.extend(replies)

    def offers(self) -> list[tuple[list[str], str]]:
        """The tools of each request by name, and what was chosen: a word of OpenAI's, or the name of a tool."""
        return [(_names(body), _choice(body)) for body in self.asked]

    def answer(self, path: str, body: dict[str, Any]) -> tuple[str, bytes]:
        self.asked.append(body)
        said = self.script.popleft() if self.script else "ok"
        number = len(self.asked)
        made = openai_wire if path.endswith("/chat/completions") else anthropic_wire
        return made(said, number, stream=bool(body.get("stream")))


def _names(body: dict[str, Any]) -> list[str]:
    return sorted(tool["function"]["name"] if "function" in tool else tool["name"] for tool in body.get("tools") or ())


def _choice(body: dict[str, Any]) -> str:
    choice = body.get("tool_choice", "auto")
    if isinstance(choice, str):
        return choice
    named = choice.get("name") or choice.get("function", {}).get("name")
    return str(named or {"any": "required"}.get(choice["type"], choice["type"]))


def openai_wire(said: str | list[Call], number: int, *, stream: bool) -> tuple[str, bytes]:
    calls = [] if isinstance(said, str) else said
    made = [
        {"id": f"call_{number}_{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for i, (name, arguments) in enumerate(calls)
    ]
    finish, usage = "tool_calls" if made else "stop", {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    head = {"id": f"chatcmpl-{number}", "created": 1, "model": "m"}
    if not stream:
        message = {"role": "assistant", "content": said if isinstance(said, str) else None}
        choice = {"index": 0, "message": message | ({"tool_calls": made} if made else {}), "finish_reason": finish}
        whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        return "application/json", json.dumps(whole).encode()
    deltas: list[dict[str, Any]] = [{"content": word} for word in said.split(" ")] if isinstance(said, str) else []
    for i, call in enumerate(made):
        arguments = call["function"]["arguments"]
        deltas.append({"tool_calls": [{"index": i, **call, "function": {**call["function"], "arguments": ""}}]})
        deltas += [{"tool_calls": [{"index": i, "function": {"arguments": part}}]} for part in _halves(arguments)]
    choices: list[Any] = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices.append([{"index": 0, "delta": {}, "finish_reason": finish}])
    chunks = [{**head, "object": "chat.completion.chunk", "choices": one} for one in choices]
    chunks.append({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage})
    frames = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "text/event-stream", "".join([*frames, "data: [DONE]\n\n"]).encode()


def anthropic_wire(
    said: str | list[Call], number: int, *, stream: bool, thought: str | None = None
) -> tuple[str, bytes]:
    calls = [] if isinstance(said, str) else said
    blocks: list[dict[str, Any]] = []
    if thought:
        blocks.append({"type": "thinking", "thinking": thought, "signature": "Esig"})
    if isinstance(said, str):
        blocks.append({"type": "text", "text": said})
    for i, (name, arguments) in enumerate(calls):
        blocks.append({"type": "tool_use", "id": f"toolu_{number}_{i}", "name": name, "input": arguments})
    stop, usage = "tool_use" if calls else "end_turn", {"input_tokens": 9, "output_tokens": 3}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    if not stream:
        whole = {**message, "content": blocks, "stop_reason": stop, "usage": usage}
        return "application/json", json.dumps(whole).encode()
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": usage}}
    ]
    for i, block in enumerate(blocks):
        field, kind, name = _DELTAS[block["type"]]
        begin = {**block, field: {} if field == "input" else ""}
        events.append({"type": "content_block_start", "index": i, "content_block": begin})
        whole = block[field]
        for part in _halves(whole if isinstance(whole, str) else json.dumps(whole)):
            events.append({"type": "content_block_delta", "index": i, "delta": {"type": kind, name: part}})
        events.append({"type": "content_block_stop", "index": i})
    events.append(
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 3}}
    )
    events.append({"type": "message_stop"})
    frames = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    return "text/event-stream", "".join(frames).encode()


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [part for part in (text[:middle], text[middle:]) if part]


@contextmanager
def wire_model(model: WireModel | None = None, handles: tuple[str, ...] = HANDLES) -> Iterator[WireModel]:
    """The model, served at its `url` until the end under these names."""
    model = model or WireModel()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            listed = [{"id": handle.partition("/")[2], "type": "model", "object": "model"} for handle in handles]
            self._send("application/json", json.dumps({"object": "list", "data": listed, "has_more": False}).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self._send(*model.answer(self.path, body))

        def _send(self, kind: str, raw: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    model.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
