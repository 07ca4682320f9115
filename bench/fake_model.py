"""A model that costs nothing: OpenAI chat completions over a bare asyncio server, in a process of its own.

Answers after `--delay-ms`, or after what the newest `wait_ms=` of the prompt says. The answer tells when its first byte
was written, on the machine's monotonic clock, so that a measurement can begin there. `GET /asked` tells how many bytes
the newest prompt had. A user message that begins with `!call NAME {JSON}` is answered with a call of that tool. Prints
its port. Only for benchmarks.
"""

import argparse
import asyncio
import contextlib
import json
import re
import time

_WAIT, _DIGITS = b"wait_ms=", re.compile(rb"\d+")
_CALL, _NAMED = b"!call ", re.compile(r"!call (?P<name>\w+) (?P<arguments>\{.*?\})", re.DOTALL)
MODELS = json.dumps({"object": "list", "data": [{"id": "gpt-4o-mini", "object": "model"}]}).encode()


def _response(body: bytes, kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _completion(text: str, calls: list[dict[str, object]]) -> bytes:
    message = (
        {"role": "assistant", "content": None, "tool_calls": calls} if calls else {"role": "assistant", "content": text}
    )
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()


def _chunks(text: str, calls: list[dict[str, object]]) -> list[bytes]:
    deltas: list[dict[str, object]] = [{"role": "assistant", "content": ""}]
    deltas.extend({"tool_calls": [call | {"index": 0}]} for call in calls)
    deltas.extend({"content": word + " "} for word in ([] if calls else text.split()))
    lines: list[dict[str, object]] = [{"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
    lines.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}]})
    lines.append({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}})
    return [b"data: " + json.dumps({"id": "x", **line}).encode() + b"\n\n" for line in lines] + [b"data: [DONE]\n\n"]


def _wait_s(body: bytes, delay_s: float) -> float:
    if (at := body.rfind(_WAIT)) < 0:
        return delay_s
    digits = _DIGITS.match(body, at + len(_WAIT))
    return int(digits[0]) / 1000 if digits else delay_s


def _calls(body: bytes) -> list[dict[str, object]]:
    """The call that the newest message asks for, when it is a user's."""
    if _CALL not in body:
        return []
    newest = json.loads(body)["messages"][-1]
    wanted = _NAMED.match(str(newest["content"])) if newest["role"] == "user" else None
    if wanted is None:
        return []
    function = {"name": wanted["name"], "arguments": wanted["arguments"]}
    return [{"id": f"call_{time.monotonic_ns()}", "type": "function", "function": function}]


class _Asked:
    """The newest request."""

    body_bytes = 0


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                ),
                0,
            )
            body = await reader.readexactly(length)
            if head.startswith(b"GET /asked"):
                writer.write(_response(json.dumps({"body_bytes": _Asked.body_bytes}).encode()))
                continue
            if head.startswith(b"GET"):
                writer.write(_response(MODELS))
                continue
            _Asked.body_bytes = length
            await asyncio.sleep(_wait_s(body, delay_s))
            text, calls = f"at={time.monotonic_ns()} and some words more", _calls(body)
            if b'"stream":true' in body:
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                for chunk in _chunks(text, calls):
                    writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                writer.write(b"0\r\n\r\n")
            else:
                writer.write(_response(_completion(text, calls)))
            await writer.drain()
    writer.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay-ms", type=float, default=0)
    options = parser.parse_args()
    server = await asyncio.start_server(
        lambda r, w: _serve(r, w, options.delay_ms / 1000), "127.0.0.1", options.port, backlog=2048
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
