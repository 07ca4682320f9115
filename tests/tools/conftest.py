"""A database with two agents, and a way to run a built-in tool as the journal does."""

import random
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import Connection

from kelpie.core.agents import Agent, AgentType, ModelChoice
from kelpie.core.ids import AgentId
from kelpie.storage import agents, schema
from kelpie.tools.arguments import check_arguments
from kelpie.tools.builtin import BUILTINS
from kelpie.tools.port import CallContext, Outcome
from kelpie.world.http import NetworkHttp
from kelpie.world.ids import SeededIds
from kelpie.world.processes import SystemProcesses
from kelpie.world.sqlite import SqliteDatabase, memory_connection
from kelpie.world.world import World

ANN, BEN = (AgentId(f"agent-00000000-0000-4000-8000-00000000000{n}") for n in (1, 2))
NOW = 1_700_000_000_000_000


def make_agent(agent_id: AgentId, timezone: str = "UTC") -> Agent:
    model = ModelChoice("kelpie/demo", 8000)
    return Agent(agent_id, "Ann", AgentType.memgpt_agent, "", model, NOW, NOW, timezone=timezone)


class TickingClock:
    def __init__(self) -> None:
        self._now = NOW

    def now(self) -> int:
        self._now += 1_000_000
        return self._now

    def monotonic_ns(self) -> int:
        return self._now * 1000


Run = Callable[..., Outcome]


@pytest.fixture
def tx() -> Iterator[Connection]:
    with memory_connection() as connection:
        schema.create(connection)
        for agent_id in (ANN, BEN):
            agents.create(connection, make_agent(agent_id))
        yield connection


@pytest.fixture
def run(tx: Connection) -> Run:
    """Runs a tool by name; the arguments go through the same check as a model's."""
    rng = random.Random(1)

    def call(tool: str, agent: Agent | None = None, now: int = NOW, **arguments: Any) -> Outcome:
        builtin = BUILTINS[tool]
        context = CallContext(agent or make_agent(ANN), now, SeededIds(rng).uuid())
        return builtin.run(tx, context, check_arguments(builtin.schema, arguments))

    return call


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    database = SqliteDatabase.open(tmp_path / "kelpie.db", synchronous="OFF")
    await schema.ensure_schema(database)

    def add_agents(tx: Connection) -> None:
        for agent_id in (ANN, BEN):
            agents.create(tx, make_agent(agent_id))

    await database.transact(add_agents)
    rng = random.Random(1)
    yield World(TickingClock(), SeededIds(rng), rng, database, NetworkHttp(), SystemProcesses())
    await database.close()
