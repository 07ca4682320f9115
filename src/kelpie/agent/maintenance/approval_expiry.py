"""Expiry of approvals: calls that have waited too long are denied, and the turn continues with the denial.

The denial is a background run like any other, stored before anything else happens, so it goes through the agent's lane
and survives a crash. Off unless the operator sets a time.
"""

from dataclasses import dataclass
from functools import partial

from kelpie.agent.live.live_agents import LiveAgents
from kelpie.agent.tool_calls import approval_matching as matching
from kelpie.agent.tool_calls.approval_withdrawal import withdraw
from kelpie.core.conversations.approvals import PendingCalls
from kelpie.core.conversations.messages import ApprovalDecision
from kelpie.core.conversations.runs import UNFINISHED, Run, RunStatus
from kelpie.core.ids import ConversationId, MessageId, RunId
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.observe import logs
from kelpie.storage.agents import agents
from kelpie.storage.agents.ownership_fence import NOBODY
from kelpie.storage.conversations import approvals, messages
from kelpie.storage.runs import runs
from kelpie.storage.runs.input import RunInput
from kelpie.tools.calls.stable_ids import stable_uuid
from kelpie.world.database import Tx
from kelpie.world.world import World

AT_ONCE = 100  # of one round; the others come with the next
RUN_TYPE = "approval_timeout"

_log = logs.get("agent")


@dataclass(frozen=True, slots=True)
class ApprovalExpiry:
    """Denies what has waited longer than `after_s`; zero means never."""

    world: World
    live_agents: LiveAgents
    after_s: int
    max_steps: int

    async def deny_expired(self) -> None:
        """Raises StorageError."""
        if not self.after_s:
            return
        at = self.world.clock.now()
        before = at - self.after_s * MICROS_PER_SECOND
        for pending in await self.world.database.read(lambda tx: approvals.due(tx, before, AT_ONCE)):
            run, withdrawn = await self.world.database.transact(partial(self._deny, pending=pending, at=at))
            if withdrawn:
                self.live_agents.forget_context((pending.agent_id,))
            if run is not None:
                _log.info(
                    "approval_expired",
                    "Approval expired; denied the tool call",
                    agent_id=run.agent_id,
                    message_id=pending.request,
                )
                self.live_agents.enqueue((run,))

    def _deny(self, tx: Tx, pending: PendingCalls, at: Micros) -> tuple[Run | None, bool]:
        """The run that denies what waits, if there is one to be worked on; and whether the wait has ended here."""
        why = f"The request was not answered within {self.after_s} seconds."
        run_id = denial_of(pending.request)
        if known := runs.get_many(tx, [run_id]):
            if known[0].status in UNFINISHED:
                return None, False  # it is on its way
            return None, withdraw(tx, pending, why, at)  # the run came to nothing; the wait must end all the same
        agent = agents.get(tx, pending.agent_id)
        if agent.stopped or approvals.get(tx, pending.agent_id, pending.conversation) != pending:
            return None, False
        run = Run(
            id=run_id,
            agent_id=agent.id,
            status=RunStatus.created,
            created_at=at,
            conversation_id=ConversationId(pending.conversation) if pending.conversation else None,
            background=True,
            metadata={"run_type": RUN_TYPE},
        )
        requests = messages.get_many(tx, [pending.request])
        left = (call for request in requests for call in matching.left(request, pending))
        given = RunInput((), self.max_steps, answers=tuple(ApprovalDecision(call.id, False, why) for call in left))
        runs.open_run(tx, run, agent.organization_id, given, NOBODY)
        return run, False


def denial_of(request: MessageId) -> RunId:
    """The run that denies a request: there is never more than one."""
    return RunId(f"{RunId.prefix}-{stable_uuid(request, RUN_TYPE)}")
