"""Ending the wait for somebody's word when it will not come: every call of the request gets the result that says so.

What was answered before keeps its answer: a client's result is the result, a denial a denial; only nothing runs. One
transaction, whoever asks for it. The lane, should a turn be at work in it, finds out with its next commit.
"""

from kelpie.agent import approvals
from kelpie.agent.rows import answer_row, tool_row
from kelpie.core.approvals import Pending
from kelpie.core.ids import MessageId
from kelpie.core.messages import CallAnswer, Message, Ruling, ToolCall, ToolReturn
from kelpie.core.runs import Run
from kelpie.core.time import Micros
from kelpie.storage import approvals as rows
from kelpie.storage import messages, runs
from kelpie.tools.identity import stable_uuid
from kelpie.world.database import Tx


def withdraw(tx: Tx, pending: Pending, why: str, at: Micros) -> bool:
    """Answers every call of the request with the reason; False when it no longer waits. Raises NotFound for its run."""
    if not rows.move(tx, pending, None):
        return False
    request, run = messages.get(tx, pending.request), runs.get(tx, pending.runs[-1])
    waiting = approvals.left(request, pending)
    said = tuple(Ruling(call.id, False, why) for call in waiting)
    known: dict[str, CallAnswer] = {answer.call_id: answer for answer in (*pending.answers, *said)}
    results = tuple(_result(call, known.get(call.id), why) for call in request.tool_calls)
    messages.append(tx, [_answers(run, request, said, at)])
    row = tool_row(run, _made_from(request, "results"), request.step_id, results, at, ())
    messages.append(tx, [row], pending.conversation)
    return True


def _result(call: ToolCall, answer: CallAnswer | None, why: str) -> ToolReturn:
    if isinstance(answer, ToolReturn):
        return answer
    if answer is not None and not answer.approve:
        return approvals.denied(call, answer)
    return ToolReturn(call.id, call.name, False, f"Not run: {why}")


def _answers(run: Run, request: Message, said: tuple[Ruling, ...], at: Micros) -> Message:
    return answer_row(run, _made_from(request, "answers"), said, at)


def _made_from(request: Message, what: str) -> MessageId:
    """An id that is the same however often the transaction runs."""
    return MessageId(f"{MessageId.prefix}-{stable_uuid(request.id, 'withdrawn', what)}")
