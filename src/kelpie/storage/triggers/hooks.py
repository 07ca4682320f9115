"""Webhooks as rows, with the hash of the secret part of their token."""

from typing import Any

import sqlalchemy as sa

from kelpie.core.ids import AgentId, ConversationId, HookId, OrganizationId
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.core.triggers.webhooks import Webhook
from kelpie.storage.tables import hooks
from kelpie.storage.triggers.agent_rows import AgentRows
from kelpie.world.database import Tx

_c = hooks.c
_ROWS = AgentRows(hooks, "Webhook")
_INSERT = sa.insert(hooks)
_CHANGEABLE = ("name", "conversation_id", "instructions", "enabled", "updated_at")
_UPDATE = (
    sa.update(hooks)
    .where(_c.id == sa.bindparam("of_hook"))
    .values({name: sa.bindparam(f"new_{name}", type_=_c[name].type) for name in _CHANGEABLE})
)
_RENEW = sa.update(hooks).where(_c.id == sa.bindparam("of_hook")).values(token_hash=sa.bindparam("new_hash"))
_USED = sa.update(hooks).where(_c.id == sa.bindparam("of_hook")).values(last_used_at=sa.bindparam("at"))


def insert(tx: Tx, hook: Webhook, digest: str) -> None:
    tx.execute(_INSERT, _to_row(hook) | {"token_hash": digest})


def replace(tx: Tx, hook: Webhook) -> None:
    """Writes the fields of a webhook that change."""
    row = _to_row(hook)
    tx.execute(_UPDATE, {f"new_{name}": row[name] for name in _CHANGEABLE} | {"of_hook": hook.id})


def renew(tx: Tx, hook_id: HookId, digest: str) -> None:
    """Replaces the token; the old one stops working."""
    tx.execute(_RENEW, {"of_hook": hook_id, "new_hash": digest})


def note_use(tx: Tx, hook_id: HookId, at: Micros) -> None:
    tx.execute(_USED, {"of_hook": hook_id, "at": at})


def delete(tx: Tx, hook_id: HookId) -> None:
    _ROWS.delete(tx, hook_id)


def find(tx: Tx, hook_id: str) -> tuple[Webhook, str] | None:
    """A webhook of any organization, and the hash of its secret."""
    row = _ROWS.find(tx, hook_id)
    return None if row is None else (_from_row(row), row.token_hash)


def get(tx: Tx, organization: OrganizationId, agent_id: AgentId | None, hook_id: str, *, lock: bool = False) -> Webhook:
    """A webhook of this agent, or of any. Raises NotFound."""
    return _from_row(_ROWS.get(tx, organization, agent_id, hook_id, lock=lock))


def page(tx: Tx, organization: OrganizationId, agent_id: AgentId | None, wanted: Page) -> list[Webhook]:
    """Webhooks of an agent, or of all agents of the organization."""
    return [_from_row(row) for row in _ROWS.page(tx, organization, agent_id, wanted)]


def count(tx: Tx, agent_id: AgentId) -> int:
    return _ROWS.count(tx, agent_id)


def _to_row(hook: Webhook) -> dict[str, Any]:
    return {
        "id": hook.id,
        "organization_id": hook.organization_id,
        "agent_id": hook.agent_id,
        "conversation_id": hook.conversation_id,
        "name": hook.name,
        "instructions": hook.instructions,
        "enabled": hook.enabled,
        "last_used_at": hook.last_used_at,
        "created_at": hook.created_at,
        "updated_at": hook.updated_at,
    }


def _from_row(row: sa.Row[Any]) -> Webhook:
    return Webhook(
        id=HookId(row.id),
        organization_id=OrganizationId(row.organization_id),
        agent_id=AgentId(row.agent_id),
        name=row.name,
        created_at=row.created_at,
        updated_at=row.updated_at,
        conversation_id=None if row.conversation_id is None else ConversationId(row.conversation_id),
        instructions=row.instructions,
        enabled=row.enabled,
        last_used_at=row.last_used_at,
    )
