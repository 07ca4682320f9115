"""The people of a scenario: clients of the REST API that write down what they said and what they heard.

A person never guesses: what was answered is acknowledged or failed, everything else is unknown. An answer that does not
come at all, and an answer that only a bug can give, break the run at once.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kelpie.core.runs import RunStatus, StopReason, status_for
from kelpie.server.errors import UNKNOWN
from kelpie.sim.asgi import Response, SimClient, Stream, TimedOut
from kelpie.sim.errors import Broken
from kelpie.sim.history import Fate, Said
from kelpie.sim.network import ConnectionLost
from kelpie.sim.stage import Stage

T = TypeVar("T")

PATIENCE_S = 3600.0  # far more than any wait that the server allows itself
TRIES_MAX = 200
PAUSE_S = (0.2, 2.0)
_MAY_BE_TOLD = (409, 429, 503)


@dataclass(slots=True)
class Heard:
    """What came back for one message. `status` is None when nothing came."""

    said: Said
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    trouble: str = ""
    streamed: bool = False
    stepless: bool = False  # it was sent with max_steps=0
    conversation: str | None = None  # in which it was said, when it was said in one
    answering: bool = False  # it came with answers to calls, which somebody else may have answered

    @property
    def acknowledged(self) -> bool:
        return self.said.fate is Fate.acknowledged

    def results(self, tool: str) -> list[str]:
        """What this tool gave back, where it succeeded."""
        calls = {
            call["tool_call_id"]
            for message in self.messages
            if message["message_type"] == "tool_call_message"
            for call in message["tool_calls"]
            if call["name"] == tool
        }
        return [
            one["tool_return"]
            for message in self.messages
            if message["message_type"] == "tool_return_message"
            for one in message["tool_returns"]
            if one["status"] == "success" and one["tool_call_id"] in calls
        ]


class Person:
    """One client and its memory."""

    def __init__(self, stage: Stage, name: str, heard: list[Heard], client: SimClient | None = None) -> None:
        self._stage = stage
        self._client = client or stage.client(name)
        self._rng = stage.loop.rng(f"person/{name}")
        self._heard = heard
        self.name = name

    async def pause(self, longest_s: float = 1.0) -> None:
        """Does nothing for a while."""
        await asyncio.sleep(self._rng.uniform(0.0, longest_s))

    def tosses(self, chance: float) -> bool:
        """Whether something that happens so often happens now."""
        return self._rng.random() < chance

    def picks(self, options: Sequence[T]) -> T:
        """One of several things to do."""
        return self._rng.choice(options)

    async def ask(self, method: str, path: str, body: Any = None) -> Response | None:
        """One request; None when its outcome is unknown. Raises Broken for what no answer may be."""
        await self._stage.up()
        try:
            response = await self._client.request(method, path, body, timeout_s=PATIENCE_S)
        except TimedOut as late:
            raise Broken("every request is answered", str(late)) from late
        except ConnectionLost:
            return None
        if response.status == 500 and UNKNOWN.encode() in response.body:
            raise Broken("no request ends in an unknown error", f"{method} {path}")
        return response

    async def insist(self, method: str, path: str, body: Any = None) -> Any:
        """Asks until it works. Raises Broken when it never does, or is refused for good."""
        for _ in range(TRIES_MAX):
            response = await self.ask(method, path, body)
            if response is not None and response.status == 200:
                return response.json()
            if response is not None and response.status < 500 and response.status not in _MAY_BE_TOLD:
                raise Broken("a sound request is accepted", f"{method} {path}: {response.status} {response.body!r}")
            await asyncio.sleep(self._rng.uniform(*PAUSE_S))
        raise Broken("the server recovers", f"{method} {path} failed {TRIES_MAX} times")

    async def say(
        self,
        agent_id: str,
        *lines: str,
        stream: bool = False,
        tokens: bool = False,
        max_steps: int | None = None,
        conversation: str | None = None,
        client_tools: Sequence[Mapping[str, Any]] = (),
        answers: Sequence[Mapping[str, Any]] = (),
    ) -> Heard:
        """Sends one message with a token of its own; `{token}` in the lines is replaced by it.

        It goes to the agent, or into one of its conversations, where it may be told that somebody else is at it.
        `answers` are those to calls that wait, which come before it.
        """
        await self._stage.up()
        token = self._stage.history.token()
        said = self._stage.history.say(agent_id, token)
        heard = Heard(said, streamed=stream, stepless=max_steps == 0, conversation=conversation)
        heard.answering = bool(answers)
        self._heard.append(heard)
        text = "\n".join([token, *lines]).replace("{token}", token)
        body: dict[str, Any] = {"input": text}
        if answers:
            spoken = {"role": "user", "content": text}
            body = {"messages": [{"type": "approval", "approvals": list(answers)}, spoken]}
        if client_tools:
            body["client_tools"] = list(client_tools)
        if max_steps is not None:
            body["max_steps"] = max_steps
        if conversation is not None:
            path, body = f"/v1/conversations/{conversation}/messages", {**body, "agent_id": agent_id}
            if stream:
                await self._listen(heard, path, {**body, "stream_tokens": tokens})
            else:
                await self._wait(heard, path, {**body, "streaming": False})
        elif stream:
            await self._listen(heard, f"/v1/agents/{agent_id}/messages/stream", {**body, "stream_tokens": tokens})
        else:
            await self._wait(heard, f"/v1/agents/{agent_id}/messages", body)
        return heard

    async def _wait(self, heard: Heard, path: str, body: Any) -> None:
        response = await self.ask("POST", path, body)
        if response is None:
            self._stage.history.heard(heard.said, Fate.unknown)
            return
        heard.status, heard.headers = response.status, response.headers
        if response.status != 200:
            self._refused(heard, response.body)
            return
        answer = response.json()
        heard.messages = answer["messages"]
        self._ended(heard, answer["stop_reason"]["stop_reason"], _answers(heard.messages))

    def _refused(self, heard: Heard, body: bytes) -> None:
        told = json.loads(body)
        heard.trouble = str(told.get("error") or told.get("detail"))
        sound = heard.status in _MAY_BE_TOLD and (heard.status != 409 or "stopped" in heard.trouble)
        sound = sound or (heard.status == 409 and heard.conversation is not None and "BUSY" in heard.trouble)
        sound = sound or (heard.status == 409 and "PENDING_APPROVAL" in heard.trouble)
        sound = sound or (heard.status == 400 and heard.answering)
        removed = {heard.said.agent_id, heard.conversation} & self._stage.history.removed
        sound = sound or (heard.status == 404 and bool(removed))
        if not sound and "error" not in told:
            raise Broken("a sound message is accepted", f"{heard.said.token}: {heard.status} {heard.trouble}")
        self._stage.history.heard(heard.said, Fate.failed)

    def _ended(self, heard: Heard, reason: str, answers: tuple[str, ...]) -> None:
        if status_for(StopReason(reason)) is not RunStatus.completed:
            fate = Fate.failed
        elif heard.stepless:
            fate = Fate.unknown  # without a step nothing enters the history
        elif reason == StopReason.requires_approval or answers == (f"echo {heard.said.token}",):
            fate = Fate.acknowledged
        else:
            raise Broken("an acknowledged message has its answer", f"{heard.said.token}: {reason} with {answers}")
        self._stage.history.heard(heard.said, fate, reason, answers)

    async def _listen(self, heard: Heard, path: str, body: Any) -> None:
        history = self._stage.history
        try:
            async with (
                asyncio.timeout(PATIENCE_S),
                self._client.stream("POST", path, body) as stream,
            ):
                heard.status, heard.headers = stream.status, stream.headers
                if stream.status != 200:
                    self._refused(heard, b"".join([chunk async for chunk in stream.chunks()]))
                    return
                await self._follow(heard, stream)
        except TimeoutError as late:
            raise Broken("every stream ends", f"{heard.said.token} got no end of its stream") from late
        except ConnectionLost:
            history.heard(heard.said, Fate.unknown)

    async def _follow(self, heard: Heard, stream: Stream) -> None:
        reason: str | None = None
        done = False
        async for event in stream.events():
            if event.data == "[DONE]":
                done = True
                continue
            frame = event.json()
            if event.event == "error":
                heard.trouble = f"{frame['error_type']}: {frame['message']}"
            elif frame["message_type"] == "stop_reason":
                reason = frame["stop_reason"]
            else:
                heard.messages.append(frame)
        if not done or reason is None:
            raise Broken("a stream ends with its end", f"{heard.said.token}: {reason}, done {done}")
        if UNKNOWN in heard.trouble:
            raise Broken("no request ends in an unknown error", f"the stream of {heard.said.token}")
        if heard.trouble.startswith("stream_incomplete"):
            self._stage.history.heard(heard.said, Fate.unknown)
        elif heard.trouble:
            self._stage.history.heard(heard.said, Fate.failed, reason)
        else:
            self._ended(heard, reason, _answers(heard.messages))


def _answers(messages: list[dict[str, Any]]) -> tuple[str, ...]:
    """The texts of the answers; pieces of one message belong together."""
    found: dict[str, str] = {}
    for message in messages:
        if message["message_type"] == "assistant_message":
            found[message["otid"]] = found.get(message["otid"], "") + message["content"]
    return tuple(found.values())
