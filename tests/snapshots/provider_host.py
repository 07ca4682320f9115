"""A scripted model provider: `> provider NAME [ANSWERS]`. Each answer to a call is used once, and the last stays.
`{"models": [...]}` before them is its list of models. `{"paths": {...}}` has answers of their own for some paths, or
for a path and a model, such as "/api/show qwen3:8b"; a `quiet` one is not recorded.

An answer has `status` (200), `headers`, and `body`: JSON or text. `stream` is a list in place of a body: JSON is sent
as one event, text as it is, and a number is a pause of so many seconds. With `after` the answer begins after so many
seconds; with `cut` the connection breaks at the end.

It says what it received, of a body what differs from the one before of the same agent, how much later than the one
before, if that is longer than the pause of a retry without a wish of the provider, and when a client left before the
end.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from kelpie.sim.network.outgoing_http import OutgoingRequest, OutgoingResponse
from tests.snapshots.text import Text

_LATER_S = 4.0
_SHORT = 20


class ProviderHost:
    """`hear` gets each line of what happened."""

    def __init__(self, name: str, hear: Callable[[str], None], text: Text) -> None:
        self._name = name
        self._answers: list[dict[str, Any]] = []
        self._models: list[dict[str, Any]] = [{"id": "scripted"}]
        self._paths: dict[str, list[dict[str, Any]]] = {}
        self._say = hear
        self._text = text
        self._known: dict[tuple[str, str], dict[str, Any]] = {}  # the last request of each path and agent
        self._at = 0.0

    def tell(self, answers: Sequence[dict[str, Any]]) -> None:
        """What it answers from now on."""
        self._answers = list(answers)
        if "models" in answers[0]:
            self._models = self._answers.pop(0)["models"]
        if "paths" in answers[0]:
            told = self._answers.pop(0)["paths"]
            self._paths |= {path: list(each) if isinstance(each, list) else [each] for path, each in told.items()}

    async def __call__(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        model = json.loads(asked.body or "{}").get("model")
        answers = self._paths.get(f"{asked.path} {model}") or self._paths.get(asked.path) or self._answers
        if asked.method == "GET" and answers is self._answers:
            await self._play({"status": 404} if self._paths else {"body": {"data": self._models}}, answer)
            return
        told = answers.pop(0) if len(answers) > 1 else answers[0]
        if not told.get("quiet"):
            self._hear(asked)
        try:
            await self._play(told, answer)
        except asyncio.CancelledError:
            self._say(f"{self._name} was left")
            raise

    def _hear(self, asked: OutgoingRequest) -> None:
        key = asked.headers.get("authorization") or asked.headers.get("x-api-key") or asked.headers.get("api-key")
        now = asyncio.get_running_loop().time()
        later = f", {now - self._at:.0f} s later" if now - self._at >= _LATER_S else ""
        self._at = now
        body: dict[str, Any] = json.loads(asked.body or "{}")
        whose = (asked.path, json.dumps(body.get("user") or body.get("metadata") or body.get("prompt_cache_key")))
        known, self._known[whose] = self._known.get(whose, {}), body
        again = ", the same again" if body and body == known else ""
        self._say(f"{self._name} received {asked.method} {asked.path}, key: {key}{again}{later}")
        if body and not again:
            for line in self._text.json({name: _new(value, known.get(name)) for name, value in body.items()}):
                self._say(f"  {line}")

    async def _play(self, told: dict[str, Any], answer: OutgoingResponse) -> None:
        await asyncio.sleep(told.get("after", 0.0))
        body = told.get("body", "")
        kind = "text/html" if isinstance(body, str) else "application/json"
        kind = "text/event-stream" if "stream" in told else kind
        await answer.start(told.get("status", 200), {"content-type": kind, **told.get("headers", {})})
        for piece in told.get("stream", [body]):
            if isinstance(piece, (int, float)):
                await asyncio.sleep(piece)
            else:
                await answer.send(_bytes(piece, event="stream" in told))
        if told.get("cut"):
            answer.cut()


def _bytes(piece: Any, *, event: bool) -> bytes:
    if isinstance(piece, str):
        return piece.encode()
    data = json.dumps(piece)
    return (f"data: {data}\n\n" if event else data).encode()


def _new(value: Any, known: Any) -> Any:
    """What a list has more than the one before; another value that is long only if it differs."""
    if isinstance(value, list) and isinstance(known, list):
        same = next((at for at, (one, other) in enumerate(zip(value, known, strict=False)) if one != other), len(known))
        return [f"{min(same, len(value))} as before", *value[same:]] if same else value
    return "as before" if value == known and isinstance(value, dict | str) and len(value) > _SHORT else value
