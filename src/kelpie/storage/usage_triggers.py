"""Triggers that keep `organization_usage`: what an organization stores is counted by the database itself.

Every insert, update and delete of a counted row changes the counters in the same transaction, whatever statement did
it, also one of a foreign key. A trigger costs less than one statement of ours. The size of a row is the number of bytes
of the columns named here; `measured` is the same expression for a recount.
"""

from dataclasses import dataclass
from typing import Literal

Owner = Literal["row", "agent", "block"]


@dataclass(frozen=True, slots=True)
class Counted:
    """A table that counts for an organization. `counter` is the counter of its rows, if they are counted."""

    table: str
    owner: Owner  # the column or the row that names the organization
    columns: tuple[str, ...]
    counter: str | None = None


COUNTED = (
    Counted("agents", "row", ("system", "description", "metadata"), "agents"),
    Counted("messages", "agent", ("content", "tool_calls", "tool_returns", "answers"), "messages"),
    Counted("passages", "row", ("text", "tags", "metadata")),
    Counted("blocks", "row", ("value", "description", "metadata")),
    Counted("block_history", "block", ("value", "fields")),
    Counted("facts", "agent", ("subject", "attribute", "value", "statement")),
    Counted("working_memory", "agent", ("key", "value")),
    Counted("tools", "row", ("description", "source_code", "json_schema")),
    Counted("runs", "row", ("input", "metadata", "request_config")),
    Counted("agent_file_parts", "agent", ("document",)),
    Counted("template_versions", "row", ("document",)),
    Counted("agent_variables", "agent", ("memory_variables",)),
    Counted("client_turns", "row", ("request",)),
    Counted("folders", "row", ("description", "instructions", "metadata")),
    Counted("files", "row", ("name", "original_name", "error"), "files"),
    Counted("file_passages", "row", ("text",)),
    Counted("schedules", "row", ("said",)),
    Counted("batch_items", "row", ("given",)),
)

# An agent that is being deleted belongs to no organization; its rows count for the one it had until they are gone.
_OF_AGENT = (
    "(SELECT CASE WHEN owner.organization_id <> '' THEN owner.organization_id ELSE (SELECT removed.organization_id "
    "FROM removed_agents AS removed WHERE removed.agent_id = owner.id) END FROM agents AS owner "
    "WHERE owner.id = {row}.agent_id)"
)
_OF_BLOCK = "(SELECT owner.organization_id FROM blocks AS owner WHERE owner.id = {row}.block_id)"
_OWNERS = {"row": "{row}.organization_id", "agent": _OF_AGENT, "block": _OF_BLOCK}


def owner_of(counted: Counted, row: str) -> str:
    """The expression for the organization of a row."""
    return _OWNERS[counted.owner].format(row=row)


# A column that may be packed, see `storage.rows.standard_texts`, says in front how many bytes it stands for.
_PACKED = {("agents", "system"), ("messages", "content"), ("block_history", "fields")}
_PACKED_SIZE = "CASE typeof({0}) WHEN 'blob' THEN CAST({0} AS INTEGER) ELSE length(CAST({0} AS BLOB)) END"


def measured(counted: Counted, row: str, dialect: str) -> str:
    """The expression for the number of bytes of a row."""
    return " + ".join(f"coalesce({_size(counted.table, name, row, dialect)}, 0)" for name in counted.columns)


def _size(table: str, name: str, row: str, dialect: str) -> str:
    if dialect != "sqlite":
        return f"octet_length(CAST({row}.{name} AS TEXT))"
    return (_PACKED_SIZE if (table, name) in _PACKED else "length(CAST({0} AS BLOB))").format(f"{row}.{name}")


def definitions(dialect: str) -> tuple[str, ...]:
    """The statements that make all triggers of a new database."""
    found = [
        _trigger(
            dialect,
            "usage_of_organization",
            "AFTER INSERT ON organizations",
            "INSERT INTO organization_usage (organization_id, agents, messages, bytes) VALUES (NEW.id, 0, 0, 0)",
        )
    ]
    for counted in COUNTED:
        name, columns = f"usage_{counted.table}", ", ".join(counted.columns)
        old, new = measured(counted, "OLD", dialect), measured(counted, "NEW", dialect)
        found += [
            _trigger(dialect, f"{name}_insert", f"AFTER INSERT ON {counted.table}", _added(counted, "NEW", "+", new)),
            _trigger(dialect, f"{name}_delete", f"AFTER DELETE ON {counted.table}", _added(counted, "OLD", "-", old)),
            _trigger(
                dialect,
                f"{name}_update",
                f"AFTER UPDATE OF {columns} ON {counted.table}",
                f"UPDATE organization_usage SET bytes = bytes + ({new}) - ({old}) "
                f"WHERE organization_id = {owner_of(counted, 'NEW')}",
            ),
        ]
    return (*found, *_exceptions(dialect))


def _exceptions(dialect: str) -> tuple[str, ...]:
    """An agent leaves its organization before its rows are deleted, and an imported one joins it after its rows are
    written; the versions of a block are deleted after it, when nothing says any more whose it was."""
    agents, history = COUNTED[0], next(each for each in COUNTED if each.table == "block_history")
    size, joined = measured(agents, "OLD", dialect), measured(agents, "NEW", dialect)
    versions = measured(history, "past", dialect)
    return (
        _trigger(
            dialect,
            "usage_agents_removed",
            "AFTER UPDATE OF organization_id ON agents",
            f"UPDATE organization_usage SET agents = agents - 1, bytes = bytes - ({size}) "
            "WHERE organization_id = OLD.organization_id AND NEW.organization_id = ''",
        ),
        _trigger(
            dialect,
            "usage_agents_published",
            "AFTER UPDATE OF organization_id ON agents",
            f"UPDATE organization_usage SET agents = agents + 1, bytes = bytes + ({joined}) "
            "WHERE organization_id = NEW.organization_id AND OLD.organization_id = ''",
        ),
        _trigger(
            dialect,
            "usage_block_history_of_block",
            "BEFORE DELETE ON blocks",
            "UPDATE organization_usage SET bytes = bytes - coalesce((SELECT sum("
            f"{versions}) FROM block_history AS past WHERE past.block_id = OLD.id), 0) "
            "WHERE organization_id = OLD.organization_id",
            before=True,
        ),
    )


def _added(counted: Counted, row: str, sign: str, size: str) -> str:
    rows = f"{counted.counter} = {counted.counter} {sign} 1, " if counted.counter else ""
    owner = owner_of(counted, row)
    return f"UPDATE organization_usage SET {rows}bytes = bytes {sign} ({size}) WHERE organization_id = {owner}"


def _trigger(dialect: str, name: str, event: str, action: str, *, before: bool = False) -> str:
    """One trigger for every changed row. PostgreSQL needs a function for it."""
    if dialect == "sqlite":
        return f"CREATE TRIGGER {name} {event} FOR EACH ROW BEGIN {action}; END"
    result = "OLD" if before else "NULL"
    return (
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {action}; RETURN {result}; END $$; "
        f"CREATE TRIGGER {name} {event} FOR EACH ROW EXECUTE FUNCTION {name}()"
    )
