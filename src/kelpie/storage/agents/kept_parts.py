"""Parts of agent files that this server cannot use yet, as one document for each agent that came with them."""

from typing import Any

import orjson
import sqlalchemy as sa

from kelpie.core.agents.agent_file import NOTHING_KEPT, KeptParts
from kelpie.core.ids import AgentId
from kelpie.storage.tables import agent_file_parts
from kelpie.world.database import Tx

_INSERT = sa.insert(agent_file_parts)
_ONE = sa.select(agent_file_parts.c.document).where(agent_file_parts.c.agent_id == sa.bindparam("of_agent"))


def write(tx: Tx, agent_id: AgentId, kept: KeptParts) -> None:
    """Stores what an agent came with, if it is anything."""
    if not kept.empty:
        document = orjson.dumps({name: list(getattr(kept, name)) for name in KeptParts.__slots__}).decode()
        tx.execute(_INSERT, {"agent_id": agent_id, "document": document})


def read(tx: Tx, agent_id: AgentId) -> KeptParts:
    """What an agent came with."""
    found = tx.execute(_ONE, {"of_agent": agent_id}).scalar()
    if found is None:
        return NOTHING_KEPT
    document: dict[str, list[Any]] = orjson.loads(found)
    return KeptParts(**{name: tuple(document.get(name, ())) for name in KeptParts.__slots__})
