"""Plan of the calls of a reply: each is run, refused, answered already, or left to an approval or a client. Pure.

A call is checked when it is about to run, not only when tools are offered. A mistake of the model is never an error of
the server; it is the result that the call gets.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson

from kelpie.agent.prompt.rendering import HEARTBEAT, THINKING, read_object
from kelpie.agent.tool_calls import approval_matching, tool_rules
from kelpie.agent.tool_calls.person_answers import with_answers
from kelpie.agent.tool_calls.tool_rules import AllowedTools, Made
from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.messages import ApprovalDecision, Awaits, CallAnswer, Message, ToolCall, ToolReturn
from kelpie.core.conversations.questions import ToolQuestions
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

Runner = Callable[[Tool], ExternalTool | None]  # finds the runner of a tool that does not run inside a commit


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """Data that every planned call has. `call` is stored as it is here, with the arguments that tool rules prefill."""

    call: ToolCall
    arguments: dict[str, Any]
    heartbeat: bool = False
    tool: Tool | None = None
    edited_arguments: str | None = None  # as a person changed them
    answered: ToolQuestions | None = None  # the questions of the call, with a person's answers


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """A call that does not run; `text` is its result."""

    parsed: ParsedCall
    text: str
    untried: bool = True  # refused for the call itself: no such tool, bad arguments, a rule or permission against it
    bad_prefill: bool = False  # the arguments that a tool rule prefills do not fit the tool
    denied: Refusal | None = None  # by permissions or limits


@dataclass(frozen=True, slots=True)
class TransactionalCall:
    """A call whose tool runs inside the commit of its result."""

    parsed: ParsedCall
    tool: Tool
    run: TransactionalTool
    prepare: Preparation | None = None  # precomputes what the tool needs before the commit
    precomputed: Precomputed = NOTHING


@dataclass(frozen=True, slots=True)
class ExternalCall:
    """A call whose tool runs outside any commit."""

    parsed: ParsedCall
    tool: Tool
    run: ExternalTool


@dataclass(frozen=True, slots=True)
class AwaitingCall:
    """A call that nothing runs for before it is approved, or before the client sends its result."""

    parsed: ParsedCall
    tool: Tool
    awaits: Awaits


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """A call that was denied by a person, or that the client has run."""

    parsed: ParsedCall
    result: ToolReturn
    denied: bool


PlannedCall = RefusedCall | TransactionalCall | ExternalCall | AwaitingCall | AnsweredCall


@dataclass(frozen=True, slots=True)
class CallDecisions:
    """Decisions on the calls of one reply; `by_call` is None before any was asked for. `client` names client tools."""

    client: AbstractSet[str] = frozenset()
    by_call: Mapping[str, CallAnswer] | None = None


NO_DECISIONS = CallDecisions()


def plan(
    calls: Iterable[ToolCall],
    agent: Agent,
    tools: Sequence[Tool],
    runner: Runner,
    rows: Sequence[Message],
    exits: AbstractSet[str],
    decisions: CallDecisions = NO_DECISIONS,
    permissions: EffectivePermissions = OPEN,
) -> list[PlannedCall]:
    """Decides how the calls of one reply are answered; never raises for a mistake of the model.

    The calls count as made one after the other, after those in the earlier rows of the turn.
    """
    denied = denied_names(tools, permissions)
    names = [tool.name for tool in tools if tool.name not in denied]
    so_far, planned, counted = list(tool_rules.made_in(rows)), list[PlannedCall](), 0
    for call in calls:
        ending = not planned and tool_rules.wants_end(rows, exits)
        found = tool_rules.allowed_tools(agent.tool_rules, names, so_far, exits, ending=ending)
        refuse = partial(permissions.refusal, before=counted) if permissions.layers else None
        each = _answered(call, tools, decisions) or _plan(call, agent, tools, runner, found, decisions, refuse)
        planned.append(each)
        counted += _will_count(each)
        if not (isinstance(each, RefusedCall) and each.untried):
            so_far.append(Made(call.name))
    return planned


def denied_names(tools: Sequence[Tool], permissions: EffectivePermissions) -> frozenset[str]:
    """The tools that the agent may not use: it is not offered them, and rules act as if it had none of them."""
    if not permissions.layers:
        return frozenset()
    return frozenset(tool.name for tool in tools if permissions.bars(subject_of(tool)))


def recheck(planned: Sequence[PlannedCall], permissions: EffectivePermissions) -> list[PlannedCall]:
    """The calls by the permissions and limits of now, which may have changed since they were planned."""
    if not permissions.layers:
        return list(planned)
    checked, counted = list[PlannedCall](), 0
    for each in planned:
        if isinstance(each, TransactionalCall | ExternalCall):
            refusal = permissions.refusal(subject_of(each.tool), counted)
            each = each if refusal is None else _denied(each.parsed, refusal)
        checked.append(each)
        counted += _will_count(each)
    return checked


def _denied(parsed: ParsedCall, refusal: Refusal) -> RefusedCall:
    return RefusedCall(parsed, refusal.told, denied=refusal)


def _will_count(planned: PlannedCall) -> bool:
    """True if the call counts against the agent's limit."""
    runs = isinstance(planned, TransactionalCall | ExternalCall | AwaitingCall)
    return runs and not subject_of(planned.tool).harmless


