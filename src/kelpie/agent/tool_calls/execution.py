"""Execution of the calls of a reply: inside a commit or outside any, one by one or in parallel; each has one result."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kelpie.agent.prompt.synthetic_results import INTERRUPTED
from kelpie.agent.tool_calls.call_plan import (
    AnsweredCall,
    ExternalCall,
    ParsedCall,
    PlannedCall,
    RefusedCall,
    TransactionalCall,
)
from kelpie.core.conversations.messages import Image, Text, ToolReturn
from kelpie.core.conversations.questions import ToolQuestions
from kelpie.core.errors import CallerError, StorageError, ToolError
from kelpie.core.permissions.call_records import NO_TIME, ResourceUse
from kelpie.core.tools.tools import Tool
from kelpie.tools.calls.interface import NOTHING, CallContext, Outcome, Precomputed
from kelpie.tools.calls.outcome_text import within
from kelpie.tools.calls.precomputed_search import Precompute, Preparation
from kelpie.world.database import Tx

Ticks = Callable[[], int]  # a stopwatch in nanoseconds: only durations are taken from it
PRECOMPUTE_S = 30.0  # that the calls of one reply may take for it before their commit


def run_inside(tx: Tx, planned: PlannedCall, context: CallContext) -> tuple[ToolReturn, Outcome | None]:
    """Answers a call within a commit; a tool that fails leaves nothing written."""
    parsed = planned.parsed
    if isinstance(planned, AnsweredCall):
        return planned.result, None
    if isinstance(planned, RefusedCall):
        return _refused(planned), None
    if not isinstance(planned, TransactionalCall):  # it did not run, and now it does not any more
        return _failed(parsed, INTERRUPTED), None
    savepoint = tx.begin_nested()
    try:
        outcome = planned.run(tx, context, parsed.arguments)
    except (ToolError, CallerError) as error:
        savepoint.rollback()
        return _failed(parsed, str(error)), None
    savepoint.commit()
    return _returned(parsed, planned.tool, outcome, context), outcome


def batches(planned: Sequence[PlannedCall]) -> list[list[PlannedCall]]:
    """The calls in their order: neighbours whose tools may run in parallel together, every other one alone."""
    found: list[list[PlannedCall]] = []
    for each in planned:
        if found and _is_parallel(each) and _is_parallel(found[-1][0]):
            found[-1].append(each)
        else:
            found.append([each])
    return found


def _is_parallel(planned: PlannedCall) -> bool:
    return isinstance(planned, ExternalCall) and bool(planned.tool.enable_parallel_execution)


@dataclass(frozen=True, slots=True)
class ExecutedCall:
    """Result of a call that ran outside any commit, and what it used."""

    result: ToolReturn
    used: ResourceUse = NO_TIME
    asks: ToolQuestions | None = None  # it is not finished: a person must answer these first


async def run_together(calls: Sequence[tuple[ExternalCall, CallContext]], ticks: Ticks) -> list[ExecutedCall]:
    """Runs external calls at once; returns their results in order. When one breaks, or all are cancelled, none
    continues."""
    if len(calls) == 1:
        return [await run_outside(*calls[0], ticks)]
    tasks = [asyncio.create_task(run_outside(planned, context, ticks)) for planned, context in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def precomputed(
    planned: Sequence[PlannedCall], precompute: Precompute, context: CallContext
) -> list[PlannedCall]:
    """The calls with what their tools need before the commit, as far as that can be computed in time."""
    found = list(planned)
    try:
        async with asyncio.timeout(PRECOMPUTE_S):
            for at, each in enumerate(planned):
                if isinstance(each, TransactionalCall) and each.prepare is not None:
                    ready = await _precomputed(each.parsed, each.prepare, precompute, context)
                    found[at] = replace(each, precomputed=ready)
    except TimeoutError:
        late = Precomputed(lacking=f"nothing came within {PRECOMPUTE_S:g} s")
        found = [replace(each, precomputed=late) if _lacks(each) else each for each in found]
    return found


def _lacks(planned: PlannedCall) -> bool:
    return isinstance(planned, TransactionalCall) and planned.prepare is not None and planned.precomputed is NOTHING


async def _precomputed(
    parsed: ParsedCall, prepare: Preparation, precompute: Precompute, context: CallContext
) -> Precomputed:
    try:
        return await prepare(precompute, context, parsed.arguments)
    except (ToolError, CallerError, StorageError) as error:  # the tool itself says what is wrong, or the commit does
        return Precomputed(lacking=str(error))


async def run_outside(planned: ExternalCall, context: CallContext, ticks: Ticks) -> ExecutedCall:
    """Runs an external call; what it raises as ToolError is its result."""
    began, parsed = ticks(), planned.parsed
    try:
        outcome = await planned.run(planned.tool, context, parsed.arguments)
    except ToolError as error:
        used = ResourceUse(since(began, ticks), error.cpu_us, error.memory_peak_bytes)
        return ExecutedCall(_failed(parsed, str(error)), used)
    used = ResourceUse(since(began, ticks), outcome.cpu_us, outcome.memory_peak_bytes)
    result = _returned(parsed, planned.tool, outcome, context)
    if outcome.asks is None:
        return ExecutedCall(result, used)
    return ExecutedCall(replace(result, ok=True), used, outcome.asks)


def since(began: int, ticks: Ticks) -> int:
    """Microseconds since `began` on the stopwatch."""
    return max(0, ticks() - began) // 1000


def _returned(parsed: ParsedCall, tool: Tool, outcome: Outcome, context: CallContext) -> ToolReturn:
    text, content = within(outcome.text, context.quota.returned(tool.return_char_limit)), outcome.content
    if text is not outcome.text:
        content = (Text(text), *(part for part in content if isinstance(part, Image))) if content else ()
    call, ok, edited = parsed.call, outcome.ok, parsed.edited_arguments
    return ToolReturn(call.id, call.name, ok, text, outcome.stdout, outcome.stderr, content=content, ran_with=edited)


def _refused(planned: RefusedCall) -> ToolReturn:
    call, edited = planned.parsed.call, planned.parsed.edited_arguments
    stderr = None if planned.bad_prefill else (planned.text,)  # no tool could have written any
    return ToolReturn(call.id, call.name, False, planned.text, None, stderr, planned.untried, edited)


def _failed(parsed: ParsedCall, text: str) -> ToolReturn:
    call = parsed.call
    return ToolReturn(call.id, call.name, False, text, None, (text,), False, parsed.edited_arguments)
