"""Streamed turns over bare sockets, many at once: what came back, and when. One connection a turn, as `Connection:
close`, so that a thousand at once are a thousand connections and a slow reader never holds up another."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from load.server import quantiles

TURN_S_MAX = 120.0
_DONE = b"data: [DONE]"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one request went; `status` is 0 when the connection failed, and `whole` means that its end was told."""

    status: int
    took_ms: float
    whole: bool = False
    retry_after: str | None = None
    told: bytes = b""

    @property
    def kind(self) -> str:
        if self.status == 200:
            return "ok" if self.whole else "cut_off"
        if self.status == 429:
            return "429" if self.retry_after else "429_without_retry_after"
        return str(self.status) if self.status else "no_answer"


async def turn(url: str, agent: str, *, text: str = "hello there", tokens: bool = True) -> Outcome:
    """One streamed turn from the connection to `[DONE]`."""
    body = json.dumps({"input": text, "stream_tokens": tokens, "include_pings": True}).encode()
    return await request(url, "POST", f"/v1/agents/{agent}/messages/stream", body)


async def whole_turn(url: str, agent: str, *, text: str = "hello there") -> Outcome:
    """One turn that is answered as a whole."""
    return await request(url, "POST", f"/v1/agents/{agent}/messages", json.dumps({"input": text}).encode())


async def request(url: str, method: str, path: str, body: bytes = b"") -> Outcome:
    """Sends it and reads to the end; never raises for what the server does."""
    started = time.perf_counter()
    try:
        async with asyncio.timeout(TURN_S_MAX):
            found = await _exchange(url.removeprefix("http://").rstrip("/"), method, path, body)
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        return Outcome(0, (time.perf_counter() - started) * 1000, told=repr(error).encode())
    return _outcome(found, (time.perf_counter() - started) * 1000)


async def _exchange(address: str, method: str, path: str, body: bytes) -> bytes:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {len(body)}\r\n"
        "accept: */*\r\nconnection: close\r\ncontent-type: application/json\r\nuser-agent: letta-client/1.12.1\r\n\r\n"
    )
    writer.write(head.encode() + body)
    try:
        return await reader.read()
    finally:
        writer.close()


def _outcome(found: bytes, took_ms: float) -> Outcome:
    head, _, rest = found.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    status = int(lines[0].split()[1]) if lines[0].startswith(b"HTTP/") else 0
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])}
    retry = headers.get(b"retry-after")
    whole = _DONE in rest if b"event-stream" in headers.get(b"content-type", b"") else bool(rest)
    failed = b"event: error" in rest
    return Outcome(status, took_ms, whole and not failed, retry.decode() if retry else None, rest[-400:])


def tally(outcomes: Sequence[Outcome], model_ms: float) -> dict[str, Any]:
    """How many went how, and what those that went well took beyond the model's time."""
    kinds = Counter(outcome.kind for outcome in outcomes)
    row: dict[str, Any] = {"n": len(outcomes), "outcomes": dict(sorted(kinds.items()))}
    if over := [outcome.took_ms - model_ms for outcome in outcomes if outcome.kind == "ok"]:
        row["overhead"] = quantiles(over)
    bad = [o for o in outcomes if o.kind not in ("ok", "429")]
    return row | ({"first_failure": bad[0].told.decode(errors="replace")} if bad else {})
