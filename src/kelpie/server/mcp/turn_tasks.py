"""Turns of agents behind MCP: a message is a background run, which a call waits for or hands out as a task.

The run is stored before anything is answered, so neither a lost connection nor a restart loses it. The id of a task is
that of its run.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from kelpie.agent.events.turn_events import MessageCommitted, StreamCut, TurnEnded
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.conversations.messages import Message, NewMessage, Role, Text
from kelpie.core.conversations.runs import UNFINISHED, Run, RunStatus, StopReason
from kelpie.core.errors import InvalidInput, NotFound, StorageError, TurnBroken
from kelpie.core.ids import AgentId, RunId
from kelpie.core.paging import PAGE_BYTES_MAX, Page
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.mcp.protocol.tasks import Task, TaskStatus
from kelpie.server.http.errors import refusal
from kelpie.server.mcp.peer import Peer
from kelpie.server.mcp.results import tool_error, tool_result

POLL_MS = 2000
POLLS_MAX = 3600
FAILURES_MAX = 10
MESSAGES_MAX = 1000  # of one run that its answer is taken from
_STATUSES = {
    RunStatus.created: TaskStatus.working,
    RunStatus.running: TaskStatus.working,
    RunStatus.completed: TaskStatus.completed,
    RunStatus.failed: TaskStatus.failed,
    RunStatus.cancelled: TaskStatus.cancelled,
}
_ENDS = {
    StopReason.max_steps: "The agent stopped because it reached its maximum number of steps.",
    StopReason.requires_approval: (
        "The agent waits: a person must approve or deny its tool call. See `kelpie approvals list`, then ask again."
    ),
}


async def begin(peer: Peer, agent_id: AgentId, text: str, message_id: str | None, conversation: str) -> Run:
    """Stores the message as a run. The same text with the same id is the run that it was before. Raises KelpieError."""
    said = NewMessage(Role.user, (Text(text),), otid=message_id)
    send = SendRequest((said,), max_steps=peer.api.settings.max_steps, conversation=conversation)
    return await peer.api.background_runs.accept(agent_id, send)


async def steps(peer: Peer, run_id: RunId) -> AsyncGenerator[str, None]:
    """Waits for the end of a run, if it can be watched; yields a word about each step on the way."""
    try:
        async with aclosing(peer.api.background_runs.follow(run_id)) as events:
            async for event in events:
                if isinstance(event, TurnEnded | StreamCut):
                    return
                if isinstance(event, MessageCommitted) and event.message.is_reply:
                    called = ", ".join(call.name for call in event.message.tool_calls)
                    yield f"The agent calls {called}." if called else "The agent has answered."
    except (NotFound, StorageError):
        return  # it ended a while ago and its events are no longer stored, or they cannot be read now


async def ended(peer: Peer, run: Run) -> Run:
    """The run when it has ended, which its stream may not tell: one that is very long ends before its run does.

    Raises TurnBroken when that cannot be found out. The turn itself goes on.
    """
    failures = 0
    for _ in range(POLLS_MAX):
        try:
            if (found := await peer.api.runs.get(run.id)).status not in UNFINISHED:
                return found
        except StorageError:
            failures += 1
            if failures == FAILURES_MAX:
                break
        await asyncio.sleep(POLL_MS / 1000)
    raise TurnBroken(
        f"The message was accepted as {run.id}, but the end of its turn is not known yet. Call again with the same "
        "message_id, or read the agent's messages later."
    )


async def find(peer: Peer, task_id: str) -> Run:
    """The run of a task that the client may see. Raises NotFound, InvalidInput, Forbidden."""
    run = await peer.api.runs.get(RunId.parse(task_id))
    if not run.background:
        raise NotFound("Task", task_id)
    peer.require("GET", f"/v1/agents/{run.agent_id}/messages")
    return run


async def cancel(peer: Peer, task_id: str) -> Run:
    """Ends the run of a task. Raises what `find` raises, and InvalidInput for a task that has ended."""
    run = await find(peer, task_id)
    peer.require("POST", f"/v1/agents/{run.agent_id}/messages/cancel")
    if run.status not in UNFINISHED:
        raise InvalidInput("taskId", f"the task has ended already: {run.status.value}")
    await peer.api.cancellations.of_agent(run.agent_id, [run.id])
    return await peer.api.runs.get(run.id)


async def result_of(peer: Peer, run: Run) -> dict[str, Any]:
    """The result of a tool call whose run has ended."""
    if run.status is RunStatus.cancelled:
        return tool_error("The turn of the agent was cancelled.")
    said = await peer.api.runs.messages(run.id, Page(MESSAGES_MAX, descending=False, bytes_max=PAGE_BYTES_MAX))
    if run.status is RunStatus.failed:
        return tool_error(await _failure(peer, run))
    note = _ENDS.get(run.stop_reason) if run.stop_reason else None
    facts: dict[str, Any] = {"reply": _reply(said), "agent_id": run.agent_id, "run_id": run.id}
    facts |= {"stop_reason": run.stop_reason.value} if run.stop_reason else {}
    return tool_result(facts | ({"note": note} if note else {}))


async def task_of(peer: Peer, run: Run, *, with_result: bool = False) -> Task:
    """The run as a task."""
    ended = run.completed_at or run.created_at
    result = await result_of(peer, run) if with_result and run.status is RunStatus.completed else None
    error = None
    if with_result and run.status is RunStatus.failed:
        error = {"code": -32603, "message": await _failure(peer, run)}
    return Task(
        run.id,
        _STATUSES[run.status],
        _iso(run.created_at),
        _iso(ended),
        poll_ms=POLL_MS,
        result=result,
        error=error,
    )


def _reply(said: list[Message]) -> str:
    return "\n\n".join(text for message in said if message.is_reply and (text := message.said))


async def _failure(peer: Peer, run: Run) -> str:
    """Why the turn failed, as its stored events tell it; after their time, only its reason is known."""
    try:
        async with aclosing(peer.api.background_runs.follow(run.id)) as events:
            async for event in events:
                if isinstance(event, TurnEnded) and event.error is not None:
                    return f"The turn of the agent failed: {refusal(event.error).message}"
    except NotFound:
        pass  # swept
    return f"The turn of the agent failed: {run.stop_reason.value if run.stop_reason else 'unknown reason'}."


def _iso(at: Micros) -> str:
    return datetime.fromtimestamp(at / MICROS_PER_SECOND, UTC).isoformat()
