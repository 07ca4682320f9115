"""Working memory in a checkpoint. An expiry is a moment, not a span: an entry that has expired by the time of the
restore is not restored, and a version that was used is not used again.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId
from kelpie.core.memory.working_memory import WorkingMemoryEntry, WorkingMemoryLimits, check_key, encoded
from kelpie.core.time import Micros
from kelpie.storage.checkpoints.pieces import Piece, each_part, one
from kelpie.storage.checkpoints.rows import distinct, members, row, section
from kelpie.storage.memory import working_memory as rows
from kelpie.storage.tables import working_memory
from kelpie.world.database import Tx

ENTRIES = 200  # of one piece

_COLUMNS = ("key", "version", "created_at", "updated_at", "expires_at")
_UNBOUND = WorkingMemoryLimits(value_bytes=2**31)  # entries from the time of larger limits are restored too


def take(tx: Tx, agent_id: AgentId, now: Micros) -> list[dict[str, Any]]:
    """The entries that have not expired, in the form of the document."""
    found = rows.every(tx, agent_id)
    return [asdict(entry) for entry in found if entry.expires_at is None or entry.expires_at > now]


def read(memory: Mapping[str, Any]) -> list[tuple[WorkingMemoryEntry, str]]:
    """Entries, each with its value as JSON. Raises InvalidInput."""
    found = list[tuple[WorkingMemoryEntry, str]]()
    for number, data in enumerate(section(memory, "working_memory")):
        where = f"memory.working_memory[{number}]"
        given = members(data, where, (*_COLUMNS, "value"))
        values = row(working_memory, {name: given[name] for name in _COLUMNS}, where, _COLUMNS)
        try:
            check_key(values["key"])
            text = encoded(given["value"], _UNBOUND)
        except InvalidInput as error:
            raise InvalidInput(f"{where}.{error.field}", error.remedy) from None
        found.append((WorkingMemoryEntry(**values, value=given["value"]), text))
    distinct(({"key": entry.key} for entry, _ in found), lambda each: each["key"], "memory.working_memory")
    return found


def pieces(
    tx: Tx, agent_id: AgentId, wanted: list[tuple[WorkingMemoryEntry, str]], now: Micros
) -> tuple[int, int, list[Piece]]:
    """The writes that make these the entries, how many there are then and how many had expired."""
    live = [each for each in wanted if each[0].expires_at is None or each[0].expires_at > now]
    there = [entry.key for entry in rows.every(tx, agent_id)]
    newest = max((entry.version for entry, _ in wanted), default=0)
    writes = [
        *each_part(there, ENTRIES, lambda tx, keys: rows.remove_keys(tx, agent_id, keys)),
        *each_part(live, ENTRIES, lambda tx, some: rows.insert_many(tx, agent_id, some), lambda each: len(each[1])),
        one(lambda tx: rows.raise_version(tx, agent_id, newest)),
    ]
    return len(live), len(wanted) - len(live), writes
