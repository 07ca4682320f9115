"""Runs as rows: what was asked, how far it came, how it ended, and which of them a crash cut short."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, bindparam, delete, func, insert, select, update

from kelpie.core.approvals import ClientTool
from kelpie.core.chains import UNCHAINED, Chain
from kelpie.core.errors import NotFound, RunOver
from kelpie.core.ids import AgentId, ConversationId, MessageId, OrganizationId, RunId
from kelpie.core.messages import CallAnswer, NewMessage, Role, Usage
from kelpie.core.overrides import Override
from kelpie.core.runs import UNFINISHED, Run, RunQuery, RunStatus, StopReason, check_run_move
from kelpie.storage import callbacks, run_filters
from kelpie.storage.heads import Node
from kelpie.storage.message_rows import answers_from_json, answers_to_json, content_from_json, content_to_json
from kelpie.storage.overrides import override_from_json, override_to_json
from kelpie.storage.paging import Paging
from kelpie.storage.steps import usage_to_json
from kelpie.storage.tables import run_tools, runs
from kelpie.world.database import Tx

_INSERT_RUN = insert(runs)


@dataclass(frozen=True, slots=True)
class Given:
    """What a run was asked to do: enough to begin it again after a crash."""

    messages: tuple[NewMessage, ...]
    max_steps: int
    answers: tuple[CallAnswer, ...] = ()  # to calls that wait; once they were matched with `request`, to all of them
    partial: bool = False  # whether they may leave some of the calls waiting
    request: MessageId | None = None
    earlier: tuple[RunId, ...] = ()  # the runs of the same turn before this one
    client_tools: tuple[ClientTool, ...] = ()
    chain: Chain = UNCHAINED
    override: Override | None = None
    group_id: str | None = None  # the group that it is said in
    deltas: bool = False  # whether its stream has tokens as they come


def _given_to_json(given: Given) -> dict[str, Any]:
    stored = [
        {
            "role": m.role.value,
            "content": content_to_json(m.content),
            "name": m.name,
            "otid": m.otid,
            "sender_id": m.sender_id,
            "group_id": m.group_id,
        }
        for m in given.messages
    ]
    own = {} if given.override is None else {"override": override_to_json(given.override)}
    return {"messages": stored, "max_steps": given.max_steps, **_waited_to_json(given), **own}


def _waited_to_json(given: Given) -> dict[str, Any]:
    """What only some turns have: answers to calls that waited, tools of the client's own, other agents behind it."""
    found: dict[str, Any] = {}
    if given.answers:
        found["answers"], found["partial"] = answers_to_json(given.answers), given.partial
    if given.request is not None:
        found["request"] = given.request
    if given.earlier:
        found["earlier"] = list(given.earlier)
    if given.client_tools:
        found["client_tools"] = [[t.name, t.description, dict(t.parameters)] for t in given.client_tools]
    if given.chain is not UNCHAINED:
        found["chain"] = given.chain.to_json()
    if given.group_id is not None:
        found["group_id"] = given.group_id
    if given.deltas:
        found["deltas"] = True
    return found


def _given_from_json(data: Mapping[str, Any]) -> Given:
    messages = tuple(
        NewMessage(
            Role(m["role"]), content_from_json(m["content"]), m["name"], m["otid"], m["sender_id"], m["group_id"]
        )
        for m in data["messages"]
    )
    return Given(
        messages,
        data["max_steps"],
        answers_from_json(data.get("answers")),
        data.get("partial", False),
        MessageId(data["request"]) if "request" in data else None,
        tuple(RunId(run_id) for run_id in data.get("earlier", ())),
        tuple(ClientTool(*tool) for tool in data.get("client_tools", ())),
        Chain.from_json(data["chain"]) if "chain" in data else UNCHAINED,
        override_from_json(data.get("override")),
        data.get("group_id"),
        data.get("deltas", False),
    )


