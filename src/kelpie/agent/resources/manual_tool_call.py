"""One manual call of a tool: it runs, and its outcome is recorded.

A tool that works inside a commit is recorded by that same commit. One that works outside is recorded when it is over,
also when the client has disconnected; when that fails, the error never suggests to simply repeat the call.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from kelpie.agent.tool_calls.execution import since
from kelpie.agent.turn.dependencies import TurnDependencies
from kelpie.core.access.callers import Caller
from kelpie.core.agents.agent import Agent
from kelpie.core.errors import CallerError, CommitUnknown, StorageError, ToolError
from kelpie.core.permissions.call_records import CallOutcome, ResourceUse
from kelpie.core.time import Micros
from kelpie.core.tools.tools import Tool, ToolType
from kelpie.observe import logs
from kelpie.sandbox.port import UsageMeter
from kelpie.tools.calls import manual_calls
from kelpie.tools.calls.argument_check import WrongArguments
from kelpie.tools.calls.interface import CallContext, Outcome, Precomputed, TransactionalTool
from kelpie.tools.registry.registry import preparation, transactional
from kelpie.world.database import Database, Tx

_log = logs.get("tools")

T = TypeVar("T")

Work = Callable[[], Coroutine[Any, Any, Outcome]]


@dataclass(frozen=True, slots=True)
class Note:
    """Record of a call, as far as it is known when the call begins."""

    caller: Caller
    agent: Agent | None
    tool: Tool
    at: Micros
    ticks: Callable[[], int]  # a stopwatch in nanoseconds
    began: int
    meter: UsageMeter = field(default_factory=UsageMeter)  # of what runs outside

    def put_down(self, tx: Tx, outcome: Outcome, ended: CallOutcome | None = None, reason: str | None = None) -> None:
        """Records the call; without `ended`, success or error as the outcome says."""
        took = ResourceUse(since(self.began, self.ticks), outcome.cpu_us, outcome.memory_peak_bytes)
        ended = ended or (CallOutcome.success if outcome.ok else CallOutcome.error)
        passport, organization = self.caller.passport, self.caller.organization_id
        run_id, step_id = (passport.run_id, passport.step_id) if passport else (None, None)
        manual_calls.record(tx, organization, self.tool, ended, took, self.at, self.agent, run_id, step_id, reason)


def inside_of(tool: Tool) -> TransactionalTool | None:
    """The tool as a function inside a commit; None when it runs outside."""
    return None if tool.tool_type is ToolType.custom else transactional(tool.name)


async def within_commit(
    ours: TurnDependencies, inside: TransactionalTool, call: CallContext, arguments: Mapping[str, Any], note: Note
) -> Outcome:
    """Runs a tool in the commit that records it. Raises StorageError, and then nothing is done."""
    prepare = preparation(note.tool.name)
    if prepare is not None:
        try:
            precomputed = await prepare(ours.precompute, call, arguments)
        except (
            ToolError,
            CallerError,
            StorageError,
        ) as error:  # the tool itself says what is wrong, or the commit does
            precomputed = Precomputed(lacking=str(error))
        call = replace(call, precomputed=precomputed)

    def write(tx: Tx) -> Outcome:
        savepoint = tx.begin_nested()
        try:
            outcome = inside(tx, call, arguments)
        except (ToolError, CallerError) as error:
            savepoint.rollback()
            outcome = failed(note.tool, error)
        else:
            savepoint.commit()
        note.put_down(tx, outcome)
        return outcome

    async def commit() -> Outcome:
        outcome = await ours.world.database.transact(write)
        ours.live_agents.reload(outcome.touched)
        ours.live_agents.enqueue(outcome.begun)
        return outcome

    return await _to_the_end(commit())


async def outside_of_commits(database: Database, work: Work, note: Note) -> Outcome:
    """Runs a tool and records it afterwards. Raises CommitUnknown when it has run and that could not be recorded."""
    try:
        outcome = await work()
    except (ToolError, CallerError) as error:
        outcome = failed(note.tool, error)
    except asyncio.CancelledError:
        await _to_the_end(_given_up(database, note))
        raise
    try:
        await database.transact(lambda tx: note.put_down(tx, outcome))
    except StorageError as error:
        raise CommitUnknown(
            f"'{note.tool.name}' was run, but the call could not be recorded: {error} Check what it did before you "
            "run it again."
        ) from error
    return outcome


def failed(tool: Tool, error: ToolError | CallerError) -> Outcome:
    """Outcome of a call that failed."""
    text = f"Error executing function {tool.name}: {error}"
    cpu, peak = (error.cpu_us, error.memory_peak_bytes) if isinstance(error, ToolError) else (0, 0)
    printed = () if isinstance(error, WrongArguments) else None  # as Letta, which calls the function with them
    return Outcome(text, ok=False, stdout=printed, stderr=(text,), cpu_us=cpu, memory_peak_bytes=peak)


async def _given_up(database: Database, note: Note) -> None:
    """Records a call that was ended because its client has disconnected."""
    try:
        took = Outcome("", ok=False, cpu_us=note.meter.cpu_us, memory_peak_bytes=note.meter.memory_peak_bytes)
        await database.transact(lambda tx: note.put_down(tx, took, CallOutcome.interrupted))
    except StorageError as error:
        _log.warning(
            "tool_call_not_recorded", "Abandoned tool call could not be recorded", tool=note.tool.name, error=str(error)
        )


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Result of work that must be completed: a cancelled caller waits for it first."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # retrieved; no caller is left to get it
        raise
