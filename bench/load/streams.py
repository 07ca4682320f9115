"""How long a client waits for the first event of a stream, counted from the moment the model began to answer.

The fake model writes into its reply when it wrote the reply's first byte, on the clock that all processes of a machine
share. With tokens the first event is the first delta. With steps it is a message that is whole and committed, so its
time holds the rest of the reply and a commit; the fake sends such a reply in one write, so its first byte is its last.
"""

import re
import time
from typing import Any

from load.server import Server, quantiles

STREAMS = 200
_STAMP = re.compile(r"at=(\d+)")


async def first_events(server: Server, agent: str) -> dict[str, Any]:
    return {
        "first_event_tokens": await _first_event(server, agent, tokens=True),
        "first_event_steps": await _first_event(server, agent, tokens=False),
    }


async def _first_event(server: Server, agent: str, tokens: bool) -> dict[str, Any]:
    """From the request, and, where the model tells it, from its first byte."""
    whole: list[float] = []
    after_model: list[float] = []
    for _ in range(STREAMS):
        started = time.monotonic_ns()
        body = {"input": "hello", "stream_tokens": tokens, "include_pings": True}
        async with server.http.stream("POST", f"/v1/agents/{agent}/messages/stream", json=body) as answer:
            seen = False
            async for line in answer.aiter_lines():
                if seen or not line.startswith("data:") or '"ping"' in line:
                    continue
                seen, now = True, time.monotonic_ns()
                whole.append((now - started) / 1e6)
                if found := _STAMP.search(line):
                    after_model.append((now - int(found[1])) / 1e6)
    row: dict[str, Any] = {"n": len(whole), "from_request": quantiles(whole)}
    return row | ({"from_model": quantiles(after_model)} if after_model else {})
