"""Running the calls of a reply: inside a commit or outside of any, alone or side by side; each has one result."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kelpie.agent.prompt.synthetic_results import INTERRUPTED
from kelpie.agent.tool_calls.call_plan import PlannedCall
from kelpie.core.conversations.messages import Image, Text, ToolReturn
from kelpie.core.errors import CallerError, StorageError, ToolError
from kelpie.core.permissions.call_records import NO_TIME, ResourceUse
from kelpie.tools.calls.interface import NOTHING, CallContext, Outcome, Precomputed
from kelpie.tools.calls.outcome_text import within
from kelpie.tools.calls.precomputed_search import Precompute, Preparation
from kelpie.world.database import Tx

Ticks = Callable[[], int]  # a stopwatch in nanoseconds: only durations come of it
FORESEEN_S = 30.0  # how long the calls of one reply may take to find things out before their commit


def run_inside(tx: Tx, planned: PlannedCall, context: CallContext) -> tuple[ToolReturn, Outcome | None]:
    """Answers a refused, transactional or done call within a commit; a tool that fails leaves nothing written."""
    if planned.done is not None:
        return planned.done, None
    if planned.refusal is not None or planned.transactional is None:
        return _failed(planned, planned.refusal or INTERRUPTED), None
    savepoint = tx.begin_nested()
    try:
        outcome = planned.transactional(tx, context, planned.arguments)
    except (ToolError, CallerError) as error:
        savepoint.rollback()
        return _failed(planned, str(error)), None
    savepoint.commit()
    return _returned(planned, outcome), outcome


def batches(planned: Sequence[PlannedCall]) -> list[list[PlannedCall]]:
    """The calls in their order: neighbours whose tools may run side by side together, every other one alone."""
    found: list[list[PlannedCall]] = []
    for p in planned:
        if found and _side_by_side(p) and _side_by_side(found[-1][0]):
            found[-1].append(p)
        else:
            found.append([p])
    return found


def _side_by_side(planned: PlannedCall) -> bool:
    return planned.external is not None and planned.tool is not None and bool(planned.tool.enable_parallel_execution)


@dataclass(frozen=True, slots=True)
class ExecutedCall:
    """What came of a call that ran outside, and what it took."""

    result: ToolReturn
    took: ResourceUse = NO_TIME


async def run_together(calls: Sequence[tuple[PlannedCall, CallContext]], ticks: Ticks) -> list[ExecutedCall]:
    """Runs external calls at once and gives their results in order; when one breaks, or all are cancelled, none runs
    on."""
    if len(calls) == 1:
        return [await run_outside(*calls[0], ticks)]
    tasks = [asyncio.create_task(run_outside(planned, context, ticks)) for planned, context in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def foreseen(planned: Sequence[PlannedCall], foresight: Precompute, context: CallContext) -> list[PlannedCall]:
    """The calls with what their tools want to know before the commit, as far as that can be found out in time."""
    found = list(planned)
    try:
        async with asyncio.timeout(FORESEEN_S):
            for at, each in enumerate(planned):
                if each.prepare is not None:
                    found[at] = replace(each, insight=await _insight(each, each.prepare, foresight, context))
    except TimeoutError:
        late = Precomputed(lacking=f"nothing came within {FORESEEN_S:g} s")
        found = [replace(p, insight=late) if p.prepare and p.insight is NOTHING else p for p in found]
    return found


async def _insight(
    planned: PlannedCall, prepare: Preparation, foresight: Precompute, context: CallContext
) -> Precomputed:
    try:
        return await prepare(foresight, context, planned.arguments)
    except (ToolError, CallerError, StorageError) as error:  # the tool itself says what is wrong, or the commit does
        return Precomputed(lacking=str(error))


async def run_outside(planned: PlannedCall, context: CallContext, ticks: Ticks) -> ExecutedCall:
    """Runs an external call; what it raises as ToolError is its result."""
    assert planned.external is not None and planned.tool is not None
    began = ticks()
    try:
        outcome = await planned.external(planned.tool, context, planned.arguments)
    except ToolError as error:
        return ExecutedCall(
            _failed(planned, str(error)), ResourceUse(since(began, ticks), error.cpu_us, error.memory_peak_bytes)
        )
    took = ResourceUse(since(began, ticks), outcome.cpu_us, outcome.memory_peak_bytes)
    return ExecutedCall(_returned(planned, outcome), took)


def since(began: int, ticks: Ticks) -> int:
    """How many microseconds have gone by on the stopwatch."""
    return max(0, ticks() - began) // 1000


def _returned(planned: PlannedCall, outcome: Outcome) -> ToolReturn:
    limit = planned.tool.return_char_limit if planned.tool else len(outcome.text)
    text, content = within(outcome.text, limit), outcome.content
    if text is not outcome.text:
        content = (Text(text), *(part for part in content if isinstance(part, Image))) if content else ()
    call, ok, changed = planned.call, outcome.ok, planned.ran_with
    return ToolReturn(call.id, call.name, ok, text, outcome.stdout, outcome.stderr, content=content, ran_with=changed)


def _failed(planned: PlannedCall, text: str) -> ToolReturn:
    said = None if planned.misruled else (text,)  # there was no tool that could have said anything
    call = planned.call
    return ToolReturn(call.id, call.name, False, text, None, said, planned.untried, planned.ran_with)