def _answered(call: ToolCall, tools: Sequence[Tool], decisions: CallDecisions) -> AnsweredCall | None:
    """A call that nothing is run for any more: it was denied, or its client has run it."""
    answer = decisions.by_call.get(call.id) if decisions.by_call else None
    if answer is None or (isinstance(answer, ApprovalDecision) and answer.approve):
        return None
    denied = isinstance(answer, ApprovalDecision)
    result = approval_matching.denied(call, answer) if isinstance(answer, ApprovalDecision) else answer
    arguments = read_object(call.arguments) or {}
    tool = next((t for t in tools if t.name == call.name), None)
    return AnsweredCall(ParsedCall(call, arguments, arguments.get(HEARTBEAT) is True, tool), result, denied)


def _plan(
    call: ToolCall,
    agent: Agent,
    tools: Sequence[Tool],
    runner: Runner,
    found: AllowedTools,
    decisions: CallDecisions,
    refuse: Callable[[Subject], Refusal | None] | None,
) -> PlannedCall:
    arguments = read_object(call.arguments)
    if arguments is None:
        return RefusedCall(
            ParsedCall(call, {}), "The arguments are not a valid JSON object. Call the tool again with valid JSON."
        )
    parsed = ParsedCall(call, arguments, arguments.get(HEARTBEAT) is True)
    tool = next((t for t in tools if t.name == call.name), None)
    if tool is None:
        names = ", ".join(t.name for t in tools) or "none"
        return RefusedCall(parsed, f"You have no tool named '{call.name}'. Nothing was run. Your tools: {names}.")
    parsed = replace(parsed, tool=tool)
    if refuse and (refusal := refuse(subject_of(tool))):
        return _denied(parsed, refusal)
    if call.name not in found.allowed:
        return RefusedCall(parsed, tool_rules.refusal(found, call.name))
    if prefilled := found.prefilled.get(call.name):
        try:
            parsed = _prefilled(parsed, tool, prefilled)
        except ToolError as error:
            text = f"'{tool.name}' was not run: the arguments that this agent's tool rules set are invalid. {error}"
            return RefusedCall(parsed, text, bad_prefill=True)
    awaits, decision = _decision(call, agent, decisions)
    if awaits and decisions.by_call is not None:
        text = f"'{tool.name}' was not run: it needs approval, and none was requested. Call it again."
        return RefusedCall(parsed, text)
    if awaits is Awaits.client:  # the client checks the arguments
        return AwaitingCall(parsed, tool, awaits)
    if decision and call.questions is not None:
        try:
            parsed = replace(parsed, answered=with_answers(call.questions, decision.arguments))
        except ToolError as error:
            return RefusedCall(parsed, str(error))
    elif decision and decision.arguments is not None:
        edited = decision.arguments
        parsed = replace(parsed, arguments=read_object(edited) or {}, edited_arguments=edited)
    own = {name: value for name, value in parsed.arguments.items() if name not in (HEARTBEAT, THINKING)}
    if is_pause(tool):
        own = corrected_arguments(own)
    try:
        parsed = replace(parsed, arguments=check_arguments(tool.json_schema, own))
    except ToolError as error:
        return RefusedCall(replace(parsed, arguments=own), str(error))
    return AwaitingCall(parsed, tool, awaits) if awaits else _with_runner(parsed, tool, runner)


def _decision(call: ToolCall, agent: Agent, decisions: CallDecisions) -> tuple[Awaits | None, ApprovalDecision | None]:
    """The answer that the call still waits for, or the decision that lets it run."""
    decision = decisions.by_call.get(call.id) if decisions.by_call is not None else None
    if isinstance(decision, ApprovalDecision):
        return None, decision
    return approval_matching.waits(call, agent.tool_rules, decisions.client), None


def _prefilled(parsed: ParsedCall, tool: Tool, prefilled: Mapping[str, Any]) -> ParsedCall:
    """The call with the arguments that a rule sets over the model's. Raises ToolError when they do not fit."""
    parameters: Mapping[str, Any] = tool.json_schema.get("parameters") or {}
    fitting = check_arguments({"parameters": {**parameters, "required": []}}, dict(prefilled))
    arguments = {**parsed.arguments, **fitting}
    call = replace(parsed.call, arguments=orjson.dumps(arguments).decode())
    return replace(parsed, call=call, arguments=arguments)


def _with_runner(parsed: ParsedCall, tool: Tool, runner: Runner) -> PlannedCall:
    inside = None if tool.tool_type is ToolType.custom else transactional(tool.name)
    if inside is not None:
        return TransactionalCall(parsed, tool, inside, preparation(tool.name))
    if (external := runner(tool)) is not None:
        return ExternalCall(parsed, tool, external)
    text = f"'{tool.name}' was not run: its code needs a sandbox, and this server has none."
    return RefusedCall(parsed, text, untried=False)
