"""Batches as rows: a job for each, and its items. Whoever changes the items of a batch locks its job first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from kelpie.core.conversations.batches import OPEN, BatchItem, BatchProgress, ItemStatus
from kelpie.core.conversations.jobs import ACTIVE, Job, JobType
from kelpie.core.conversations.messages import Message
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, ConversationId, JobId, OrganizationId, RunId
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.storage.conversations import message_rows
from kelpie.storage.rows.paging import Paging
from kelpie.storage.runs import jobs as job_rows
from kelpie.storage.runs.input import RunInput, run_input_from_json, run_input_to_json
from kelpie.storage.tables import batch_items, jobs, messages
from kelpie.world.database import Tx

PIECE = 50  # batches that are deleted at once

_c, _j = batch_items.c, jobs.c
_ACTIVE = [status.value for status in ACTIVE]
_IS_BATCH = _j.job_type == JobType.batch.value
_GOING_ON = (
    sa.select(_j.id)
    .where(_IS_BATCH, _j.status.in_(_ACTIVE), _j.id > sa.bindparam("after_id"))
    .order_by(_j.id)
    .limit(sa.bindparam("most"))
)
_COUNT_ACTIVE = sa.select(sa.func.count()).where(
    _IS_BATCH, _j.status.in_(_ACTIVE), _j.organization_id == sa.bindparam("of_organization")
)
_ANY = sa.select(jobs).where(_j.id == sa.bindparam("of_job"), _IS_BATCH)
_LOCKED = _ANY.with_for_update()
_OF_ALL = sa.select(jobs).where(_j.organization_id == sa.bindparam("of_organization"), _IS_BATCH)
_OF_ALL_ACTIVE = _OF_ALL.where(_j.status.in_(_ACTIVE))
_PAGES = Paging(jobs, "created_at")
_CHANGE_JOB = (
    sa.update(jobs)
    .where(_j.id == sa.bindparam("of_job"))
    .values(
        status=sa.bindparam("new_status"),
        metadata=sa.bindparam("new_metadata", type_=_j.metadata.type),
        completed_at=sa.bindparam("new_completed_at"),
        total_duration_ns=sa.bindparam("new_duration"),
        callback_due_at=sa.bindparam("new_due_at"),
        updated_at=sa.bindparam("at"),
    )
)
_OLD = (
    sa.select(_j.id)
    .where(_IS_BATCH, _j.status.not_in(_ACTIVE), _j.completed_at < sa.bindparam("before"), _j.callback_due_at.is_(None))
    .limit(sa.bindparam("most"))
)
_DELETE = sa.delete(jobs).where(_j.id.in_(sa.bindparam("ids", expanding=True)))

_SHOWN = [column for column in batch_items.c if column.name != "given"]
_INSERT = sa.insert(batch_items)
_ITEMS = sa.select(*_SHOWN).where(_c.batch_id == sa.bindparam("of_batch")).order_by(_c.place)
_PIECE_OF_ITEMS = _ITEMS.where(_c.place > sa.bindparam("after_place")).limit(sa.bindparam("most"))
_UNSETTLED = _ITEMS.where(_c.status.in_([status.value for status in OPEN]))
_GIVEN = sa.select(_c.given).where(_c.batch_id == sa.bindparam("of_batch"), _c.place == sa.bindparam("at_place"))
_CHANGEABLE = ("status", "conversation_id", "run_id", "error", "updated_at")
_UPDATE = (
    sa.update(batch_items)
    .where(_c.batch_id == sa.bindparam("of_batch"), _c.place == sa.bindparam("at_place"))
    .values({name: sa.bindparam(f"new_{name}", type_=_c[name].type) for name in _CHANGEABLE})
)
_BEGIN = _UPDATE.values(given=None)  # its run has the input from now on
_COUNTS = sa.select(_c.status, sa.func.count()).where(_c.batch_id == sa.bindparam("of_batch")).group_by(_c.status)
_MESSAGES = sa.select(messages).where(
    messages.c.run_id.in_(sa.select(_c.run_id).where(_c.batch_id == sa.bindparam("of_batch")))
)
_MESSAGES_OF_AGENT = _MESSAGES.where(messages.c.agent_id == sa.bindparam("of_agent"))
_MESSAGE_PAGES = Paging(messages, "created_at")


@dataclass(frozen=True, slots=True)
class ItemInput:
    """What an item gives its run."""

    given: RunInput
    request_config: Mapping[str, Any]


def insert(tx: Tx, job: Job, organization: OrganizationId, items: Sequence[tuple[BatchItem, ItemInput]]) -> None:
    """Stores a batch with all its items."""
    job_rows.add(tx, job, organization)
    rows = [
        _to_row(item) | {"given": {"input": run_input_to_json(what.given), "config": dict(what.request_config)}}
        for item, what in items
    ]
    tx.execute(_INSERT, rows)


def get(tx: Tx, organization: OrganizationId, agent_id: AgentId | None, batch_id: JobId) -> Job:
    """A batch of this agent, or any. Raises NotFound."""
    job = job_rows.get(tx, organization, batch_id)
    if job.job_type is not JobType.batch or agent_id not in (None, job.agent_id):
        raise NotFound("Batch", batch_id)
    return job


def find(tx: Tx, batch_id: JobId) -> tuple[Job, OrganizationId] | None:
    """A batch of any organization with that organization; None if it was deleted."""
    row = tx.execute(_ANY, {"of_job": batch_id}).first()
    return None if row is None else (job_rows.from_row(row), OrganizationId(row.organization_id))


def locked(tx: Tx, batch_id: JobId) -> Job | None:
    """A batch of any organization, locked; None if it was deleted."""
    row = tx.execute(_LOCKED, {"of_job": batch_id}).first()
    return None if row is None else job_rows.from_row(row)


def change(tx: Tx, job: Job, callback_due_at: Micros | None = None) -> None:
    """Writes the fields of a batch that change."""
    bound = {
        "of_job": job.id,
        "new_status": job.status.value,
        "new_metadata": dict(job.metadata),
        "new_completed_at": job.completed_at,
        "new_duration": job.total_duration_ns,
        "new_due_at": callback_due_at,
        "at": job.updated_at,
    }
    tx.execute(_CHANGE_JOB, bound)


def active(tx: Tx, after_id: str, most: int) -> list[JobId]:
    """Batches of all organizations that have not ended, in the order of their ids."""
    return [JobId(each) for each in tx.execute(_GOING_ON, {"after_id": after_id, "most": most}).scalars()]


def count_active(tx: Tx, organization: OrganizationId) -> int:
    return int(tx.execute(_COUNT_ACTIVE, {"of_organization": organization}).scalar_one())


def page(tx: Tx, organization: OrganizationId, wanted: Page, *, active_only: bool) -> list[Job]:
    """Batches of an organization."""
    statement, within = _OF_ALL_ACTIVE if active_only else _OF_ALL, {"organization_id": str(organization)}
    rows = _PAGES.rows(tx, statement, wanted, {"of_organization": organization}, within=within)
    return [job_rows.from_row(row) for row in rows]


def items(tx: Tx, batch_id: JobId) -> list[BatchItem]:
    """The items in order."""
    return [_from_row(row) for row in tx.execute(_ITEMS, {"of_batch": batch_id})]


def items_after(tx: Tx, batch_id: JobId, place: int, most: int) -> list[BatchItem]:
    """A page of the items in order."""
    bound = {"of_batch": batch_id, "after_place": place, "most": most}
    return [_from_row(row) for row in tx.execute(_PIECE_OF_ITEMS, bound)]


def unsettled(tx: Tx, batch_id: JobId) -> list[BatchItem]:
    """The items that have not ended, in order."""
    return [_from_row(row) for row in tx.execute(_UNSETTLED, {"of_batch": batch_id})]


def input_of(tx: Tx, item: BatchItem) -> ItemInput:
    """What an item that waits will give its run."""
    stored = tx.execute(_GIVEN, {"of_batch": item.batch_id, "at_place": item.place}).scalar_one()
    return ItemInput(run_input_from_json(stored["input"]), stored["config"])


def replace(tx: Tx, item: BatchItem) -> None:
    """Writes the fields of an item that change; one that no longer waits keeps no input."""
    row = _to_row(item)
    bound = {f"new_{name}": row[name] for name in _CHANGEABLE} | {"of_batch": item.batch_id, "at_place": item.place}
    tx.execute(_UPDATE if item.status is ItemStatus.waiting else _BEGIN, bound)


def progress(tx: Tx, batch_id: JobId) -> BatchProgress:
    """The numbers of its items."""
    counts = {row[0]: row[1] for row in tx.execute(_COUNTS, {"of_batch": batch_id})}
    return BatchProgress(
        sum(counts.values()),
        counts.get(ItemStatus.completed.value, 0),
        counts.get(ItemStatus.failed.value, 0),
        counts.get(ItemStatus.cancelled.value, 0),
    )


def messages_of(tx: Tx, batch_id: JobId, agent_id: AgentId | None, wanted: Page) -> list[Message]:
    """Messages of the runs of a batch."""
    bound = {"of_batch": str(batch_id)}
    statement, within = _MESSAGES, dict[str, str]()
    if agent_id is not None:
        bound["of_agent"] = within["agent_id"] = str(agent_id)
        statement = _MESSAGES_OF_AGENT
    rows = _MESSAGE_PAGES.rows(tx, statement, wanted, bound, within=within)
    return [message_rows.from_row(row) for row in rows]


def needs_cleanup(tx: Tx, before: Micros) -> bool:
    """Checks whether there are batches that ended before this time."""
    return tx.execute(_OLD, {"before": before, "most": 1}).first() is not None


def clean_up(tx: Tx, before: Micros) -> None:
    """Deletes a piece of them; their runs and messages stay."""
    ids = list(tx.execute(_OLD, {"before": before, "most": PIECE}).scalars())
    if ids:
        tx.execute(_DELETE, {"ids": ids})


def _to_row(item: BatchItem) -> dict[str, Any]:
    return {
        "batch_id": item.batch_id,
        "place": item.place,
        "organization_id": item.organization_id,
        "agent_id": item.agent_id,
        "status": item.status.value,
        "conversation_id": item.conversation_id,
        "run_id": item.run_id,
        "error": item.error,
        "updated_at": item.updated_at,
    }


def _from_row(row: sa.Row[Any]) -> BatchItem:
    return BatchItem(
        batch_id=JobId(row.batch_id),
        place=row.place,
        organization_id=OrganizationId(row.organization_id),
        agent_id=AgentId(row.agent_id),
        status=ItemStatus(row.status),
        updated_at=row.updated_at,
        conversation_id=None if row.conversation_id is None else ConversationId(row.conversation_id),
        run_id=None if row.run_id is None else RunId(row.run_id),
        error=row.error,
    )