def open_run(tx: Tx, run: Run, organization: OrganizationId, given: Given, node: Node) -> None:
    """Records a run with its input; the input is not history yet."""
    tx.execute(
        _INSERT_RUN,
        {
            "id": run.id,
            "agent_id": run.agent_id,
            "organization_id": organization,
            "conversation_id": run.conversation_id,
            "status": run.status.value,
            "stop_reason": None,
            "stop_detail": None,
            "background": run.background,
            "input": _given_to_json(given),
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
        },
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


def take_up(tx: Tx, run_id: RunId, node: Node) -> bool:
    """A lane begins, or goes on, with a run. False when it has ended in the meantime."""
    values = {"of_run": run_id, "node_id": node.id, "node_incarnation": node.incarnation}
    return tx.execute(_TAKE_UP, values).rowcount == 1


_REGIVE = update(runs).where(runs.c.id == bindparam("of_run")).values(input=bindparam("new_input"))


def regive(tx: Tx, run_id: RunId, given: Given) -> None:
    """Keeps what a run is to do as it was understood when its lane took it up."""
    tx.execute(_REGIVE, {"of_run": run_id, "new_input": _given_to_json(given)})


_RUN = select(runs).where(runs.c.id == bindparam("of_run"))
_UPDATE_PROGRESS = (
    update(runs)
    .where(runs.c.id == bindparam("of_run"), runs.c.status.in_([s.value for s in UNFINISHED]))
    .values(usage=bindparam("new_usage"), step_count=bindparam("new_count"), ttft_ns=bindparam("new_ttft"))
)
_FINISH = (
    update(runs)
    .where(runs.c.id == bindparam("of_run"), runs.c.status.in_([s.value for s in UNFINISHED]))
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
    """Records usage and steps so far. Raises RunOver when it has ended: somebody cancelled it."""
    moved = tx.execute(
        _UPDATE_PROGRESS,
        {
            "of_run": run.id,
            "new_usage": usage_to_json(run.usage),
            "new_count": run.step_count,
            "new_ttft": run.ttft_ns,
        },
    ).rowcount
    if moved != 1:
        raise RunOver(f"{run.id} has ended")


def finish(tx: Tx, run: Run) -> None:
    """Records how a run ended. Raises RunOver when it had ended before: somebody cancelled it."""
    check_run_move(RunStatus.running, run.status)
    ended = tx.execute(
        _FINISH,
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
    ).rowcount
    if ended != 1:
        raise RunOver(f"{run.id} had already ended")
    if run.callback_url is not None and run.completed_at is not None:
        callbacks.owe(tx, run.id, run.completed_at)


def _run_from_row(row: Row[Any]) -> Run:
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
    return _run_from_row(row)


_MANY = select(runs).where(runs.c.id.in_(bindparam("ids", expanding=True)))


def get_many(tx: Tx, ids: Sequence[str]) -> list[Run]:
    """The runs with these ids; ids that do not exist are left out."""
    return [_run_from_row(row) for row in tx.execute(_MANY, {"ids": list(ids)})] if ids else []


_RUN_PAGES = Paging(runs, "created_at", "total_duration_ns")


def select_runs(tx: Tx, organization: OrganizationId, query: RunQuery) -> list[Run]:
    statement, parameters = run_filters.matching(tx, organization, query)
    rows = _RUN_PAGES.rows(tx, statement, query.page, parameters, within={"organization_id": organization})
    return [_run_from_row(row) for row in rows]


_TOOLS_OF = select(run_tools.c.tool_id).where(run_tools.c.run_id == bindparam("of_run")).order_by(run_tools.c.tool_id)
_INSERT_TOOL = insert(run_tools)


def tools_used(tx: Tx, run_id: RunId) -> list[str]:
    """The ids of the tools that a run has called."""
    return list(tx.execute(_TOOLS_OF, {"of_run": run_id}).scalars())


def add_tools(tx: Tx, run_id: RunId, tool_ids: Iterable[str]) -> None:
    """Notes which tools a step of the run has called."""
    noted = tools_used(tx, run_id)
    new = [tool_id for tool_id in dict.fromkeys(tool_ids) if tool_id not in noted]
    if new:
        tx.execute(_INSERT_TOOL, [{"run_id": run_id, "tool_id": tool_id} for tool_id in new])


_DELETE_RUN = delete(runs).where(runs.c.id == bindparam("of_run"))


def remove(tx: Tx, run_id: RunId) -> None:
    """Deletes the record of a run; what it said stays in the history. Raises NotFound."""
    if tx.execute(_DELETE_RUN, {"of_run": run_id}).rowcount != 1:
        raise NotFound("Run", run_id)


_EXISTS = select(runs.c.id).where(runs.c.id == bindparam("of_run"))


def exists(tx: Tx, run_id: RunId) -> bool:
    return tx.execute(_EXISTS, {"of_run": run_id}).first() is not None


_COUNT_CREATED = (
    select(func.count())
    .select_from(runs)
    .where(runs.c.agent_id == bindparam("of_agent"), runs.c.status == RunStatus.created.value)
)


def count_created(tx: Tx, agent_id: AgentId) -> int:
    """How many runs of an agent have not begun yet."""
    return int(tx.execute(_COUNT_CREATED, {"of_agent": agent_id}).scalar_one())


# --- what a crash left ----------------------------------------------------------------------------------------------

_UNFINISHED_AGENTS = (
    select(runs.c.agent_id).where(runs.c.status.in_([s.value for s in UNFINISHED])).distinct().order_by(runs.c.agent_id)
)
_UNFINISHED_OF = (
    select(runs)
    .where(runs.c.agent_id == bindparam("of_agent"), runs.c.status.in_([s.value for s in UNFINISHED]))
    .order_by(runs.c.created_at, runs.c.id)
)


def agents_with_unfinished(tx: Tx) -> list[AgentId]:
    return [AgentId(row[0]) for row in tx.execute(_UNFINISHED_AGENTS)]


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that never ended, what it was asked, and which node was running it."""

    run: Run
    given: Given
    node: Node
    taken_up: int = 0  # how often a lane began to work on it


def unfinished_of(tx: Tx, agent_id: AgentId) -> list[Unfinished]:
    """Runs of an agent that never ended, oldest first."""
    return [_unfinished_from_row(row) for row in tx.execute(_UNFINISHED_OF, {"of_agent": agent_id})]


def find_unfinished(tx: Tx, run_id: RunId) -> Unfinished | None:
    """A run that has not ended; None when it has, or is gone."""
    row = tx.execute(_RUN, {"of_run": run_id}).first()
    return None if row is None or RunStatus(row.status) not in UNFINISHED else _unfinished_from_row(row)


def _unfinished_from_row(row: Row[Any]) -> Unfinished:
    node = Node(row.owner, row.owner_incarnation)
    return Unfinished(_run_from_row(row), _given_from_json(row.input), node, row.taken_up)


def given(tx: Tx, run_id: RunId) -> Given:
    """What a run was asked. Raises NotFound."""
    row = tx.execute(_RUN, {"of_run": run_id}).first()
    if row is None:
        raise NotFound("Run", run_id)
    return _given_from_json(row.input)


_BACKGROUND = (
    select(runs.c.id, runs.c.agent_id, runs.c.conversation_id)
    .where(runs.c.status.in_([s.value for s in UNFINISHED]), runs.c.background)
    .order_by(runs.c.created_at, runs.c.id)
)


@dataclass(frozen=True, slots=True)
class InBackground:
    """A background run that has not ended, and where it belongs."""

    run_id: RunId
    agent_id: AgentId
    conversation_id: ConversationId | None


def in_background(tx: Tx) -> list[InBackground]:
    """All background runs that have not ended, oldest first."""
    return [
        InBackground(
            RunId(row.id), AgentId(row.agent_id), ConversationId(row.conversation_id) if row.conversation_id else None
        )
        for row in tx.execute(_BACKGROUND)
    ]


_NEWEST_IN_BACKGROUND = (
    select(runs.c.id)
    .where(
        runs.c.status.in_([s.value for s in UNFINISHED]),
        runs.c.background,
        runs.c.agent_id == bindparam("of_agent"),
        func.coalesce(runs.c.conversation_id, "") == bindparam("of_conversation"),
    )
    .order_by(runs.c.created_at.desc(), runs.c.id.desc())
    .limit(1)
)


def newest_in_background(tx: Tx, agent_id: AgentId, conversation: str) -> RunId | None:
    """The newest background run of a conversation that has not ended."""
    found = tx.execute(_NEWEST_IN_BACKGROUND, {"of_agent": agent_id, "of_conversation": conversation}).scalar()
    return None if found is None else RunId(found)
