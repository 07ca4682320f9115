"""Rows of a result up to a size in bytes, for pages: however large the rows are, a page takes bounded memory."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import orjson
from sqlalchemy import Executable, Row

from kelpie.core.ids import AgentId
from kelpie.world.database import Tx

_FIXED_BYTES = 8  # of a number, a time or a null

R = TypeVar("R", bound=Row[Any])


def within_bytes(rows: Iterable[R], bytes_max: int | None) -> list[R]:
    """The first rows that have at most this many bytes together, and always the first one. Reads no row beyond the one
    that is too many.
    """
    if bytes_max is None:
        return list(rows)
    found: list[R] = []
    size = 0
    for row in rows:
        size += row_bytes(row)
        if found and size > bytes_max:
            break
        found.append(row)
    return found


def sizes_by_agent(tx: Tx, statement: Executable, agent_ids: Sequence[AgentId], chunk: int) -> dict[AgentId, int]:
    """The result of a statement that sums up bytes for each of `of_agents`; agents without rows are left out."""
    found: dict[AgentId, int] = {}
    for start in range(0, len(agent_ids), chunk):
        for agent_id, size in tx.execute(statement, {"of_agents": list(agent_ids[start : start + chunk])}):
            found[AgentId(agent_id)] = int(size or 0)
    return found


def row_bytes(values: Iterable[Any]) -> int:
    """Approximate size of values as JSON."""
    size = 0
    for value in values:  # one loop without calls: it runs for every column of every row of a page
        kind: object = value.__class__
        if kind is str or kind is bytes:
            size += len(value)
        elif value and (kind is list or kind is dict):
            size += len(orjson.dumps(value))
        else:
            size += _FIXED_BYTES
    return size
