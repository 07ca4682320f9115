"""Two agents in a database, a clock that ticks, and a way to run a built-in tool as the journal does."""

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from kelpie.core.agents.agent import Agent, AgentType, ModelChoice
from kelpie.core.ids import AgentId, BlockId
from kelpie.core.memory.block_history import Author, AuthorKind
from kelpie.core.memory.blocks import Block
from kelpie.storage import schema
from kelpie.storage.agents import agents
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.blocks import blocks
from kelpie.tools.builtin import BUILTINS
from kelpie.tools.calls.argument_check import check_arguments
from kelpie.tools.calls.interface import NOTHING, CallContext, Outcome, Precomputed
from kelpie.world.http.port import NetworkHttp
from kelpie.world.ids import SeededIds
from kelpie.world.keyring import Key, Keyring
from kelpie.world.processes.processes import SystemProcesses
from kelpie.world.sqlite.connections import memory_connection
from kelpie.world.world import World
from tests.new_database import create_schema, open_new_database

ANN, BEN = (AgentId(f"agent-00000000-0000-4000-8000-00000000000{n}") for n in (1, 2))
NOBODY = AgentId("agent-00000000-0000-4000-8000-000000000099")
NOW = 1_700_000_000_000_000
SOMEBODY = Author(AuthorKind.user)


def make_agent(agent_id: AgentId, timezone: str = "UTC") -> Agent:
    model = ModelChoice("kelpie/demo", 8000)
    return Agent(agent_id, "Ann", AgentType.memgpt_agent, "", model, NOW, NOW, timezone=timezone)


def add_agents(tx: Connection) -> None:
    for agent_id in (ANN, BEN):
        agents.create(tx, make_agent(agent_id))


class TickingClock:
    """Every look at it is one second later."""

    def __init__(self) -> None:
        self._now = NOW

    def now(self) -> int:
        self._now += 1_000_000
        return self._now

    def monotonic_ns(self) -> int:
        return self._now * 1000


class Workshop:
    """Runs tools by name in one transaction; the arguments go through the same check as a model's."""

    def __init__(self, tx: Connection) -> None:
        self.tx = tx
        self._ids = SeededIds(random.Random(1))

    def run(
        self,
        tool: str,
        /,
        *,
        by: AgentId = ANN,
        timezone: str = "UTC",
        now: int = NOW,
        precomputed: Precomputed = NOTHING,
        **arguments: Any,
    ) -> Outcome:
        builtin = BUILTINS[tool]
        call = CallContext(make_agent(by, timezone), now, self._ids.uuid(), precomputed=precomputed)
        return builtin.run(self.tx, call, check_arguments(builtin.schema, arguments))

    def give(self, label: str, value: str = "", *agent_ids: AgentId, **fields: Any) -> Block:
        """Makes a block and hangs it on these agents, or on Ann."""
        block = Block(self._ids.new(BlockId), label, value, NOW, NOW, **fields)
        blocks.insert(self.tx, (block,), SOMEBODY)
        for agent_id in agent_ids or (ANN,):
            block_attachments.attach(self.tx, agent_id, block.id)
        return block

    def value(self, label: str, agent_id: AgentId = ANN) -> str | None:
        block = block_attachments.by_label(self.tx, agent_id, label)
        return None if block is None else block.value

    def number(self, item_id: str) -> int:
        """Of an item that can be searched; 0 when there is none."""
        rows = self.tx.exec_driver_sql("SELECT id FROM search_items WHERE item_id = ?", (item_id,)).all()
        return rows[0][0] if rows else 0

    def everything(self) -> list[tuple[Any, ...]]:
        """All rows that tools may write, to see whether anything was written."""
        names = ("blocks", "agent_blocks", "block_tags", "passages", "archives", "agent_archives", "search_items")
        return [
            (name, *row)
            for name in names
            for row in self.tx.exec_driver_sql(f"SELECT * FROM {name} ORDER BY 1, 2").all()
        ]


KEYRING = Keyring([Key(bytes(32))])


@contextmanager
def open_workshop() -> Iterator[Workshop]:
    with memory_connection() as connection:
        create_schema(connection)
        add_agents(connection)
        yield Workshop(connection)


@asynccontextmanager
async def open_world(directory: Path) -> AsyncIterator[World]:
    """A world on a real database file with the two agents in it."""
    database = open_new_database(directory / "kelpie.db")
    try:
        await schema.ensure_schema(database)
        await database.transact(add_agents)
        rng = random.Random(1)
        world = World(TickingClock(), SeededIds(rng), rng, database, NetworkHttp(), SystemProcesses(), keyring=KEYRING)
        yield world
        await world.workers.close()
    finally:
        await database.close()
