"""Repair of a stored history that an import, a manual edit or an old bug has damaged.

Calls without a result get one, results without a call and ids without a message leave the context, and a request that
no client can answer is closed. Calls that rightly wait and rows of a running turn are never touched; a second repair
changes nothing more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kelpie.agent.prompt.synthetic_results import lost
from kelpie.agent.tool_calls.approval_withdrawal import withdraw
from kelpie.core.conversations.approvals import PendingCalls
from kelpie.core.conversations.messages import Awaits, Message, Role, ToolCall
from kelpie.core.ids import AgentId, MessageId
from kelpie.core.time import Micros
from kelpie.storage.conversations import approvals, contexts, messages
from kelpie.storage.runs import unfinished
from kelpie.storage.tools import tools
from kelpie.tools.calls.stable_ids import stable_uuid
from kelpie.world.database import Tx

NO_TOOL = "The agent no longer has the tool."


@dataclass(slots=True)
class _Repair:
    """One context, row by row: what stays of it, and what was done."""

    tx: Tx
    conversation: str
    at: Micros
    spared: frozenset[str]  # replies whose calls are rightly open
    kept: list[MessageId] = field(default_factory=list[MessageId])
    done: list[str] = field(default_factory=list[str])
    asker: Message | None = None
    open: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])

    def take(self, row: Message) -> None:
        if row.role is Role.tool:
            answered = [self.open.pop(result.call_id, None) for result in row.tool_returns]
            if not any(answered):
                self.done.append(f"{row.id}: removed from the context, because it is a result without a call")
                return
        elif not (row.role is Role.approval and not row.tool_calls):
            self.close()
            self.asker, self.open = row, {call.id: call for call in row.tool_calls}
        self.kept.append(row.id)

    def close(self) -> None:
        """Sees to the calls of the last reply that have no result in the context."""
        asker, left = self.asker, tuple(self.open.values())
        self.open = {}
        if asker is None or not left or asker.id in self.spared:
            return
        if (asker.conversation_id or "") != self.conversation:  # what comes of it belongs to the thread it was said in
            self.kept.remove(asker.id)
            self.done.append(f"{asker.id}: removed from the context, because its calls belong to another conversation")
            return
        ids = {call.id for call in left}
        if elsewhere := _results(self.tx, asker, ids):
            self.kept += [row.id for row in elsewhere]
            self.done.append(f"{asker.id}: restored its results to the context")
            return
        row = _lost(asker, left, self.at)
        messages.append(self.tx, [row])
        self.kept.append(row.id)
        self.done.append(f"{asker.id}: added a placeholder result to {len(left)} call(s) without a result")


def repair(tx: Tx, agent_id: AgentId, conversation: str, at: Micros) -> list[str]:
    """Repairs one context and returns what was done, a sentence each; nothing when it was intact."""
    pending, withdrawn = approvals.get(tx, agent_id, conversation), list[str]()
    if pending is not None and (why := _unanswerable(tx, pending, conversation)):
        withdraw(tx, pending, why, at)
        withdrawn, pending = [f"{pending.request}: the pending request was closed. {why}"], None
    busy = {run for left in unfinished.unfinished_of(tx, agent_id) for run in (left.run.id, *left.given.earlier)}
    ids = contexts.ids(tx, agent_id, conversation)
    rows = messages.get_many(tx, ids)
    spared = frozenset(row.id for row in rows if row.run_id in busy or (pending and row.id == pending.request))
    repairs = _Repair(tx, conversation, at, spared)
    for row in rows:
        repairs.take(row)
    repairs.close()
    if missing := len(ids) - len(rows):
        repairs.done.append(f"removed {missing} id(s) of missing or damaged messages from the context")
    if repairs.done:
        contexts.replace(tx, agent_id, repairs.kept, conversation)
    return withdrawn + repairs.done


def _unanswerable(tx: Tx, pending: PendingCalls, conversation: str) -> str | None:
    """The reason why no client can answer a pending request any more; None if one can."""
    ids, found = contexts.ids(tx, pending.agent_id, conversation), messages.get_many(tx, [pending.request])
    if not found or pending.request not in ids:
        return "The request is no longer in the context."
    if ids[-1] != pending.request:
        return "The conversation has continued since then."
    names = {tool.name for tool in tools.of_agent(tx, pending.agent_id)}
    calls = [call for request in found for call in request.tool_calls if call.awaits]
    gone = all(call.awaits is Awaits.approval and call.name not in names for call in calls)
    return NO_TOOL if gone else None


def _results(tx: Tx, asker: Message, ids: set[str]) -> Sequence[Message]:
    """The rows of the history that answer these calls."""
    if asker.step_id is None:
        return ()
    found = messages.of_step(tx, asker.step_id)
    return [row for row in found if any(result.call_id in ids for result in row.tool_returns)]


def _lost(asker: Message, calls: Sequence[ToolCall], at: Micros) -> Message:
    """Placeholder row for lost results. Its id contains the time: the row may be damaged itself and be made again."""
    return Message(
        id=MessageId(f"{MessageId.prefix}-{stable_uuid(asker.id, f'mended {at}')}"),
        agent_id=asker.agent_id,
        role=Role.tool,
        created_at=at,
        tool_returns=tuple(map(lost, calls)),
        conversation_id=asker.conversation_id,
        name=calls[0].name,
        run_id=asker.run_id,
        step_id=asker.step_id,
    )
