"""Tasks of MCP servers, followed in the background: each is asked about when it is due, and its agent gets the result.

The tasks are in the database, so a restart loses none. The result is stored as a run of the agent in the transaction
that ends the task, so the agent is told exactly once.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from kelpie.actors.periodic import PeriodicWorker
from kelpie.agent.inbox.run_queue import RunQueue
from kelpie.core.conversations.mcp_tasks import McpTask
from kelpie.core.conversations.messages import NewMessage, Role, Text
from kelpie.core.conversations.questions import Question
from kelpie.core.conversations.runs import MAX_STEPS_DEFAULT, Run, RunStatus
from kelpie.core.errors import KelpieError, McpError, NotFound
from kelpie.core.ids import RunId
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.mcp.connections.pool import ConnectionPool
from kelpie.mcp.protocol.tasks import Task, TaskStatus
from kelpie.observe import logs
from kelpie.storage.agents import agents
from kelpie.storage.agents.ownership_fence import NOBODY
from kelpie.storage.conversations import approvals
from kelpie.storage.runs import runs
from kelpie.storage.runs.input import RunInput
from kelpie.storage.runs.unfinished import StoredRun
from kelpie.storage.tools import mcp_tasks
from kelpie.tools.calls.interface import Outcome
from kelpie.tools.mcp import tasks
from kelpie.world.database import Tx
from kelpie.world.world import World

AT_ONCE = 16
LOOK_S = 30.0  # longest time between two looks at the database while there are tasks
NOTHING_S = 3600.0  # the same without any: whoever begins one says so
SHORTEST_S = 0.25
BUSY_S = 30.0  # before the agent is tried again that cannot take a message now
FAILURES_MAX = 30  # in a row, to ask about a task, before it is given up
FAILED_S, FAILED_S_MAX = 2.0, 300.0  # after a failure; the time doubles
INPUT_S = 60.0  # a task that waits for a person
TEXT_CHARS_MAX = 50_000

_log = logs.get("mcp")


class McpTaskFollower:
    """Follows the tasks of all agents."""

    def __init__(self, world: World, pool: ConnectionPool, run_queue: RunQueue) -> None:
        self._world = world
        self._pool = pool
        self._run_queue = run_queue
        self._worker = PeriodicWorker(self._look, failed=_report, retry_s=LOOK_S)

    def wake(self) -> None:
        """A task was begun or changed."""
        self._worker.wake()

    async def run(self) -> None:
        """Never returns."""
        await self._worker.run()

    async def _look(self) -> float:
        """Asks about all tasks that are due; returns when the next is."""
        now = self._world.clock.now()
        found = await self._world.database.read(lambda tx: mcp_tasks.due(tx, now, AT_ONCE))
        await asyncio.gather(*(self._follow(task) for task in found))
        next_at = await self._world.database.read(mcp_tasks.next_due)
        if next_at is None:
            return NOTHING_S
        left = (next_at - self._world.clock.now()) / MICROS_PER_SECOND
        return min(max(left, SHORTEST_S), LOOK_S)

    async def _follow(self, task: McpTask) -> None:
        now = self._world.clock.now()
        if tasks.is_late(task, now):
            await self._end(task, "failed", Outcome("The task took longer than its server keeps it.", ok=False))
            return
        try:
            found = await tasks.look(self._world, self._pool, task)
            if found is None:
                await self._end(task, "failed", Outcome("The MCP server of the task was deleted.", ok=False))
            elif found.status.ended:
                await self._end(task, found.status.value, tasks.result_of(found))
            else:
                await self._note(task, found)
        except McpError as error:
            await self._failed(task, error)

    async def _note(self, task: McpTask, found: Task) -> None:
        """Stores the state of a task that has not ended; its questions are told once."""
        asks = found.status is TaskStatus.input_required
        asked: Mapping[str, Question] = tasks.questions_of(found).questions if asks else {}
        wait_s = INPUT_S if asks else tasks.poll_ms(found) / 1000
        new = asks and dict(task.questions) != dict(asked)
        after = replace(task, status=found.status.value, status_message=found.message, questions=asked, failures=0)
        if new:
            texts = " ".join(each.message for each in asked.values())
            said = Outcome(f"The task waits for a person, who must answer: {texts}")
            await self._store(after, wait_s, said)
        else:
            await self._store(after, wait_s)

    async def _failed(self, task: McpTask, error: McpError) -> None:
        failures = task.failures + 1
        if failures >= FAILURES_MAX:
            await self._end(task, "failed", Outcome(f"The task cannot be followed any more: {error.message}", ok=False))
            return
        wait_s = min(FAILED_S * 2 ** (failures - 1), FAILED_S_MAX)
        await self._store(replace(task, failures=failures, status_message=error.message), wait_s)

    async def _end(self, task: McpTask, status: str, outcome: Outcome) -> None:
        await self._store(replace(task, status=status, questions={}, failures=0), None, outcome)

    async def _store(self, task: McpTask, wait_s: float | None, told: Outcome | None = None) -> None:
        """Stores a task, with a run that tells the agent if there is something to tell. An agent that cannot take a
        message now is told later: the task stays as it was until then."""
        now = self._world.clock.now()
        poll_at = None if wait_s is None else now + int(wait_s * MICROS_PER_SECOND)
        run = None if told is None else self._run(task, now)

        def write(tx: Tx) -> Run | None:
            current = mcp_tasks.locked(tx, task.id)
            if current is None or current.ended:
                return None  # cancelled or deleted meanwhile
            if current.updated_at != task.updated_at and not task.ended:
                return None  # answered meanwhile: it is asked about again at once
            if run is None or told is None:
                mcp_tasks.replace(tx, replace(task, poll_at=poll_at, updated_at=now))
                return None
            if not _takes_messages(tx, task):
                mcp_tasks.replace(tx, replace(current, poll_at=now + int(BUSY_S * MICROS_PER_SECOND)))
                return None
            runs.open_run(tx, run, task.organization_id, RunInput((_message(task, told),), MAX_STEPS_DEFAULT), NOBODY)
            ended = run.id if poll_at is None else None
            mcp_tasks.replace(tx, replace(task, poll_at=poll_at, updated_at=now, run_id=ended))
            return run

        begun = await self._world.database.transact(write)
        if begun is not None:
            self._run_queue.submit(StoredRun(begun.id, begun.agent_id, begun.conversation_id))

    def _run(self, task: McpTask, now: Micros) -> Run:
        return Run(
            id=self._world.ids.new(RunId),
            agent_id=task.agent_id,
            status=RunStatus.created,
            created_at=now,
            conversation_id=task.conversation_id,
            background=True,
            metadata={"run_type": "mcp_task", "mcp_task_id": task.id},
        )


def _takes_messages(tx: Tx, task: McpTask) -> bool:
    try:
        stopped = agents.get(tx, task.agent_id).stopped
    except NotFound:
        return False  # it is being deleted, and the task with it
    return not stopped and approvals.get(tx, task.agent_id, task.conversation_id or "") is None


def _message(task: McpTask, told: Outcome) -> NewMessage:
    state = "has ended" if task.ended else "is not finished"
    text = f"[Automatic message, not from a person: the task {task.id} of the tool '{task.tool_name}' {state}.]\n"
    return NewMessage(Role.user, (Text(text + told.text[:TEXT_CHARS_MAX]),), name="mcp_task")


def _report(error: KelpieError) -> None:
    _log.error("mcp_task_lookup_failed", "Tasks of MCP servers could not be read; trying again later", error=str(error))
