"""Writes of tools, as transactions: under their names, with the effects on the agents that have them.

Names of built-in tools are reserved, but a custom tool that had one before Kelpie did keeps it.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kelpie.core.errors import Conflict, InvalidInput
from kelpie.core.ids import DEFAULT_USER, AgentId, OrganizationId, ToolId, UserId
from kelpie.core.time import Micros
from kelpie.core.tools.tools import Tool, ToolType
from kelpie.observe import logs
from kelpie.storage.agents import agents as agent_rows
from kelpie.storage.tools import tools as rows
from kelpie.tools.builtin import BUILTINS, RESERVED
from kelpie.tools.builtin.pause import require_heartbeats
from kelpie.tools.calls import approval_rule
from kelpie.tools.custom.definition import completed_schema, is_python, with_fingerprint
from kelpie.world.database import Tx

_log = logs.get("tools")
_RUNS = frozenset({"source_code", "source_type", "pip_requirements", "npm_requirements", "metadata"})
_OURS = frozenset({"source_code", "source_type", "json_schema", "args_json_schema", "name"})


def upsert(tx: Tx, tool: Tool) -> tuple[Tool, tuple[AgentId, ...]]:
    """Writes a tool under its name; returns it, and the agents that have it. Raises Conflict for a reserved name."""
    if tool.name in RESERVED and not _custom(rows.by_names(tx, tool.organization_id, [tool.name]).get(tool.name)):
        raise Conflict(f"'{tool.name}' is the name of a built-in tool; give yours another name")
    after, affected = rows.upsert(tx, tool)
    return after, agent_rows.bump_many(tx, affected) or rows.agents_with(tx, after.id)


def update(
    tx: Tx,
    tool_id: ToolId,
    changes: dict[str, Any],
    derived: dict[str, Any] | InvalidInput | None,
    now: Micros,
    user: UserId,
) -> tuple[Tool, tuple[AgentId, ...]]:
    """Changes a tool; returns it, and the agents that have it. Raises NotFound, InvalidInput, Conflict."""
    before = rows.get(tx, tool_id, lock=True)
    if before.name in BUILTINS and before.tool_type is not ToolType.custom and (ours := _OURS & changes.keys()):
        raise Conflict(f"'{before.name}' is a built-in tool; its {', '.join(sorted(ours))} cannot be changed")
    values = dict(changes)
    if changes.get("json_schema"):
        values["json_schema"] = completed_schema(changes["json_schema"])
        values["name"] = values["json_schema"]["name"]
        if values["name"] != before.name and values["name"] in RESERVED:
            raise Conflict(f"'{values['name']}' is the name of a built-in tool; give yours another name")
    elif derived is not None and is_python(changes.get("source_type", before.source_type)):
        if isinstance(derived, InvalidInput):
            raise derived
        if derived["name"] != before.name:
            raise InvalidInput(
                "source_code",
                f"defines '{derived['name']}', but the tool is called '{before.name}'; "
                "keep the name, send a json_schema with the new one, or register another tool",
            )
        values["json_schema"] = derived
    if before.source_code is not None and _RUNS & changes.keys():
        values["metadata"] = with_fingerprint(replace(before, **values))
    after, _, affected = rows.update(tx, tool_id, values, now, user)
    # Also when nothing changed: a client that repeats an edit may have lost the answer, and the agents have not been
    # notified.
    return after, agent_rows.bump_many(tx, affected) or rows.agents_with(tx, after.id)


def _custom(tool: Tool | None) -> bool:
    return tool is not None and tool.tool_type is ToolType.custom


def attach(tx: Tx, agent_id: AgentId, tool_id: ToolId, now: Micros) -> None:
    """Raises NotFound, and InvalidInput for a tool that the agent's type has no use for."""
    tool = rows.get(tx, tool_id)
    require_heartbeats("tool_id", agent_rows.get(tx, agent_id).agent_type, [tool])
    if rows.attach(tx, agent_id, tool_id):
        agent_rows.touch(tx, agent_id, now)
        approval_rule.switch_on_by_default(tx, agent_id, [tool], now)


def detach(tx: Tx, agent_id: AgentId, tool_id: ToolId, now: Micros) -> None:
    if rows.detach(tx, agent_id, tool_id):
        agent_rows.touch(tx, agent_id, now)


def log_shadowed(found: Iterable[Tool]) -> None:
    """Logs the custom tools that `ensure_builtins` returned in place of built-in ones."""
    for tool in found:
        if _custom(tool):
            _log.warning(
                "builtin_tool_shadowed",
                "Custom tool has the name of a built-in tool, which it replaces",
                tool=tool.name,
                tool_id=tool.id,
            )


def ensure_builtins(tx: Tx, organization: OrganizationId, now: Micros) -> tuple[list[Tool], tuple[AgentId, ...]]:
    """Updates an organization's built-in tools to this version; returns them, and the agents that must see the change.

    The fields that clients may set on a built-in tool (its tags, limits, approval) are left as they are, and so is a
    custom tool that has the name of one: it is older, and agents rely on it. It is returned in place of the built-in
    one.
    """
    there = rows.by_names(tx, organization, list(BUILTINS))
    found: list[Tool] = []
    new: list[Tool] = []
    affected: dict[AgentId, None] = {}
    for builtin in BUILTINS.values():
        before = there.get(builtin.name)
        if before is None:
            new.append(builtin.row(organization, now))
            found.append(new[-1])
            continue
        ours = {"json_schema": builtin.schema, "tool_type": builtin.tool_type, "source_code": None}
        if _custom(before) or all(getattr(before, name) == value for name, value in ours.items()):
            found.append(before)  # as at almost every start
            continue
        after, _, agents = rows.update(tx, before.id, ours, now, DEFAULT_USER)
        found.append(after)
        affected |= dict.fromkeys(agent_rows.bump_many(tx, agents))
    rows.insert_builtin(tx, organization, new)
    return found, tuple(affected)
