"""Sending a message to another agent without waiting: it is written down as a run of the other agent, in the very
commit that records the result of the call. So it is sent exactly once, whatever crashes when."""

from collections.abc import Mapping
from typing import Any

from kelpie.core.errors import ToolError
from kelpie.core.ids import RunId
from kelpie.core.runs import MAX_STEPS_DEFAULT, Run, RunStatus
from kelpie.storage import agents, runs, scope
from kelpie.storage.heads import NOBODY
from kelpie.storage.run_input import Given
from kelpie.tools import letters
from kelpie.tools.port import CallContext, Outcome
from kelpie.world.database import Tx

WAITING_MAX = 64  # messages of this kind that one agent may have before it


def send_message_to_agent_async(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Puts a message before another agent. Raises ToolError, NotFound."""
    words, other = letters.words(arguments["message"]), letters.address(arguments["other_agent_id"])
    letters.refuse_endless(call.chain)
    letters.refuse_ring(call.chain.told(), call.agent.id, other)
    scope.agent(tx, call.agent.organization_id, other)
    if agents.get(tx, other).stopped:
        raise ToolError(f"{other} is stopped and takes no messages; nothing was sent.")
    if runs.count_created(tx, other) >= WAITING_MAX:
        raise ToolError(f"{other} has {WAITING_MAX} messages waiting already; nothing was sent. Try again later.")
    run = Run(
        id=RunId(f"run-{call.fresh_uuid}"),
        agent_id=other,
        status=RunStatus.created,
        created_at=call.now,
        background=True,
        metadata={"run_type": "send_message_async", "sender_id": call.agent.id},
    )
    given = Given((letters.notice(call.agent, words),), MAX_STEPS_DEFAULT, chain=call.chain.told())
    runs.open_run(tx, run, call.agent.organization_id, given, NOBODY)
    return Outcome(f"The message was sent; {other} reads it in {run.id}.", begun=(run,))
