"""What the server's tests build on: rows to show, a provider that says what it is told, and ways to ask."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from letta_client.types import ToolReturnMessage
from letta_client.types import agents as wire

from kelpie.app import Kelpie
from kelpie.core.conversations.messages import Message, Part, Role, Text, ToolCall, Usage
from kelpie.core.ids import AgentId, MessageId, RunId, StepId
from kelpie.core.settings.settings import Settings
from kelpie.llm.provider.interface import EmbeddingInfo, Event, ModelInfo, Reply, Request, TextDelta
from kelpie.server.app import create_app
from kelpie.world.clock import Clock, SystemClock
from kelpie.world.http.port import Http, NetworkHttp
from kelpie.world.ids import RandomIds
from kelpie.world.keyring import Key, Keyring
from kelpie.world.processes.processes import SystemProcesses
from kelpie.world.world import World
from tests.new_database import open_new_database
from tests.server.description import document

AGENT = AgentId("agent-00000000-0000-4000-8000-000000000001")
MESSAGE = MessageId("message-06673e64-5c7a-4a21-aa3c-b8fa8d9132ff")
RUN = RunId("run-00000000-0000-4000-8000-000000000003")
STEP = StepId("step-00000000-0000-4000-8000-000000000004")
AT = 1_700_000_000_123_456

SDK_HEADERS = {"X-Stainless-Package-Version": "1.12.1"}

SDK_MESSAGES = {
    "system_message": wire.SystemMessage,
    "user_message": wire.UserMessage,
    "assistant_message": wire.AssistantMessage,
    "reasoning_message": wire.ReasoningMessage,
    "hidden_reasoning_message": wire.HiddenReasoningMessage,
    "tool_call_message": wire.ToolCallMessage,
    "tool_return_message": ToolReturnMessage,
    "summary_message": wire.SummaryMessage,
    "event_message": wire.EventMessage,
}


def check_message(message: Mapping[str, Any]) -> None:
    """The SDK's own model accepts the message, strictly."""
    SDK_MESSAGES[message["message_type"]].model_validate(message)


def row(role: Role, *content: Part | str, **fields: Any) -> Message:
    parts = tuple(Text(part) if isinstance(part, str) else part for part in content)
    return Message(
        id=fields.pop("id", MESSAGE),
        agent_id=AGENT,
        role=role,
        created_at=AT,
        content=parts,
        run_id=RUN,
        step_id=STEP,
        **fields,
    )


def said(text: str) -> Reply:
    return Reply((Text(text),), (), "stop", Usage(10, 2, 12))


def called(name: str, arguments: str, call_id: str = "call_1") -> Reply:
    return Reply((), (ToolCall(call_id, name, arguments),), "tool_calls", Usage(10, 2, 12))


class Puppet:
    """A provider that gives the replies it was handed, in order; an exception is raised. Then it says "ok".

    The answer to a text in `held` waits for its event first, whoever was asked before.
    """

    name = "fake"

    def __init__(self) -> None:
        self.script: deque[Reply | Exception | asyncio.Event] = deque()
        self.held: dict[str, asyncio.Event] = {}
        self.asked: list[Request] = []
        self.waiting = asyncio.Event()

    async def models(self) -> Sequence[ModelInfo]:
        return [self.describe("model")]

    def describe(self, name: str) -> ModelInfo:
        return ModelInfo(f"fake/{name}", name, "fake", "openai", 100_000, "http://fake.example/v1", 4096)

    async def embeddings(self) -> Sequence[EmbeddingInfo]:
        return [EmbeddingInfo("fake/embed", "embed", "fake", "openai", 8, "http://fake.example/v1")]

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        self.asked.append(request)
        if request.messages and (gate := self.held.get(request.messages[-1].message.text)) is not None:
            await gate.wait()
        item = self.script.popleft() if self.script else said("ok")
        if isinstance(item, asyncio.Event):
            self.waiting.set()
            await item.wait()
            item = self.script.popleft() if self.script else said("ok")
        if isinstance(item, Exception):
            raise item
        if request.deltas:
            for part in item.content:
                if isinstance(part, Text):
                    for word in part.text.split(" "):
                        yield TextDelta(word)
        yield item

    async def close(self) -> None:
        return


@asynccontextmanager
async def open_rig(
    tmp_path: Path,
    *,
    lifecycle: bool = True,
    password_kept: str | None = None,
    clock: Clock | None = None,
    puppet: Puppet | None = None,
    http: Http | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Kelpie, Puppet]]:
    """A whole Kelpie on its own SQLite file, with the puppet as its only provider; `serve` starts and stops its own."""
    puppet = puppet or Puppet()
    world = World(
        clock=clock or SystemClock(),
        ids=RandomIds(),
        random=random.Random(),
        database=open_new_database(tmp_path / "kelpie.db", started=clock is None),
        http=http or NetworkHttp(),
        processes=SystemProcesses(),
        keyring=Keyring([Key(bytes(32))]),
    )
    given = Settings(data_dir=str(tmp_path), default_model="fake/model", port=0)
    kelpie = Kelpie(world, replace(given, **settings), providers=[puppet], password_kept=password_kept)
    if not lifecycle:
        yield kelpie, puppet
        return
    await kelpie.start()
    try:
        yield kelpie, puppet
    finally:
        await kelpie.stop(5.0)


def client_of(
    kelpie: Kelpie, headers: Mapping[str, str] = SDK_HEADERS, *, describes_itself: bool = False
) -> httpx.AsyncClient:
    """An HTTP client that speaks to the application directly, which gives the description that all have.

    With `describes_itself` it makes its own.
    """
    app = create_app(kelpie)
    if not describes_itself:
        app.openapi = document
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8283", headers=dict(headers))


async def make_agent(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/v1/agents/", json={"name": "one", **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()
