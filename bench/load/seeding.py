"""Agents with a past: messages written straight into the database file, as so many turns would have left them.

The agent must be cold, and the rows are of the shape that turns write; nothing of this is part of the product.
"""

import asyncio
import uuid
from pathlib import Path

from kelpie.core.conversations.messages import Message, Role, Text
from kelpie.core.ids import AgentId, MessageId
from kelpie.storage.conversations import messages
from kelpie.world.database import Tx
from kelpie.world.sqlite.database import SqliteDatabase

PIECE = 2_000
_WORDS = "a message of the usual length, as people write them to an agent every day"


async def give_past(database_file: Path, agent_id: str, many: int, *, seen: bool) -> None:
    """Adds so many messages to the agent's history; `seen` puts them before the model as well."""
    database = SqliteDatabase.open(database_file)
    try:
        for start in range(0, many, PIECE):
            rows = [_row(AgentId(agent_id), start + i) for i in range(min(PIECE, many - start))]
            await database.transact(lambda tx, rows=rows: _write(tx, rows, seen))
            await asyncio.sleep(0)
    finally:
        await database.close()


def _write(tx: Tx, rows: list[Message], seen: bool) -> None:
    messages.append(tx, rows, "" if seen else None)


def _row(agent_id: AgentId, number: int) -> Message:
    role = Role.assistant if number % 2 else Role.user
    return Message(
        id=MessageId(f"message-{uuid.uuid4()}"),
        agent_id=agent_id,
        role=role,
        created_at=1_700_000_000_000_000 + number,
        content=(Text(f"{_WORDS} {number}"),),
        otid=str(uuid.uuid4()),
    )
