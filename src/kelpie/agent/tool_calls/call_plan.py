"""How the calls of a reply will be answered: run, refused, or left to somebody's word. Pure decisions.

A call is checked when it is about to be run, not only when tools are listed; what a model did wrong is never an error
of ours but the result that its call gets.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson

from kelpie.agent.prompt.rendering import HEARTBEAT, THINKING, read_object
from kelpie.agent.tool_calls import approval_matching, tool_rules
from kelpie.agent.tool_calls.tool_rules import AllowedTools, Made
from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.messages import ApprovalDecision, Awaits, CallAnswer, Message, ToolCall, ToolReturn
from kelpie.core.errors import ToolError
from kelpie.core.permissions.policies import OPEN, EffectivePermissions, Refusal
from kelpie.core.permissions.tool_permissions import Subject
from kelpie.core.tools.tools import Tool, ToolType
from kelpie.tools.builtin.pause import corrected_arguments, is_pause
from kelpie.tools.calls.argument_check import check_arguments
from kelpie.tools.calls.capabilities import subject_of
from kelpie.tools.calls.interface import NOTHING, ExternalTool, Precomputed, TransactionalTool
from kelpie.tools.calls.precomputed_search import Preparation
from kelpie.tools.registry.registry import preparation, transactional

Runner = Callable[[Tool], ExternalTool | None]  # what runs a tool outside of any commit, if anything does


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call that has been checked. Exactly one of `refusal`, `transactional`, `external`, `awaits`, `done` is set.

    `call` is as it will be stored: with the arguments that the tool rules prefill.
    """

    call: ToolCall
    arguments: dict[str, Any]
    heartbeat: bool
    tool: Tool | None = None
    refusal: str | None = None
    transactional: TransactionalTool | None = None
    external: ExternalTool | None = None
    awaits: Awaits | None = None  # nothing runs before somebody said a word
    done: ToolReturn | None = None  # the result that somebody's word was
    denied: bool = False  # and that word was no
    ran_with: str | None = None  # the arguments, if a person changed them
    untried: bool = False  # turned away for what the call itself is: no such tool, bad arguments, a rule against it
    barred: Refusal | None = None  # turned away because the agent may not use the tool, or not now
    misruled: bool = False  # turned away because the arguments that a rule prefills do not fit the tool
    prepare: Preparation | None = None  # finds out what a transactional tool wants to know beforehand
    insight: Precomputed = NOTHING  # and what it was


@dataclass(frozen=True, slots=True)
class CallDecisions:
    """Whose word counts for the calls of one reply: of these tools the client's, and what was `said` to which call.

    `said` is None while nobody was asked.
    """

    client: AbstractSet[str] = frozenset()
    said: Mapping[str, CallAnswer] | None = None


NO_WORDS = CallDecisions()


def plan(
    calls: Iterable[ToolCall],
    agent: Agent,
    tools: Sequence[Tool],
    runner: Runner,
    said: Sequence[Message],
    exits: AbstractSet[str],
    words: CallDecisions = NO_WORDS,
    warrant: EffectivePermissions = OPEN,
) -> list[PlannedCall]:
    """Decides how the calls of one reply will be answered; never raises for what the model did wrong.

    They count as made one after the other, after those of the turn that its rows, which were `said` before, tell of.
    """
    barred = barred_names(tools, warrant)
    names = [tool.name for tool in tools if tool.name not in barred]
    so_far, planned, counted = list(tool_rules.made_in(said)), list[PlannedCall](), 0
    for call in calls:
        ending = not planned and tool_rules.wants_end(said, exits)
        found = tool_rules.verdict(agent.tool_rules, names, so_far, exits, ending=ending)
        refuse = partial(warrant.refusal, before=counted) if warrant.layers else None
        planned.append(_answered(call, tools, words) or _plan(call, agent, tools, runner, found, words, refuse))
        counted += _will_count(planned[-1])
        if not planned[-1].untried:
            so_far.append(Made(call.name))
    return planned


def barred_names(tools: Sequence[Tool], warrant: EffectivePermissions) -> frozenset[str]:
    """The tools that the agent may not use: it is not offered them, and rules act as if it had none of them."""
    if not warrant.layers:
        return frozenset()
    return frozenset(tool.name for tool in tools if warrant.bars(subject_of(tool)))


def permitted(planned: Sequence[PlannedCall], warrant: EffectivePermissions) -> list[PlannedCall]:
    """The calls once more, as permissions and limits stand now: some time may have gone by since they were planned."""
    if not warrant.layers:
        return list(planned)
    checked, counted = list[PlannedCall](), 0
    for each in planned:
        runs = each.tool if each.transactional or each.external else None
        checked.append(_barred(each, warrant.refusal(subject_of(runs), counted)) if runs else each)
        counted += _will_count(checked[-1])
    return checked


