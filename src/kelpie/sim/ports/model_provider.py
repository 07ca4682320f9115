"""A model provider on the simulated internet: OpenAI's chat completions with a scripted model, and its embeddings.

`scripted_model.decide` decides the answers; this module is the wire, and the ways in which providers fail: silence, 429
with and without Retry-After, 500, broken JSON, a page of HTML, no choices, arguments that are no JSON, a stream that
stops in the middle.
"""

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kelpie.llm.catalog.known_models import EMBEDDING_DIMENSIONS
from kelpie.sim.faults import Fault, Faults
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.network.outgoing_http import OutgoingRequest, OutgoingResponse
from kelpie.sim.ports.embedder import vector_of
from kelpie.sim.ports.scripted_model import Call, Decision, decide, sums_up

THINK_S = (0.05, 1.5)
TOKEN_S = (0.001, 0.03)
CHUNK_CHARS = 8
SILENCE_S = 24 * 3600.0
LONG_SUMMARIES = (700, 10_000)  # phrases: more than its share, and more than what it stands for
RETRY_AFTER_S = 2
HEARTBEAT = "request_heartbeat"

_JSON = {"content-type": "application/json"}
_SSE = {"content-type": "text/event-stream; charset=utf-8"}


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request that reached the model, for checks: the prompt and its time."""

    at_s: float
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChargedReply:
    """A reply that the model has sent to its end, and the tokens that the provider charges for it."""

    at_s: float
    asked: str  # the last message of the user
    prompt_tokens: int
    completion_tokens: int
    model: str


class ScriptedLlm:
    """A handler for `Internet.host`."""

    def __init__(
        self,
        loop: SimLoop,
        faults: Faults,
        *,
        mind: Callable[..., Decision] = decide,
        models: tuple[str, ...] = ("scripted",),
    ) -> None:
        self.seen: list[SeenRequest] = []
        self.charged: list[ChargedReply] = []
        self.summary_bytes_max: int | None = None  # a longer request for a summary is refused
        self._loop = loop
        self._faults = faults
        self._mind = mind
        self._models = models
        self._rng = loop.rng("llm")

    async def __call__(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        path = asked.path.partition("?")[0]
        if asked.method == "GET" and path.endswith("/models"):
            await _reply(answer, {"object": "list", "data": [{"id": name, "object": "model"} for name in self._models]})
        elif asked.method == "POST" and path.endswith("/chat/completions"):
            await self._complete(json.loads(asked.body), answer)
        elif asked.method == "POST" and path.endswith("/embeddings"):
            await self._embed(json.loads(asked.body), answer)
        else:
            await _reply(answer, _error(f"no route {asked.method} {path}", "invalid_request_error"), status=404)

    async def _complete(self, body: dict[str, Any], answer: OutgoingResponse) -> None:
        self.seen.append(SeenRequest(self._loop.time(), body))
        self._loop.note(f"llm asked with {len(body.get('messages', []))} messages")
        if self._faults.fires(Fault.llm_timeout, "llm.reply"):
            await asyncio.sleep(SILENCE_S)
        if await self._refuse(answer):
            return
        await asyncio.sleep(self._rng.uniform(*THINK_S))
        if self._faults.fires(Fault.llm_malformed, "llm.status"):
            await _reply(answer, _error("The server had an error.", "server_error"), status=500)
            return
        if self._faults.fires(Fault.llm_malformed, "llm.content_type"):
            await _raw(answer, b"<html><body>Bad gateway</body></html>", {"content-type": "text/html"})
            return
        if self._faults.fires(Fault.llm_malformed, "llm.body"):
            await _raw(answer, b'{"id": "chatcmpl-broken", "choices": [{"mess')
            return
        if await self._too_long(body, answer):
            return
        decision = self._decide(body)
        if body.get("stream"):
            await self._stream(body, decision, answer)
        else:
            await self._whole(body, decision, answer)

    async def _embed(self, body: Mapping[str, Any], answer: OutgoingResponse) -> None:
        if self._faults.fires(Fault.embedding_timeout, "embedding.provider"):
            await asyncio.sleep(SILENCE_S)
        await asyncio.sleep(self._rng.uniform(*TOKEN_S))
        if self._faults.fires(Fault.embedding_fail, "embedding.provider"):
            await _reply(answer, _error("The server had an error.", "server_error"), status=500)
            return
        dimensions = EMBEDDING_DIMENSIONS[body["model"]]
        vectors = [base64.b64encode(vector_of(text, dimensions)).decode() for text in body["input"]]
        data = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
        await _reply(answer, {"object": "list", "data": data, "model": body["model"]})

    async def _refuse(self, answer: OutgoingResponse) -> bool:
        told = self._faults.fires(Fault.llm_rate_limit, "llm.with_retry_after")
        if not told and not self._faults.fires(Fault.llm_rate_limit, "llm.without_retry_after"):
            return False
        headers = {"retry-after": str(RETRY_AFTER_S)} if told else {}
        await _reply(answer, _error("Rate limit reached.", "rate_limit_exceeded"), status=429, headers=headers)
        return True

    async def _too_long(self, body: Mapping[str, Any], answer: OutgoingResponse) -> bool:
        if sums_up(body["messages"]):
            if self.summary_bytes_max is not None and len(json.dumps(body["messages"])) > self.summary_bytes_max:
                told = _error("This model's maximum context length was exceeded.", "context_length_exceeded")
                await _reply(answer, told, status=400)
                return True
            if not self._faults.fires(Fault.llm_malformed, "llm.summary_fails"):
                return False
            await _reply(answer, _error("The server had an error.", "server_error"), status=500)
            return True
        if not self._faults.fires(Fault.llm_malformed, "llm.overflow"):
            return False
        told = _error("This model's maximum context length was exceeded.", "context_length_exceeded")
        await _reply(answer, told, status=400)
        return True

    def _decide(self, body: Mapping[str, Any]) -> Decision:
        if sums_up(body["messages"]):
            return self._sum_up(body)
        tools = [tool["function"]["name"] for tool in body.get("tools") or ()]
        decision = _going_on(self._mind(body["messages"], tools, body.get("tool_choice")), body)
        if decision.calls and self._faults.fires(Fault.llm_malformed, "llm.arguments"):
            first = replace(decision.calls[0], arguments='{"unfinished": ')
            return Decision(calls=(first, *decision.calls[1:]))
        return decision

    def _sum_up(self, body: Mapping[str, Any]) -> Decision:
        decision = self._mind(body["messages"], ())
        if self._faults.fires(Fault.llm_malformed, "llm.summary_empty"):
            return replace(decision, text="")
        if self._faults.fires(Fault.llm_malformed, "llm.summary_long"):
            return replace(decision, text=f"{decision.text} {'and so on ' * self._rng.choice(LONG_SUMMARIES)}")
        return decision

    async def _whole(self, body: Mapping[str, Any], decision: Decision, answer: OutgoingResponse) -> None:
        message: dict[str, Any] = {"role": "assistant", "content": decision.text or None}
        if decision.calls:
            message["tool_calls"] = [_call(call.id, call.name, call.arguments) for call in decision.calls]
        choices = [{"index": 0, "message": message, "finish_reason": _finish(decision), "logprobs": None}]
        if self._faults.fires(Fault.llm_malformed, "llm.choices"):
            choices = []
        head = _head(body, "chat.completion", len(self.seen))
        await _reply(answer, {**head, "choices": choices, "usage": _usage(body, decision)})
        self._charge(body, decision)

    async def _stream(self, body: Mapping[str, Any], decision: Decision, answer: OutgoingResponse) -> None:
        head = _head(body, "chat.completion.chunk", len(self.seen))
        deltas = _deltas(decision)
        if self._faults.fires(Fault.llm_malformed, "llm.choices"):
            deltas = []
        cut = (
            self._rng.randrange(len(deltas)) if deltas and self._faults.fires(Fault.llm_malformed, "llm.cut") else None
        )
        stuck = deltas and self._faults.fires(Fault.llm_timeout, "llm.stream")
        await answer.start(200, _SSE)
        for index, delta in enumerate(deltas):
            if index == cut:
                answer.cut()
                return
            if stuck and index:
                await asyncio.sleep(SILENCE_S)
            finish = _finish(decision) if index == len(deltas) - 1 else None
            await _event(answer, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
            await asyncio.sleep(self._rng.uniform(*TOKEN_S))
        if (body.get("stream_options") or {}).get("include_usage"):
            await _event(answer, {**head, "choices": [], "usage": _usage(body, decision)})
        await answer.send(b"data: [DONE]\n\n")
        self._charge(body, decision)

    def _charge(self, body: Mapping[str, Any], decision: Decision) -> None:
        usage, said = _usage(body, decision), [m["content"] for m in body["messages"] if m["role"] == "user"]
        tokens = usage["prompt_tokens"], usage["completion_tokens"]
        self.charged.append(ChargedReply(self._loop.time(), str(said[-1]) if said else "", *tokens, body["model"]))


def _going_on(decision: Decision, body: Mapping[str, Any]) -> Decision:
    """The calls with a request for the next step, where the tool offers one: a script goes on to its end."""
    asking = {
        tool["function"]["name"]
        for tool in body.get("tools") or ()
        if HEARTBEAT in tool["function"].get("parameters", {}).get("properties", {})
    }
    return replace(decision, calls=tuple(_asking(call) if call.name in asking else call for call in decision.calls))


def _asking(call: Call) -> Call:
    return replace(call, arguments=json.dumps({**json.loads(call.arguments), HEARTBEAT: True}))


def _deltas(decision: Decision) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "" if decision.text else None}]
    deltas += [{"content": piece} for piece in _pieces(decision.text)]
    for index, call in enumerate(decision.calls):
        deltas.append({"tool_calls": [{"index": index, **_call(call.id, call.name, "")}]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in _pieces(call.arguments)
        ]
    return [*deltas, {}]


def _pieces(text: str) -> list[str]:
    return [text[start : start + CHUNK_CHARS] for start in range(0, len(text), CHUNK_CHARS)]


def _call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _finish(decision: Decision) -> str:
    return "tool_calls" if decision.calls else "stop"


def _head(body: Mapping[str, Any], kind: str, number: int) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 1_767_225_600, "model": body.get("model")}


def _usage(body: Mapping[str, Any], decision: Decision) -> dict[str, int]:
    prompt = len(json.dumps(body["messages"])) // 4
    reply = 1 + (len(decision.text) + sum(len(call.arguments) for call in decision.calls)) // 4
    return {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply}


def _error(message: str, code: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": code, "code": code}}


async def _event(answer: OutgoingResponse, chunk: Mapping[str, Any]) -> None:
    await answer.send(b"data: " + json.dumps(chunk).encode() + b"\n\n")


async def _reply(
    answer: OutgoingResponse, body: Mapping[str, Any], *, status: int = 200, headers: Mapping[str, str] | None = None
) -> None:
    await answer.start(status, {**_JSON, **(headers or {})})
    await answer.send(json.dumps(body).encode())


async def _raw(answer: OutgoingResponse, data: bytes, headers: Mapping[str, str] = _JSON) -> None:
    await answer.start(200, dict(headers))
    await answer.send(data)
