"""A scripted host of the simulated web: `> web NAME JSON` says what it answers, by path; later commands add to that.

An answer has `status` (200), `headers`, and `body` (text, or what is sent as JSON). With `after` it comes after so many
seconds, with `cut` the connection breaks after the body, and `pad` fills the body with spaces up to so many bytes.
Of a list of answers each is used once, and the last stays.
"""

import asyncio
import json
from typing import Any

from kelpie.sim.network.outgoing_http import OutgoingRequest, OutgoingResponse

_USUAL = ("accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent", "x-begun")


class WebHost:
    """`received` are the requests since somebody looked: method and path, headers that are not usual, and the body."""

    def __init__(self) -> None:
        self.received: list[tuple[str, dict[str, str], str]] = []
        self._answers: dict[str, list[dict[str, Any]]] = {}

    def tell(self, answers: dict[str, Any]) -> None:
        """What it answers from now on."""
        for path, told in answers.items():
            self._answers[path] = list(told) if isinstance(told, list) else [told]

    async def __call__(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        unusual = {name: value for name, value in asked.headers.items() if name not in _USUAL}
        self.received.append((f"{asked.method} {asked.path}", unusual, asked.body.decode(errors="replace")))
        answers = self._answers.get(asked.path.partition("?")[0]) or [{"status": 404}]
        told = answers.pop(0) if len(answers) > 1 else answers[0]
        await asyncio.sleep(told.get("after", 0.0))
        body = told.get("body", "")
        kind = "text/html" if isinstance(body, str) else "application/json"
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        await answer.start(told.get("status", 200), {"content-type": kind, **told.get("headers", {})})
        await answer.send(data.ljust(told.get("pad", 0)))
        if told.get("cut"):
            answer.cut()
