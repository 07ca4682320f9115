"""Manual tool calls, made by a client instead of a model: under the same permissions and limits as those of a turn, and
recorded like them, in a commit of their own.
"""

from dataclasses import replace

from kelpie.core.agents.agent import Agent
from kelpie.core.ids import OrganizationId, RunId, StepId
from kelpie.core.permissions.call_records import RAN, CallOutcome, CallRecord, ResourceUse
from kelpie.core.permissions.policies import EffectivePermissions, Policy, warrant
from kelpie.core.permissions.quotas import hour_after, hour_of
from kelpie.core.time import Micros
from kelpie.core.tools.tools import Tool
from kelpie.storage.agents import agents, policies
from kelpie.storage.runs import runs, tool_calls
from kelpie.tools.calls.capabilities import subject_of
from kelpie.world.database import Tx


def effective_permissions_of(
    tx: Tx, server: Policy, organization: OrganizationId, agent: Agent | None, now: Micros
) -> EffectivePermissions:
    """The effective permissions of an agent, or of a client that calls a tool without one, with the current use.

    `refusal(subject_of(tool))` of it is the reason why a call may not be run; `quota` bounds what one may use.
    """
    policy = policies.policy_of(tx, organization)
    if agent is None:
        return warrant(server, policy, None, None)
    found = warrant(server, policy, agent.permits, agent.quota)
    if not found.quota.counts_calls:
        return found
    used = tool_calls.used_by(tx, agent.id, hour_of(now))
    return EffectivePermissions(found.layers, found.quota, used, hour_after(now))


def record(
    tx: Tx,
    organization: OrganizationId,
    tool: Tool,
    outcome: CallOutcome,
    took: ResourceUse,
    at: Micros,
    agent: Agent | None = None,
    run_id: RunId | None = None,
    step_id: StepId | None = None,
    reason: str | None = None,
) -> None:
    """Records one such call; with a run it is that of the turn whose code has made it."""
    subject = subject_of(tool)
    call = CallRecord(
        organization,
        tool.name,
        subject.kind,
        outcome,
        at,
        agent.id if agent else None,
        run_id,
        step_id,
        None,
        tool.id or None,
        took,
        counted=outcome in RAN and agent is not None and not subject.harmless,
        reason=reason,
    )
    insert_record(tx, call)


def insert_record(tx: Tx, call: CallRecord) -> None:
    """Records a call without the references that were deleted in the meantime."""
    if call.agent_id is not None and not agents.exists(tx, call.agent_id):
        call = replace(call, agent_id=None, run_id=None, step_id=None, counted=False)
    if call.run_id is not None and not runs.exists(tx, call.run_id):
        call = replace(call, run_id=None, step_id=None)
    tool_calls.add(tx, [call])
