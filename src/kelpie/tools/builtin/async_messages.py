"""Sending a message to another agent without waiting: it is stored as a run of the other agent, in the very commit that
records the result of the call. So it is sent exactly once, whatever crashes when.
"""

from collections.abc import Mapping
from typing import Any

from kelpie.core.conversations.runs import MAX_STEPS_DEFAULT, Run, RunStatus
from kelpie.core.errors import ToolError
from kelpie.core.ids import RunId
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents
from kelpie.storage.agents.ownership_fence import NOBODY
from kelpie.storage.runs import runs
from kelpie.storage.runs.input import RunInput
from kelpie.tools.calls import agent_letters
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.world.database import Tx

WAITING_MAX = 64  # messages of this kind that one agent may have before it


def send_message_to_agent_async(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Queues a message for another agent. Raises ToolError, NotFound."""
    words, other = agent_letters.words(arguments["message"]), agent_letters.address(arguments["other_agent_id"])
    agent_letters.refuse_endless(call.chain)
    agent_letters.refuse_ring(call.chain.without_waiting(), call.agent.id, other)
    row_ownership.agent(tx, call.agent.organization_id, other)
    if agents.get(tx, other).stopped:
        raise ToolError(f"Nothing was sent: {other} is stopped and accepts no messages.")
    if runs.count_created(tx, other) >= WAITING_MAX:
        raise ToolError(f"Nothing was sent: {other} already has {WAITING_MAX} waiting messages. Try again later.")
    run = Run(
        id=RunId(f"run-{call.fresh_uuid}"),
        agent_id=other,
        status=RunStatus.created,
        created_at=call.now,
        background=True,
        metadata={"run_type": "send_message_async", "sender_id": call.agent.id},
    )
    given = RunInput((agent_letters.notice(call.agent, words),), MAX_STEPS_DEFAULT, chain=call.chain.without_waiting())
    runs.open_run(tx, run, call.agent.organization_id, given, NOBODY)
    return Outcome(f"The message was sent. {other} will read it in {run.id}.", begun=(run,))
