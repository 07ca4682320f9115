"""Runs as rows: their input, progress and end, including those that a crash cut short."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, bindparam, delete, func, or_, select, tuple_, update

from kelpie.core.conversations.messages import Usage
from kelpie.core.conversations.runs import UNFINISHED, Run, RunQuery, RunStatus, StopReason, check_run_move
from kelpie.core.errors import NotFound, RunOver
from kelpie.core.ids import AgentId, ConversationId, OrganizationId, RunId
from kelpie.storage.agents.ownership_fence import Node
from kelpie.storage.rows.inserts import Insert
from kelpie.storage.rows.paging import Paging
from kelpie.storage.runs import callbacks
from kelpie.storage.runs import filters as run_filters
from kelpie.storage.runs.input import RunInput, run_input_to_json
from kelpie.storage.runs.steps import usage_to_json
from kelpie.storage.tables import runs
from kelpie.world.database import Tx
from kelpie.world.statements import Prepared

_INSERT_RUN = Insert(runs)


def open_run(tx: Tx, run: Run, organization: OrganizationId, given: RunInput, node: Node) -> None:
    """Records a run with its input; the input is not history yet."""
    _INSERT_RUN.run(
        tx,
        [
            {
                "id": run.id,
                "agent_id": run.agent_id,
                "organization_id": organization,
                "conversation_id": run.conversation_id,
                "status": run.status.value,
                "stop_reason": None,
                "stop_detail": None,
                "background": run.background,
                "input": run_input_to_json(given),
                "metadata": dict(run.metadata),
                "request_config": dict(run.request_config),
                "callback_url": run.callback_url,
                "callback_attempts": 0,
                "usage": usage_to_json(run.usage),
                "step_count": 0,
                "taken_up": 0,
                "ttft_ns": None,
                "total_duration_ns": None,
                "owner": node.id,
                "owner_incarnation": node.incarnation,
                "created_at": run.created_at,
                "completed_at": None,
            }
        ],
    )


_TAKE_UP = (
    update(runs)
    .where(runs.c.id == bindparam("of_run"), runs.c.status.in_([s.value for s in UNFINISHED]))
    .values(
        status=RunStatus.running.value,
        owner=bindparam("node_id"),
        owner_incarnation=bindparam("node_incarnation"),
        taken_up=runs.c.taken_up + 1,
    )
)


def claim(tx: Tx, run_id: RunId, node: Node) -> bool:
    """Records that a lane starts or resumes a run. False when it has ended in the meantime."""
    values = {"of_run": run_id, "node_id": node.id, "node_incarnation": node.incarnation}
    return tx.execute(_TAKE_UP, values).rowcount == 1


_REGIVE = (
    update(runs)
    .where(runs.c.id == bindparam("of_run"), runs.c.status.in_([s.value for s in UNFINISHED]))
    .values(input=bindparam("new_input"))
)


def replace_input(tx: Tx, run_id: RunId, given: RunInput) -> None:
    """Replaces a run's input with the one its lane resolved when it started."""
    tx.execute(_REGIVE, {"of_run": run_id, "new_input": run_input_to_json(given)})


_RUN = select(runs).where(runs.c.id == bindparam("of_run"))
_GOES_ON = or_(*(runs.c.status == status.value for status in sorted(UNFINISHED)))
_UPDATE_PROGRESS = Prepared(
    update(runs)
    .where(runs.c.id == bindparam("of_run"), _GOES_ON)
    .values(usage=bindparam("new_usage"), step_count=bindparam("new_count"), ttft_ns=bindparam("new_ttft"))
)
_FINISH = Prepared(
    update(runs)
    .where(runs.c.id == bindparam("of_run"), _GOES_ON)
    .values(
        status=bindparam("new_status"),
        stop_reason=bindparam("new_reason"),
        stop_detail=bindparam("new_detail"),
        completed_at=bindparam("at"),
        metadata=bindparam("new_metadata"),
        total_duration_ns=bindparam("duration"),
        usage=bindparam("new_usage"),
        step_count=bindparam("new_count"),
        ttft_ns=bindparam("new_ttft"),
    )
)


def progress(tx: Tx, run: Run) -> None:
    """Records usage and steps so far. Raises RunOver when it has ended: a client cancelled it."""
    moved = _UPDATE_PROGRESS.run(
        tx,
        {
            "of_run": run.id,
            "new_usage": usage_to_json(run.usage),
            "new_count": run.step_count,
            "new_ttft": run.ttft_ns,
        },
    )
    if moved != 1:
        raise RunOver(f"{run.id} has ended")


