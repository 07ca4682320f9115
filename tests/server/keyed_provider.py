"""A provider with OpenAI's API that knows some keys, as the HTTP port of a server: no socket is opened."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.llm.fakes import TransportHttp

MODELS = ("gpt-4o", "gpt-4o-mini")
URL = "https://models.example/v1"


@dataclass
class Asked:
    """A request as the provider got it."""

    host: str
    path: str
    key: str
    body: dict[str, Any]


@dataclass
class KeyedProvider:
    """Answers with the account of the key; `before_answer` runs in the middle of a chat call."""

    accounts: dict[str, str] = field(default_factory=dict[str, str])
    models: tuple[str, ...] = MODELS
    asked: list[Asked] = field(default_factory=list[Asked])
    before_answer: Callable[[], Any] | None = None

    @property
    def http(self) -> TransportHttp:
        return TransportHttp(httpx.MockTransport(self._answer))

    @property
    def calls(self) -> list[Asked]:
        return [each for each in self.asked if each.path.endswith("/chat/completions")]

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        headers = request.headers
        key = headers.get("authorization", "").removeprefix("Bearer ") or headers.get("x-api-key", "")
        key = key or headers.get("api-key", "")
        body = json.loads(request.content) if request.content else {}
        self.asked.append(Asked(request.url.host, request.url.path, key, body))
        account = self.accounts.get(key)
        if account is None:
            said = {"message": f"Incorrect API key provided: {key}", "type": "invalid_request_error"}
            return httpx.Response(401, json={"error": said})
        if request.url.path.endswith("/models"):
            return httpx.Response(200, json={"data": [{"id": name} for name in self.models]})
        if request.url.path.endswith("/embeddings"):
            vectors = [{"index": n, "embedding": [1.0] + [0.0] * 1535} for n, _ in enumerate(body["input"])]
            return httpx.Response(200, json={"data": vectors})
        if self.before_answer is not None:
            await self.before_answer()
        message = {"role": "assistant", "content": f"from {account}"}
        usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return httpx.Response(200, json={"id": "x", "choices": [choice], "usage": usage})
