"""Calls that wait for an approval or for the client: which ones do, and which answers fit them. Pure, no storage.

A reply with such a call ends its turn and nothing of it runs; the answers come with a later send, which goes on in a
run of its own. Every call that waits is answered exactly once, and an answer to anything else is refused by name.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from kelpie.core.agents.agent import ToolRule
from kelpie.core.conversations.approvals import ClientTool, PendingCalls
from kelpie.core.conversations.messages import ApprovalDecision, Awaits, CallAnswer, Message, Role, ToolCall, ToolReturn
from kelpie.core.errors import InvalidInput, PendingApproval
from kelpie.core.ids import RunId, ToolId
from kelpie.core.tools.tools import Tool, ToolType

RULE = "requires_approval"
RUNS_MAX = 100  # of one turn, whose rows the tool rules go by
_NO_TOOL = ToolId("")


def needs_approval(rules: Sequence[ToolRule], name: str) -> bool:
    return any(rule.type == RULE and rule.tool_name == name for rule in rules)


def waiting_names(rules: Sequence[ToolRule], client: Sequence[ClientTool]) -> frozenset[str]:
    """The tools whose calls wait for an approval or for the client."""
    return frozenset(rule.tool_name for rule in rules if rule.type == RULE) | {tool.name for tool in client}


def with_client(tools: Sequence[Tool], client: Sequence[ClientTool]) -> Sequence[Tool]:
    """The tools as the model is offered them: the client's own stand before the agent's of the same name."""
    if not client:
        return tools
    own = {tool.name: _as_tool(tool) for tool in client}
    return (*(own.pop(tool.name, tool) for tool in tools), *own.values())


def _as_tool(tool: ClientTool) -> Tool:
    schema = {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters}
    return Tool(_NO_TOOL, tool.name, ToolType.custom, schema, 0, 0, description=tool.description)


def waits(call: ToolCall, rules: Sequence[ToolRule], client: AbstractSet[str]) -> Awaits | None:
    """Kind of answer that the call waits for; None if it needs none."""
    if call.name in client:
        return Awaits.client
    return Awaits.approval if needs_approval(rules, call.name) else None


def request_row(reply: Message, waiting: Mapping[str, Awaits]) -> Message:
    """The reply as it is kept while calls of it wait."""
    calls = tuple(replace(call, awaits=waiting.get(call.id)) for call in reply.tool_calls)
    return replace(reply, role=Role.approval, tool_calls=calls)


def pending_of(request: Message, earlier: Sequence[RunId], conversation: str) -> PendingCalls:
    assert request.run_id is not None
    runs = (*earlier, request.run_id)[-RUNS_MAX:]
    return PendingCalls(request.agent_id, conversation, request.id, runs, request.created_at)


def refuse_while(pending: PendingCalls) -> PendingApproval:
    """The error for a plain message in a conversation that waits."""
    return PendingApproval(pending.request)


def fitting(
    pending: PendingCalls, request: Message, answers: Sequence[CallAnswer], *, partial: bool
) -> tuple[CallAnswer, ...]:
    """All answers to the calls that wait, earlier ones included, in the order of the calls. Raises InvalidInput.

    Fewer than all are taken only when they are said to be partial.
    """
    waiting = {call.id: call for call in request.tool_calls if call.awaits}
    sent = _spelled_out(answers, request, waiting)
    if not sent:
        raise InvalidInput("approvals", f"the list is empty; answer at least one of these calls: {_names(waiting)}")
    if twice := [call_id for call_id, count in Counter(a.call_id for a in sent).items() if count > 1]:
        raise InvalidInput("approvals", f"answer each call only once; these have several answers: {_names(twice)}")
    if unknown := [answer.call_id for answer in sent if answer.call_id not in waiting]:
        raise InvalidInput(
            "tool_call_id",
            f"Invalid tool call IDs. These calls are waiting: {_names(waiting)}. Not among them: {_names(unknown)}.",
        )
    known = {answer.call_id: answer for answer in pending.answers}
    for answer in sent:
        if known.get(answer.call_id, answer) != answer:
            raise InvalidInput("tool_call_id", f"{answer.call_id} already has a different answer; it cannot be changed")
        _check(answer, waiting[answer.call_id])
        known[answer.call_id] = answer
    if not partial and (missing := [call_id for call_id in waiting if call_id not in known]):
        raise InvalidInput(
            "approvals", f"these calls have no answer: {_names(missing)}; answer all of them, or send 'partial': true"
        )
    return tuple(known[call_id] for call_id in waiting if call_id in known)


def _spelled_out(answers: Sequence[CallAnswer], request: Message, waiting: Mapping[str, ToolCall]) -> list[CallAnswer]:
    """The answers by call; one to the whole request, as older clients send it, is one to each call of it."""
    found: list[CallAnswer] = []
    for answer in answers:
        if (
            isinstance(answer, ApprovalDecision)
            and answer.call_id in ("", request.id)
            and answer.call_id not in waiting
        ):
            found += (replace(answer, call_id=call_id) for call_id in waiting)
        elif isinstance(answer, ToolReturn) and (call := waiting.get(answer.call_id)):
            found.append(replace(answer, name=call.name))
        else:
            found.append(answer)
    return found


def _check(answer: CallAnswer, call: ToolCall) -> None:
    if isinstance(answer, ApprovalDecision) and answer.approve and call.awaits is Awaits.client:
        raise InvalidInput(
            "approvals", f"{call.id} calls '{call.name}', which the client runs; send its result, with type 'tool'"
        )


def denied(call: ToolCall, decision: ApprovalDecision) -> ToolReturn:
    """The result of a call that a person denied. Clients match "request to call tool denied"."""
    reason = f" Reason: {decision.reason}" if decision.reason else ""
    text = f"Error: request to call tool denied. A person did not approve this call, so it was not run.{reason}"
    return ToolReturn(call.id, call.name, False, text)


def left(request: Message, pending: PendingCalls) -> list[ToolCall]:
    """The calls of the request that wait and have no answer yet."""
    answered = {answer.call_id for answer in pending.answers}
    return [call for call in request.tool_calls if call.awaits and call.id not in answered]


def _names(ids: Sequence[str] | Mapping[str, ToolCall]) -> str:
    return ", ".join(call_id[:80] for call_id in ids)
