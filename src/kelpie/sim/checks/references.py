"""Dangling references, for every table: found by foreign keys, and by names such as `agent_id` where there is none. A
column about the past (which run wrote a message) may outlive the row it names.
"""

from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Table

from kelpie.storage.tables import metadata

_KINDS = {
    "agent": "agents",
    "block": "blocks",
    "tool": "tools",
    "archive": "archives",
    "passage": "passages",
    "identity": "identities",
    "conversation": "conversations",
    "group": "groups",
    "message": "messages",
    "run": "runs",
    "step": "steps",
    "user": "users",
    "organization": "organizations",
    "sandbox_config": "sandbox_configs",
    "folder": "folders",
    "file": "files",
    "schedule": "schedules",
    "server": "mcp_servers",
    "key": "api_keys",
}
_PAST = {
    ("messages", "run_id"),
    ("messages", "step_id"),
    ("messages", "group_id"),
    ("messages", "conversation_id"),
    ("runs", "conversation_id"),
    ("tool_calls", "tool_id"),
    ("fact_sources", "message_id"),
    ("block_history", "key_id"),
    ("block_history", "run_id"),
    ("block_history", "step_id"),
    ("batch_items", "agent_id"),
    ("batch_items", "conversation_id"),
    ("batch_items", "run_id"),
    ("firings", "run_id"),
}
_BY_KIND = {
    "search_items.item_id (message)": """
        SELECT item_id FROM search_items WHERE kind = 'message' AND item_id NOT IN (SELECT id FROM messages)""",
    "search_items.item_id (passage)": """
        SELECT item_id FROM search_items WHERE kind = 'passage' AND item_id NOT IN (SELECT id FROM passages)""",
    "search_items.item_id (fact)": """
        SELECT item_id FROM search_items WHERE kind = 'fact' AND item_id NOT IN (SELECT id FROM facts)""",
    "search_items.item_id (tool)": """
        SELECT item_id FROM search_items WHERE kind = 'tool' AND item_id NOT IN (SELECT id FROM tools)""",
    "search_items.item_id (file_passage)": """
        SELECT item_id FROM search_items
        WHERE kind = 'file_passage' AND item_id NOT IN (SELECT id FROM file_passages)""",
    "facts that were replaced by nothing": """
        SELECT superseded_by FROM facts WHERE superseded_by IS NOT NULL
        AND superseded_by NOT IN (SELECT id FROM facts)""",
    "a conversation that is closed and has blocks": """
        SELECT conversation_id FROM conversation_blocks
        WHERE conversation_id IN (SELECT id FROM conversations WHERE deleted_at IS NOT NULL)""",
}


def dangling(query: Callable[[str], list[tuple[Any, ...]]]) -> dict[str, list[tuple[Any, ...]]]:
    """Dangling references by table and column; `query` runs a statement on the database."""
    return {where: found for where, statement in _statements() if (found := query(statement))}


def owners(table: Table) -> Iterator[tuple[str, str]]:
    """The columns of a table that name a row of another one, by a foreign key or by their name, and that table."""
    for column in table.c:
        keys = [key.column.table.name for key in column.foreign_keys]
        kind = _KINDS.get(column.name.removesuffix("_id")) if column.name.endswith("_id") else None
        if (owner := keys[0] if keys else kind) is not None and owner != "organizations":
            yield column.name, owner


def _statements() -> Iterator[tuple[str, str]]:
    yield from _BY_KIND.items()
    for name, table in sorted(metadata.tables.items()):
        for column in table.c:
            keys = [key.column for key in column.foreign_keys]
            kind = _KINDS.get(column.name.removesuffix("_id")) if column.name.endswith("_id") else None
            if (name, column.name) in _PAST or not (keys or kind):
                continue
            there = f"SELECT {keys[0].name} FROM {keys[0].table.name}" if keys else f"SELECT id FROM {kind}"
            given = f"{column.name} IS NOT NULL AND {column.name} <> ''"
            yield (
                f"{name}.{column.name}",
                f"SELECT {column.name} FROM {name} WHERE {given} AND NOT {column.name} IN ({there})",
            )