def finish(tx: Tx, run: Run) -> None:
    """Records the end of a run. Raises RunOver when it had ended before: a client cancelled it."""
    check_run_move(RunStatus.running, run.status)
    ended = _FINISH.run(
        tx,
        {
            "of_run": run.id,
            "new_status": run.status.value,
            "new_reason": run.stop_reason.value if run.stop_reason else None,
            "new_detail": run.stop_detail,
            "at": run.completed_at,
            "new_metadata": dict(run.metadata),
            "duration": run.total_duration_ns,
            "new_usage": usage_to_json(run.usage),
            "new_count": run.step_count,
            "new_ttft": run.ttft_ns,
        },
    )
    if ended != 1:
        raise RunOver(f"{run.id} had already ended")
    if run.callback_url is not None and run.completed_at is not None:
        callbacks.schedule(tx, run.id, run.completed_at)


def run_from_row(row: Row[Any]) -> Run:
    """A run from all of its columns."""
    return Run(
        id=RunId(row.id),
        agent_id=AgentId(row.agent_id),
        status=RunStatus(row.status),
        created_at=row.created_at,
        completed_at=row.completed_at,
        conversation_id=ConversationId(row.conversation_id) if row.conversation_id else None,
        background=row.background,
        stop_reason=StopReason(row.stop_reason) if row.stop_reason else None,
        stop_detail=row.stop_detail,
        metadata=row.metadata,
        request_config=row.request_config,
        callback_url=row.callback_url,
        callback_sent_at=row.callback_sent_at,
        callback_status_code=row.callback_status_code,
        callback_error=row.callback_error,
        ttft_ns=row.ttft_ns,
        total_duration_ns=row.total_duration_ns,
        usage=Usage(**row.usage),
        step_count=row.step_count,
    )


def get(tx: Tx, run_id: RunId) -> Run:
    """Raises NotFound."""
    row = tx.execute(_RUN, {"of_run": run_id}).first()
    if row is None:
        raise NotFound("Run", run_id)
    return run_from_row(row)


_MANY = select(runs).where(runs.c.id.in_(bindparam("ids", expanding=True)))


def get_many(tx: Tx, ids: Sequence[str]) -> list[Run]:
    """The runs with these ids; ids that do not exist are left out."""
    return [run_from_row(row) for row in tx.execute(_MANY, {"ids": list(ids)})] if ids else []


_RUN_PAGES = Paging(runs, "created_at", "total_duration_ns")


def taken_up(tx: Tx, run_ids: Sequence[str]) -> dict[str, int]:
    """How often a lane started each of these runs."""
    return {row.id: row.taken_up for row in tx.execute(_MANY, {"ids": list(run_ids)})} if run_ids else {}


def select_runs(tx: Tx, organization: OrganizationId, query: RunQuery) -> list[Run]:
    statement, parameters = run_filters.matching(tx, organization, query)
    rows = _RUN_PAGES.rows(tx, statement, query.page, parameters, within={"organization_id": organization})
    return [run_from_row(row) for row in rows]


_DELETE_RUN = delete(runs).where(runs.c.id == bindparam("of_run"))


def remove(tx: Tx, run_id: RunId) -> None:
    """Deletes the record of a run; its messages stay in the history. Raises NotFound."""
    if tx.execute(_DELETE_RUN, {"of_run": run_id}).rowcount != 1:
        raise NotFound("Run", run_id)


_EXISTS = select(runs.c.id).where(runs.c.id == bindparam("of_run"))


def exists(tx: Tx, run_id: RunId) -> bool:
    return tx.execute(_EXISTS, {"of_run": run_id}).first() is not None


_NEWER = (
    select(runs.c.id)
    .where(
        runs.c.agent_id == bindparam("of_agent"),
        tuple_(runs.c.created_at, runs.c.id) > tuple_(bindparam("since"), bindparam("of_run")),
        func.coalesce(runs.c.conversation_id, "") == bindparam("of_conversation"),
    )
    .limit(1)
)


def has_newer(tx: Tx, run: Run) -> bool:
    """True if another run of its conversation was created after it."""
    where = {"of_agent": run.agent_id, "of_conversation": run.conversation_id or ""}
    return tx.execute(_NEWER, {**where, "since": run.created_at, "of_run": run.id}).first() is not None


_COUNT_CREATED = (
    select(func.count())
    .select_from(runs)
    .where(runs.c.agent_id == bindparam("of_agent"), runs.c.status == RunStatus.created.value)
)


def count_created(tx: Tx, agent_id: AgentId) -> int:
    """Number of an agent's runs that have not started yet."""
    return int(tx.execute(_COUNT_CREATED, {"of_agent": agent_id}).scalar_one())
