"""The registry as clients see it: every tool with its origin and capabilities, who may use it, and how it was used.

The policy of an organization is set here; the permissions of an agent are set with the agent. Calls are checked against
the same effective permissions that are shown here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.access.passports import Passport
from kelpie.core.agents.agent import Agent
from kelpie.core.errors import Forbidden
from kelpie.core.ids import AgentId
from kelpie.core.permissions.budgets import SpentAmount
from kelpie.core.permissions.call_records import CallOutcome, CallQuery, CallRecord, ToolUsage
from kelpie.core.permissions.policies import NO_POLICY, EffectivePermissions, Layer, Policy, Refusal, warrant
from kelpie.core.permissions.quotas import QuotaUse, hour_after, hour_of
from kelpie.core.permissions.tool_permissions import Capability, Subject, ToolKind
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.core.tools.tools import BUILTIN_NAMES, Tool, ToolQuery
from kelpie.observe import logs
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents, policies
from kelpie.storage.runs import steps, tool_calls
from kelpie.storage.tools import tools
from kelpie.tools.calls import manual_calls
from kelpie.tools.calls.capabilities import subject_of
from kelpie.world.database import Tx
from kelpie.world.world import World

HOUR = 3600 * MICROS_PER_SECOND

_log = logs.get("tools")


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """A tool in the registry, and the reason why it may not be used, if any."""

    tool: Tool
    subject: Subject
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class AgentPermissions:
    """The tools that an agent may use, and the layer that decides."""

    agent: Agent
    warrant: EffectivePermissions
    tools: tuple[RegisteredTool, ...]


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """The hourly limits of an agent by layer, and its use in the running hour."""

    layers: tuple[tuple[Layer, Policy], ...]
    warrant: EffectivePermissions
    used: QuotaUse
    spent: SpentAmount
    frees_at: Micros


class Permissions:
    """Permissions of the caller's organization. `changed` is called with a new policy, after the commit."""

    def __init__(
        self, world: World, server: Policy, changed: Callable[[], None], caller: Caller = DEFAULT_CALLER
    ) -> None:
        self._world = world
        self.server = server
        self._changed = changed
        self._caller = caller
        self._organization = caller.organization_id

    async def of_agent(self, agent_id: AgentId) -> AgentPermissions:
        """Raises NotFound."""

        def read(tx: Tx) -> AgentPermissions:
            agent, held = self._agent(tx, agent_id)
            found = tuple(_registered(tool, held) for tool in tools.of_agent(tx, agent_id))
            return AgentPermissions(agent, held, found)

        return await self._world.database.read(read)

    async def limits(self, agent_id: AgentId) -> AgentLimits:
        """Raises NotFound."""
        now = self._world.clock.now()

        def read(tx: Tx) -> AgentLimits:
            agent, held = self._agent(tx, agent_id)
            own = Policy(quota=agent.quota) if agent.quota else NO_POLICY
            policy = policies.policy_of(tx, self._organization)
            layers = ((Layer.server, self.server), (Layer.organization, policy), (Layer.agent, own))
            since = hour_of(now)
            used, spent = tool_calls.used_by(tx, agent_id, since), steps.spent_by(tx, agent_id, since)
            return AgentLimits(layers, held, used, spent, hour_after(now))

        return await self._world.database.read(read)

    def _agent(self, tx: Tx, agent_id: AgentId) -> tuple[Agent, EffectivePermissions]:
        agent = agents.owned(tx, self._organization, agent_id)
        policy = policies.policy_of(tx, self._organization)
        return agent, warrant(self.server, policy, agent.permits, agent.quota)

    async def require(self, agent_id: AgentId, name: str, needed: Capability) -> None:
        """Checks a request that the code of a tool makes to Kelpie while it runs. Raises Forbidden when the agent may
        not make it, whichever way, NotFound.
        """
        _, held = await self._world.database.read(lambda tx: self._agent(tx, agent_id))
        subject = Subject(name, _kind(name), (needed,))
        for layer, policy in held.layers:
            if (reason := policy.permits.refusal(subject)) is not None:
                _log.warning(
                    "tool_request_refused",
                    "Request of tool code refused",
                    agent_id=agent_id,
                    tool=name,
                    by=layer,
                    reason=reason,
                )
                raise Forbidden(f"The code of '{name}' may not use {needed} for this agent: {reason} ({layer}).")

    async def refused(self, passport: Passport, asked: str) -> None:
        """Records that a request of a tool's code was refused. Raises StorageError."""
        name, reason = passport.tool or "", f"its code asked for {asked}"
        at, of_turn = self._world.clock.now(), (passport.agent_id, passport.run_id, passport.step_id)
        call = CallRecord(self._organization, name, _kind(name), CallOutcome.refused, at, *of_turn, reason=reason)
        await self._world.database.transact(lambda tx: manual_calls.insert_record(tx, call))

    async def calls(self, query: CallQuery, agent_id: AgentId | None = None) -> list[CallRecord]:
        """Calls of an agent, or of all agents. Raises NotFound."""

        def read(tx: Tx) -> list[CallRecord]:
            if agent_id is not None:
                row_ownership.agent(tx, self._organization, agent_id)
            return tool_calls.select_calls(tx, self._organization, query, agent_id)

        return await self._world.database.read(read)

    async def registry(self, query: ToolQuery) -> list[RegisteredTool]:
        """The tools of the organization, under its policy and the server's settings."""

        def read(tx: Tx) -> list[RegisteredTool]:
            held = warrant(self.server, policies.policy_of(tx, self._organization), None, None)
            return [_registered(tool, held) for tool in tools.select(tx, self._organization, query)]

        return await self._world.database.read(read)

    async def usage(self, hours: int) -> list[ToolUsage]:
        """The use of each tool in the last so many hours; also of deleted ones, and of client tools."""
        since = self._world.clock.now() - hours * HOUR
        return await self._world.database.read(lambda tx: tool_calls.usage(tx, self._organization, since))

    async def policy(self) -> Policy:
        """The policy that the organization has set for all of its agents."""
        return await self._world.database.read(lambda tx: policies.policy_of(tx, self._organization))

    async def set_policy(self, policy: Policy) -> Policy:
        """Replaces the policy; it applies to every call from then on."""
        now, user, organization = self._world.clock.now(), self._caller.user_id, self._organization
        after = await self._world.database.transact(lambda tx: policies.set_policy(tx, organization, policy, user, now))
        self._changed()
        _log.warning(
            "tool_policy_changed", "Tool policy changed", organization_id=organization, by=user, version=after.version
        )
        return after


def _kind(name: str) -> ToolKind:
    return ToolKind.builtin if name in BUILTIN_NAMES else ToolKind.custom


def _registered(tool: Tool, held: EffectivePermissions) -> RegisteredTool:
    subject = subject_of(tool)
    return RegisteredTool(tool, subject, held.refusal(subject))
