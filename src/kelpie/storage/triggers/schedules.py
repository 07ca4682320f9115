"""Schedules as rows. Whoever changes one locks it, so that two servers never handle the same time."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from kelpie.core.conversations.messages import NewMessage, Role
from kelpie.core.ids import AgentId, ConversationId, OrganizationId, ScheduleId
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.core.triggers.recurrence import Recurrence
from kelpie.core.triggers.schedules import MissedPolicy, Schedule, ScheduledMessages
from kelpie.storage.accounts.row_ownership import of_present_agent
from kelpie.storage.conversations.message_rows import content_from_json, content_to_json
from kelpie.storage.tables import schedules
from kelpie.storage.triggers.agent_rows import AgentRows
from kelpie.world.database import Tx

_c = schedules.c
_PRESENT = of_present_agent(_c.agent_id)
_ROWS = AgentRows(schedules, "Schedule")
_DUE = (
    sa.select(schedules)
    .where(_c.next_at <= sa.bindparam("now"), _PRESENT)
    .order_by(_c.next_at, _c.id)
    .limit(sa.bindparam("most"))
)
_NEXT = sa.select(sa.func.min(_c.next_at))
# Schedules whose next time was found when the clock was ahead of where it is now.
_AHEAD = (
    sa.select(schedules)
    .where(
        sa.or_(_c.last_at > sa.bindparam("now"), _c.updated_at > sa.bindparam("now")),
        _c.recurrence.is_not(None),
        _c.id > sa.bindparam("after_id"),
        _PRESENT,
    )
    .order_by(_c.id)
    .limit(sa.bindparam("most"))
)
_INSERT = sa.insert(schedules)
_CHANGEABLE = (
    "name", "said", "scheduled_at", "recurrence", "timezone", "missed", "missed_max", "paused", "next_at", "last_at",
    "updated_at",
)  # fmt: skip
_UPDATE = (
    sa.update(schedules)
    .where(_c.id == sa.bindparam("of_schedule"))
    .values({name: sa.bindparam(f"new_{name}", type_=_c[name].type) for name in _CHANGEABLE})
)


def insert(tx: Tx, schedule: Schedule) -> None:
    tx.execute(_INSERT, _to_row(schedule))


def replace(tx: Tx, schedule: Schedule) -> None:
    """Writes the fields of a schedule that change."""
    row = _to_row(schedule)
    tx.execute(_UPDATE, {f"new_{name}": row[name] for name in _CHANGEABLE} | {"of_schedule": schedule.id})


def delete(tx: Tx, schedule_id: ScheduleId) -> None:
    """Deletes a schedule with its firings."""
    _ROWS.delete(tx, schedule_id)


def get(tx: Tx, organization: OrganizationId, agent_id: AgentId | None, schedule_id: str) -> Schedule:
    """A schedule of this agent, or of any. Raises NotFound."""
    return _from_row(_ROWS.get(tx, organization, agent_id, schedule_id))


def locked(tx: Tx, organization: OrganizationId, agent_id: AgentId, schedule_id: str) -> Schedule:
    """The same, for a transaction that changes it. Raises NotFound."""
    return _from_row(_ROWS.get(tx, organization, agent_id, schedule_id, lock=True))


def find(tx: Tx, schedule_id: str) -> Schedule | None:
    """A schedule of any organization, locked; None if it was deleted."""
    row = _ROWS.find(tx, schedule_id, lock=True)
    return None if row is None else _from_row(row)


def page(tx: Tx, organization: OrganizationId, agent_id: AgentId | None, wanted: Page) -> list[Schedule]:
    """Schedules of an agent, or of all agents of the organization."""
    return [_from_row(row) for row in _ROWS.page(tx, organization, agent_id, wanted)]


def count(tx: Tx, agent_id: AgentId) -> int:
    return _ROWS.count(tx, agent_id)


def due(tx: Tx, now: Micros, most: int) -> list[Schedule]:
    """Schedules with a time that has come, the longest due first."""
    return [_from_row(row) for row in tx.execute(_DUE, {"now": now, "most": most})]


def next_due(tx: Tx) -> Micros | None:
    """The next time of any schedule."""
    return tx.execute(_NEXT).scalar()


def ahead_of(tx: Tx, now: Micros, after_id: str, most: int) -> list[Schedule]:
    """Recurring schedules that were fired or changed at a time that is in the future now, in the order of their ids."""
    return [_from_row(row) for row in tx.execute(_AHEAD, {"now": now, "after_id": after_id, "most": most})]


def said_to_json(said: ScheduledMessages) -> dict[str, Any]:
    """The stored form of what an agent gets."""
    return {
        "messages": [
            {
                "role": message.role.value,
                "content": content_to_json(message.content),
                "name": message.name,
                "otid": message.otid,
                "sender_id": message.sender_id,
                "group_id": message.group_id,
            }
            for message in said.messages
        ],
        "max_steps": said.max_steps,
        "callback_url": said.callback_url,
        "return_types": None if said.return_types is None else list(said.return_types),
        "conversation_id": said.conversation_id,
        "batch": said.batch,
    }


def said_from_json(data: Mapping[str, Any]) -> ScheduledMessages:
    types: Sequence[str] | None = data["return_types"]
    conversation: str | None = data["conversation_id"]
    return ScheduledMessages(
        tuple(
            NewMessage(
                Role(each["role"]),
                content_from_json(each["content"]),
                each["name"],
                each["otid"],
                each["sender_id"],
                each.get("group_id"),  # missing where it was stored by an older version
            )
            for each in data["messages"]
        ),
        data["max_steps"],
        data["callback_url"],
        None if types is None else tuple(types),
        None if conversation is None else ConversationId(conversation),
        data.get("batch", False),  # missing where it was stored by an older version
    )


def _to_row(schedule: Schedule) -> dict[str, Any]:
    recurrence = schedule.recurrence
    return {
        "id": schedule.id,
        "organization_id": schedule.organization_id,
        "agent_id": schedule.agent_id,
        "name": schedule.name,
        "said": said_to_json(schedule.said),
        "scheduled_at": schedule.at,
        "recurrence": None if recurrence is None else recurrence.expression,
        "timezone": "UTC" if recurrence is None else recurrence.timezone,
        "missed": schedule.missed.value,
        "missed_max": schedule.missed_max,
        "paused": schedule.paused,
        "next_at": schedule.next_at,
        "last_at": schedule.last_at,
        "created_at": schedule.created_at,
        "updated_at": schedule.updated_at,
    }


def _from_row(row: sa.Row[Any]) -> Schedule:
    return Schedule(
        id=ScheduleId(row.id),
        organization_id=OrganizationId(row.organization_id),
        agent_id=AgentId(row.agent_id),
        said=said_from_json(row.said),
        at=row.scheduled_at,
        recurrence=None if row.recurrence is None else Recurrence(row.recurrence, row.timezone),
        created_at=row.created_at,
        updated_at=row.updated_at,
        name=row.name,
        missed=MissedPolicy(row.missed),
        missed_max=row.missed_max,
        paused=row.paused,
        next_at=row.next_at,
        last_at=row.last_at,
    )
