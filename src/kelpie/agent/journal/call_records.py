"""What is put down about the calls that a commit answers. Pure constructors."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from kelpie.agent.journal.entries import CallAnswer
from kelpie.agent.prompt.synthetic_results import INTERRUPTED
from kelpie.agent.tool_calls.call_plan import PlannedCall
from kelpie.core.conversations.messages import Message, ToolReturn
from kelpie.core.conversations.runs import Run
from kelpie.core.ids import OrganizationId, StepId
from kelpie.core.permissions.call_records import RAN, CallOutcome, CallRecord, ResourceUse
from kelpie.core.time import Micros
from kelpie.sandbox.port import UsageMeter
from kelpie.tools.calls.capabilities import subject_of


def of_answers(
    organization: OrganizationId,
    run: Run,
    step_id: StepId,
    at: Micros,
    answered: Iterable[tuple[CallAnswer, ToolReturn, ResourceUse]],
) -> tuple[CallRecord, ...]:
    """The records of calls with their results, in their order."""
    return tuple(_of_answer(organization, run, step_id, at, *each) for each in answered)


def _of_answer(
    organization: OrganizationId,
    run: Run,
    step_id: StepId,
    at: Micros,
    answer: CallAnswer,
    result: ToolReturn,
    took: ResourceUse,
) -> CallRecord:
    planned, outcome = answer.planned, _outcome(answer.planned, result)
    subject = None if planned.tool is None else subject_of(planned.tool)
    return CallRecord(
        organization,
        planned.call.name,
        None if subject is None else subject.kind,
        outcome,
        at,
        run.agent_id,
        run.id,
        step_id,
        planned.call.id,
        (planned.tool.id or None) if planned.tool else None,
        took,
        counted=outcome in RAN and not result.untried and subject is not None and not subject.harmless,
        reason=planned.barred.reason if planned.barred else None,
    )


def _outcome(planned: PlannedCall, result: ToolReturn) -> CallOutcome:
    if planned.barred is not None:
        return CallOutcome.refused
    if planned.denied:
        return CallOutcome.denied
    if planned.untried:
        return CallOutcome.invalid
    if result.untried or result.text == INTERRUPTED:  # it came after a pause, or a crash left it open
        return CallOutcome.interrupted
    return CallOutcome.success if result.ok else CallOutcome.error


NO_METERS: Mapping[str, UsageMeter] = MappingProxyType({})
_UNKNOWN = UsageMeter()


def of_orphans(
    organization: OrganizationId,
    run: Run,
    rows: Sequence[Message],
    at: Micros,
    meters: Mapping[str, UsageMeter] = NO_METERS,
) -> list[CallRecord]:
    """The records of calls that nothing but the end of their turn has answered, with what they had taken."""

    def took(call_id: str) -> ResourceUse:
        meter = meters.get(call_id, _UNKNOWN)
        return ResourceUse(0, meter.cpu_us, meter.memory_peak_bytes)

    return [
        CallRecord(
            organization,
            result.name,
            None,
            CallOutcome.interrupted,
            at,
            run.agent_id,
            run.id,
            row.step_id,
            result.call_id,
            took=took(result.call_id),
            counted=True,  # nobody knows how far it came
        )
        for row in rows
        for result in row.tool_returns
    ]
