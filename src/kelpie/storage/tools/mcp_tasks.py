"""Tasks of MCP servers as rows."""

from typing import Any

import sqlalchemy as sa

from kelpie.core.conversations.mcp_tasks import McpTask
from kelpie.core.conversations.questions import Question
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, ConversationId, McpServerId, McpTaskId, OrganizationId, RunId
from kelpie.core.time import Micros
from kelpie.storage.tables import mcp_tasks
from kelpie.world.database import Tx

_ONE = sa.select(mcp_tasks).where(mcp_tasks.c.id == sa.bindparam("of_task"))
_LOCKED = _ONE.with_for_update()
_NEWEST = (
    sa.select(mcp_tasks)
    .where(mcp_tasks.c.organization_id == sa.bindparam("of_organization"))
    .order_by(mcp_tasks.c.created_at.desc(), mcp_tasks.c.id.desc())
    .limit(sa.bindparam("most"))
)
_DUE = (
    sa.select(mcp_tasks)
    .where(mcp_tasks.c.poll_at <= sa.bindparam("now"))
    .order_by(mcp_tasks.c.poll_at, mcp_tasks.c.id)
    .limit(sa.bindparam("most"))
)
_NEXT = sa.select(sa.func.min(mcp_tasks.c.poll_at))
_COUNT = sa.select(sa.func.count()).where(
    mcp_tasks.c.agent_id == sa.bindparam("of_agent"), mcp_tasks.c.poll_at.is_not(None)
)
_INSERT = sa.insert(mcp_tasks)
_CHANGEABLE = ("status", "status_message", "questions", "poll_at", "poll_ms", "failures", "run_id", "updated_at")
_UPDATE = (
    sa.update(mcp_tasks)
    .where(mcp_tasks.c.id == sa.bindparam("of_task"))
    .values({name: sa.bindparam(f"new_{name}", type_=mcp_tasks.c[name].type) for name in _CHANGEABLE})
)


def insert(tx: Tx, task: McpTask) -> None:
    tx.execute(_INSERT, _to_row(task))


def replace(tx: Tx, task: McpTask) -> None:
    """Writes the fields of a task that change."""
    row = _to_row(task)
    tx.execute(_UPDATE, {f"new_{name}": row[name] for name in _CHANGEABLE} | {"of_task": task.id})


def get(tx: Tx, organization: OrganizationId, task_id: str) -> McpTask:
    """Raises NotFound."""
    row = tx.execute(_ONE, {"of_task": task_id}).first()
    if row is None or row.organization_id != organization:
        raise NotFound("MCP task", task_id[:80])
    return _from_row(row)


def locked(tx: Tx, task_id: str) -> McpTask | None:
    """The task as it is now, whoever's it is; None if it was deleted with its agent."""
    row = tx.execute(_LOCKED, {"of_task": task_id}).first()
    return None if row is None else _from_row(row)


def newest(tx: Tx, organization: OrganizationId, most: int) -> list[McpTask]:
    """The newest tasks of an organisation."""
    return [_from_row(row) for row in tx.execute(_NEWEST, {"of_organization": organization, "most": most})]


def due(tx: Tx, now: Micros, most: int) -> list[McpTask]:
    """Tasks that must be asked about now, those that wait for longest first."""
    return [_from_row(row) for row in tx.execute(_DUE, {"now": now, "most": most})]


def next_due(tx: Tx) -> Micros | None:
    """When the next task must be asked about."""
    return tx.execute(_NEXT).scalar()


def count_open(tx: Tx, agent_id: AgentId) -> int:
    return int(tx.execute(_COUNT, {"of_agent": agent_id}).scalar_one())


def _to_row(task: McpTask) -> dict[str, Any]:
    asked = {
        key: {"message": each.message, "schema": each.schema, "url": each.url} for key, each in task.questions.items()
    }
    return {
        "id": task.id,
        "organization_id": task.organization_id,
        "server_id": task.server_id,
        "agent_id": task.agent_id,
        "conversation_id": task.conversation_id,
        "tool_name": task.tool_name,
        "task_id": task.task_id,
        "status": task.status,
        "status_message": task.status_message,
        "questions": asked,
        "poll_at": task.poll_at,
        "poll_ms": task.poll_ms,
        "failures": task.failures,
        "expires_at": task.expires_at,
        "run_id": task.run_id,
        "created_at": task.created_at,
        "updated_at": task.updated_at,
    }


def _from_row(row: sa.Row[Any]) -> McpTask:
    asked: dict[str, Any] = row.questions
    return McpTask(
        id=McpTaskId(row.id),
        organization_id=OrganizationId(row.organization_id),
        server_id=McpServerId(row.server_id),
        agent_id=AgentId(row.agent_id),
        conversation_id=None if row.conversation_id is None else ConversationId(row.conversation_id),
        tool_name=row.tool_name,
        task_id=row.task_id,
        status=row.status,
        created_at=row.created_at,
        updated_at=row.updated_at,
        expires_at=row.expires_at,
        poll_at=row.poll_at,
        poll_ms=row.poll_ms,
        status_message=row.status_message,
        questions={key: Question(each["message"], each["schema"], each["url"]) for key, each in asked.items()},
        failures=row.failures,
        run_id=None if row.run_id is None else RunId(row.run_id),
    )
