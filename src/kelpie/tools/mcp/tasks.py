"""Tasks of MCP servers for agents: stored when a call begins one, asked about, answered and cancelled.

The agent is told the result in a message, which another module sends.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.conversations.mcp_tasks import McpTask
from kelpie.core.conversations.questions import ToolQuestions
from kelpie.core.errors import Conflict, InvalidInput, McpError, McpFault, ToolError
from kelpie.core.ids import ConversationId, McpTaskId
from kelpie.core.time import Micros
from kelpie.core.tools.mcp_servers import McpServer
from kelpie.core.tools.tools import Tool
from kelpie.mcp.client.answers import CallResult, InputGiven, read_call, read_questions
from kelpie.mcp.client.session import Session
from kelpie.mcp.connections.pool import ConnectionPool
from kelpie.mcp.protocol.tasks import POLL_MS_DEFAULT, Task, TaskStatus
from kelpie.storage.tools import mcp_servers, mcp_tasks
from kelpie.tools.calls.argument_check import check_arguments
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.tools.mcp.tool_results import outcome_of
from kelpie.world.database import Tx
from kelpie.world.world import World

OPEN_MAX = 64  # tasks of one agent at once
POLL_MS_MIN, POLL_MS_MAX = 250, 300_000
LIFE_MS_DEFAULT, LIFE_MS_MAX = 24 * 3600 * 1000, 7 * 24 * 3600 * 1000
LIST_MAX = 1000


def poll_ms(task: Task) -> int:
    """How long to wait before a task is asked about again."""
    return min(max(task.poll_ms or POLL_MS_DEFAULT, POLL_MS_MIN), POLL_MS_MAX)


async def begin(world: World, server: McpServer, tool: Tool, call: CallContext, task: Task) -> Outcome:
    """Stores a task that a call has begun, and tells the agent so. Raises ToolError when the agent has too many."""
    now, wait_ms = world.clock.now(), poll_ms(task)
    life_ms = min(task.ttl_ms or LIFE_MS_DEFAULT, LIFE_MS_MAX)
    stored = McpTask(
        id=world.ids.new(McpTaskId),
        organization_id=server.organization_id,
        server_id=server.id,
        agent_id=call.agent.id,
        conversation_id=ConversationId(call.conversation_id) if call.conversation_id else None,
        tool_name=tool.name,
        task_id=task.id,
        status=task.status.value,
        created_at=now,
        updated_at=now,
        expires_at=now + life_ms * 1000,
        poll_at=now + wait_ms * 1000,
        poll_ms=wait_ms,
        status_message=task.message,
    )

    def write(tx: Tx) -> bool:
        if mcp_tasks.count_open(tx, call.agent.id) >= OPEN_MAX:
            return False
        mcp_tasks.insert(tx, stored)
        return True

    if not await world.database.transact(write):
        raise ToolError(f"{OPEN_MAX} tasks of this agent are running already; wait until some have ended.")
    said = f" It says: {task.message}" if task.message else ""
    return Outcome(
        f"'{tool.name}' runs as a task, {stored.id}, and may take a while.{said} You will get its result in a message "
        "when it ends. Do not call the tool again for the same purpose; go on with what you can do now."
    )


def result_of(task: Task) -> Outcome:
    """The outcome of a task that has ended. Raises McpError for a result that cannot be read."""
    if task.status is TaskStatus.completed:
        found = read_call(task.result or {})
        if isinstance(found, CallResult):
            return outcome_of(found)
        raise McpError(McpFault.malformed, "the result of the task cannot be read")
    if task.status is TaskStatus.cancelled:
        return Outcome("The task was cancelled on its server.", ok=False)
    said = (task.error or {}).get("message") or task.message or "its server gives no reason"
    return Outcome(f"The task failed: {said}", ok=False)


async def look(world: World, pool: ConnectionPool, task: McpTask) -> Task | None:
    """The state of a task on its server; None if the server was deleted. Raises McpError."""
    server = await world.database.read(lambda tx: mcp_servers.anybodys(tx, task.server_id, world.keyring))
    if server is None:
        return None
    connection = await pool.get(server)

    async def ask(session: Session) -> Task:
        return await session.task(task.task_id)

    return await connection.use(ask)


class McpTasks:
    """Tasks of the caller's organization. `due` is called when one must be asked about at once."""

    def __init__(
        self, world: World, pool: ConnectionPool, due: Callable[[], None], caller: Caller = DEFAULT_CALLER
    ) -> None:
        self._world = world
        self._pool = pool
        self._due = due
        self._organization = caller.organization_id

    async def newest(self, most: int = LIST_MAX) -> list[McpTask]:
        return await self._world.database.read(lambda tx: mcp_tasks.newest(tx, self._organization, most))

    async def get(self, task_id: str) -> McpTask:
        """Raises NotFound."""
        return await self._world.database.read(lambda tx: mcp_tasks.get(tx, self._organization, task_id))

    async def cancel(self, task_id: str) -> McpTask:
        """Cancels a task on its server, as far as that can be reached, and follows it no more.

        Raises NotFound, and Conflict for one that has ended.
        """
        task = await self.get(task_id)
        if task.ended:
            raise Conflict(f"{task.id} has ended already: it is {task.status}")

        async def work(session: Session) -> None:
            await session.cancel_task(task.task_id)

        message = None
        try:
            await self._use(task, work)
        except McpError as error:
            message = f"The server was not told: {error.message}"
        now = self._world.clock.now()

        def write(tx: Tx) -> McpTask:
            current = mcp_tasks.locked(tx, task.id) or task
            if current.ended:
                return current
            after = replace(current, status="cancelled", status_message=message, poll_at=None, updated_at=now)
            mcp_tasks.replace(tx, after)
            return after

        return await self._world.database.transact(write)

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> McpTask:
        """Sends a person's answers to the questions of a task, by their keys.

        Raises NotFound, Conflict for one that asks nothing, InvalidInput for answers that do not fit, and McpError.
        """
        task = await self.get(task_id)
        if task.ended or not task.questions:
            raise Conflict(f"{task.id} asks nothing now")
        given = InputGiven(task.questions, {key: _checked(task, key, answers.get(key)) for key in task.questions})
        if unknown := sorted(set(answers) - set(task.questions)):
            raise InvalidInput("answers", f"there is no question {', '.join(unknown)[:200]}")

        async def work(session: Session) -> None:
            await session.answer_task(task.task_id, given)

        await self._use(task, work)
        now = self._world.clock.now()

        def write(tx: Tx) -> McpTask:
            current = mcp_tasks.locked(tx, task.id) or task
            if current.ended:
                return current
            after = replace(current, status="working", questions={}, poll_at=now, updated_at=now)
            mcp_tasks.replace(tx, after)
            return after

        after = await self._world.database.transact(write)
        self._due()
        return after

    async def _use(self, task: McpTask, work: Callable[[Session], Awaitable[None]]) -> None:
        world = self._world
        server = await world.database.read(lambda tx: mcp_servers.anybodys(tx, task.server_id, world.keyring))
        if server is None:
            raise McpError(McpFault.unreachable, "the MCP server of the task was deleted")
        connection = await self._pool.get(server)
        await connection.use(work)


def questions_of(task: Task) -> ToolQuestions:
    """The questions of a task. Raises McpError."""
    return ToolQuestions("", read_questions(task.input_requests))


def _checked(task: McpTask, key: str, answer: Any) -> dict[str, Any] | None:
    """The answer to one question; None declines it. Raises InvalidInput."""
    if answer is None:
        return None
    if not isinstance(answer, Mapping):
        raise InvalidInput(f"answers.{key}", "must be an object, or null to decline")
    question = task.questions[key]
    if question.url is not None:
        return {}
    try:
        return check_arguments({"parameters": question.schema or {}}, answer)
    except ToolError as error:
        raise InvalidInput(f"answers.{key}", str(error)) from error


def is_late(task: McpTask, now: Micros) -> bool:
    return now >= task.expires_at
