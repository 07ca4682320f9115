"""Withdrawal of a request for approval that will not be answered: every call of it gets a result that says so.

What was answered before keeps its answer: a client's result is the result, a denial a denial; only nothing runs. One
transaction in every case. A turn that runs in the lane notices it with its next commit.
"""

from typing import Any

from kelpie.agent.tool_calls import approval_matching
from kelpie.core.conversations.approvals import PendingCalls
from kelpie.core.conversations.messages import ApprovalDecision, CallAnswer, Message, Role, ToolCall, ToolReturn
from kelpie.core.ids import MessageId
from kelpie.core.time import Micros
from kelpie.storage.conversations import approvals as rows
from kelpie.storage.conversations import messages
from kelpie.tools.calls.stable_ids import stable_uuid
from kelpie.world.database import Tx


def withdraw(tx: Tx, pending: PendingCalls, why: str, at: Micros) -> bool:
    """Answers every call of the request with the reason; False when it no longer waits.

    It needs nothing but the request: records of runs may be deleted, and a wait for what is gone ends as well.
    """
    if not rows.move(tx, pending, None):
        return False
    for request in messages.get_many(tx, [pending.request]):
        said = tuple(ApprovalDecision(call.id, False, why) for call in approval_matching.left(request, pending))
        known: dict[str, CallAnswer] = {answer.call_id: answer for answer in (*pending.answers, *said)}
        results = tuple(_result(call, known.get(call.id), why) for call in request.tool_calls)
        messages.append(tx, [_beside(request, Role.approval, at, answers=said)])
        messages.append(tx, [_beside(request, Role.tool, at, tool_returns=results)], pending.conversation)
    return True


def _result(call: ToolCall, answer: CallAnswer | None, why: str) -> ToolReturn:
    if isinstance(answer, ToolReturn):
        return answer
    if answer is not None and not answer.approve:
        return approval_matching.denied(call, answer)
    return ToolReturn(call.id, call.name, False, f"Not run: {why}")


def _beside(request: Message, role: Role, at: Micros, **said: Any) -> Message:
    """A row of the same step, whose id is the same however often the transaction runs."""
    return Message(
        id=MessageId(f"{MessageId.prefix}-{stable_uuid(request.id, 'withdrawn', role)}"),
        agent_id=request.agent_id,
        role=role,
        created_at=at,
        conversation_id=request.conversation_id,
        group_id=request.group_id,
        run_id=request.run_id,
        step_id=request.step_id if role is Role.tool else None,
        **said,
    )
