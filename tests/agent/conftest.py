"""A whole Kelpie in this process: real SQLite on disk, a scripted model instead of a network."""

import random
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from kelpie.agent.events.turn_events import MessageCommitted, TurnEnded
from kelpie.agent.turn.send_request import SendRequest
from kelpie.app import Kelpie
from kelpie.core.conversations.messages import NewMessage, Role, Text, ToolCall, Usage
from kelpie.core.errors import ModelError
from kelpie.core.settings.settings import Settings
from kelpie.llm.provider.interface import Event, ModelInfo, Reply, Request
from kelpie.world.clock import SystemClock
from kelpie.world.http.port import NetworkHttp
from kelpie.world.ids import RandomIds
from kelpie.world.keyring import Key, Keyring
from kelpie.world.processes.processes import SystemProcesses
from kelpie.world.world import World
from tests.new_database import open_new_database

MODEL = "test/script"


def says(text="", *calls, finish=None) -> Reply:
    made = tuple(
        ToolCall(f"call_{i}", name, arguments if isinstance(arguments, str) else __import__("json").dumps(arguments))
        for i, (name, arguments) in enumerate(calls)
    )
    return Reply((Text(text),) if text else (), made, finish or ("tool_calls" if made else "stop"), Usage(10, 5, 15))


class ScriptModel:
    """Plays replies in order and remembers what it was asked. A function in the script gets the request."""

    name = "test"

    def __init__(self) -> None:
        self.script: list[Reply | ModelError | Callable[[Request], Reply]] = []
        self.requests: list[Request] = []
        self.hold = None  # an asyncio.Event that the model waits for

    async def models(self) -> Sequence[ModelInfo]:
        return [self.describe("script")]

    def describe(self, name: str) -> ModelInfo:
        return ModelInfo(MODEL, name, "test", "openai", 128_000, "test", 4096)

    async def embeddings(self):
        return []

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        self.requests.append(request)
        if self.hold is not None:
            await self.hold.wait()
        line = self.script.pop(0) if self.script else says("ok")
        if callable(line):
            line = line(request)
        if isinstance(line, ModelError):
            raise line
        yield line

    async def close(self) -> None: ...


class Rig:
    """A Kelpie that can be cut off and started again on the same file."""

    def __init__(self, path, external=None, **settings) -> None:
        self.path = path
        self.settings = Settings(default_model=MODEL, **settings)
        self.model = ScriptModel()
        self.external = external
        self.kelpie: Kelpie

    async def start(self) -> "Rig":
        database = open_new_database(self.path, started=True)
        keyring = Keyring([Key(bytes(32))])
        world = World(
            SystemClock(),
            RandomIds(),
            random.Random(1),
            database,
            NetworkHttp(),
            SystemProcesses(),
            keyring=keyring,
        )
        self.kelpie = Kelpie(world, self.settings, providers=[self.model], external=self.external)
        await self.kelpie.start()
        return self

    async def stop(self) -> None:
        await self.kelpie.stop(0.0)

    async def say(self, agent_id, text, **options):
        turn = await self.kelpie.api().sending.send(
            agent_id, SendRequest((NewMessage(Role.user, (Text(text),)),), **options)
        )
        return [event async for event in turn.events()]


def rows(events):
    return [e.message for e in events if isinstance(e, MessageCommitted)]


def ended(events) -> TurnEnded:
    assert isinstance(events[-1], TurnEnded)
    return events[-1]


@pytest.fixture
async def rig(tmp_path):
    made = await Rig(tmp_path / "kelpie.db").start()
    yield made
    await made.stop()