def _barred(planned: PlannedCall, refusal: Refusal | None) -> PlannedCall:
    if refusal is None:
        return planned
    told = refusal.told
    return replace(planned, refusal=told, untried=True, barred=refusal, transactional=None, external=None, prepare=None)


def _will_count(planned: PlannedCall) -> bool:
    """Whether it uses up a call of the agent's limit."""
    runs = planned.transactional or planned.external or planned.awaits
    return bool(runs and planned.tool is not None and not subject_of(planned.tool).harmless)


def _answered(call: ToolCall, tools: Sequence[Tool], words: CallDecisions) -> PlannedCall | None:
    """A call that nothing is to be run for any more: it was denied, or its client has run it."""
    answer = words.said.get(call.id) if words.said else None
    if answer is None or (isinstance(answer, ApprovalDecision) and answer.approve):
        return None
    done = approval_matching.denied(call, answer) if isinstance(answer, ApprovalDecision) else answer
    arguments = read_object(call.arguments) or {}
    tool = next((t for t in tools if t.name == call.name), None)
    denied = isinstance(answer, ApprovalDecision)
    return PlannedCall(call, arguments, arguments.get(HEARTBEAT) is True, tool, done=done, denied=denied)


def _plan(
    call: ToolCall,
    agent: Agent,
    tools: Sequence[Tool],
    runner: Runner,
    found: AllowedTools,
    words: CallDecisions,
    refuse: Callable[[Subject], Refusal | None] | None,
) -> PlannedCall:
    arguments = read_object(call.arguments)
    if arguments is None:
        text = "The arguments are not a valid JSON object. Call the tool again with valid JSON."
        return PlannedCall(call, {}, False, refusal=text, untried=True)
    planned = PlannedCall(call, arguments, arguments.get(HEARTBEAT) is True)
    tool = next((t for t in tools if t.name == call.name), None)
    if tool is None:
        names = ", ".join(t.name for t in tools) or "none"
        text = f"You have no tool named '{call.name}'. Nothing was run. Your tools: {names}."
        return replace(planned, refusal=text, untried=True)
    planned = replace(planned, tool=tool)
    if refuse and (refusal := refuse(subject_of(tool))):
        return _barred(planned, refusal)
    if call.name not in found.allowed:
        return replace(planned, refusal=tool_rules.refusal(found, call.name), untried=True)
    if prefilled := found.prefilled.get(call.name):
        try:
            planned = _filled(planned, tool, prefilled)
        except ToolError as error:
            text = f"'{tool.name}' was not run: the arguments that this agent's tool rules set are invalid. {error}"
            return replace(planned, refusal=text, untried=True, misruled=True)
    awaits, ruling = _word(call, agent, words)
    if awaits and words.said is not None:
        text = f"'{tool.name}' was not run: it needs approval, and none was requested. Call it again."
        return replace(planned, refusal=text, untried=True)
    if awaits is Awaits.client:  # its arguments are the client's business
        return replace(planned, awaits=awaits)
    if ruling and ruling.arguments is not None:
        planned = replace(planned, arguments=read_object(ruling.arguments) or {}, ran_with=ruling.arguments)
    given = {name: value for name, value in planned.arguments.items() if name not in (HEARTBEAT, THINKING)}
    if is_pause(tool):
        given = corrected_arguments(given)
    try:
        planned = replace(planned, arguments=check_arguments(tool.json_schema, given))
    except ToolError as error:
        return replace(planned, arguments=given, refusal=str(error), untried=True)
    if awaits:
        return replace(planned, awaits=awaits)
    return _with_runner(planned, tool, runner)


def _word(call: ToolCall, agent: Agent, words: CallDecisions) -> tuple[Awaits | None, ApprovalDecision | None]:
    """Whose word the call still waits for, or the one that lets it run."""
    ruling = words.said.get(call.id) if words.said is not None else None
    if isinstance(ruling, ApprovalDecision):
        return None, ruling
    return approval_matching.waits(call, agent.tool_rules, words.client), None


def _filled(planned: PlannedCall, tool: Tool, prefilled: Mapping[str, Any]) -> PlannedCall:
    """The call with the arguments that a rule gives it over the model's. Raises ToolError when they do not fit."""
    parameters: Mapping[str, Any] = tool.json_schema.get("parameters") or {}
    fitting = check_arguments({"parameters": {**parameters, "required": []}}, dict(prefilled))
    arguments = {**planned.arguments, **fitting}
    call = replace(planned.call, arguments=orjson.dumps(arguments).decode())
    return replace(planned, call=call, arguments=arguments)


def _with_runner(planned: PlannedCall, tool: Tool, runner: Runner) -> PlannedCall:
    inside = None if tool.tool_type is ToolType.custom else transactional(tool.name)
    if inside is not None:
        return replace(planned, transactional=inside, prepare=preparation(tool.name))
    if (external := runner(tool)) is not None:
        return replace(planned, external=external)
    text = f"'{tool.name}' was not run: its code needs a sandbox, and this server has none."
    return replace(planned, refusal=text)
