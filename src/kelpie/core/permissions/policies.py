"""Permissions of an agent: its own lists and limits within those of its organisation, and these within the server's.
Pure.

Every layer must allow a call, so none can widen what another narrows.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from kelpie.core.permissions.quotas import NOTHING_USED, UNBOUNDED, Quota, QuotaUse
from kelpie.core.permissions.tool_permissions import ANYTHING, Subject, ToolPatterns
from kelpie.core.time import Micros, as_datetime


@dataclass(frozen=True, slots=True)
class Policy:
    """Lists and limits of one layer. The version changes whenever an organisation's policy does."""

    permits: ToolPatterns = ANYTHING
    quota: Quota = UNBOUNDED
    version: int = 0

    @property
    def open(self) -> bool:
        return self.permits.open and self.quota.open


NO_POLICY = Policy()


class Layer(StrEnum):
    server = "server"
    organization = "organization"
    agent = "agent"


_WHOSE = {
    Layer.server: "the settings of this server do not allow it",
    Layer.organization: "the policy of this agent's organization does not allow it",
    Layer.agent: "this agent may not use it",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a call is not run. `told` is the text that the model gets as its result."""

    told: str
    layer: Layer | None  # None: no list denies it, but the quota of this hour is used up
    reason: str


@dataclass(frozen=True, slots=True)
class EffectivePermissions:
    """All layers of one agent at one moment, with its usage in the current hour."""

    layers: tuple[tuple[Layer, Policy], ...] = ()
    quota: Quota = UNBOUNDED
    used: QuotaUse = NOTHING_USED
    frees_at: Micros = 0

    def bars(self, subject: Subject) -> bool:
        """Checks whether the lists deny the tool, regardless of quotas."""
        return any(policy.permits.refusal(subject) for _, policy in self.layers)

    def refusal(self, subject: Subject, before: int = 0) -> Refusal | None:
        """The reason why the call may not be run; `before` is the number of earlier calls not counted yet."""
        for layer, policy in self.layers:
            if (reason := policy.permits.refusal(subject)) is not None:
                told = f"'{subject.name}' was not run: {_WHOSE[layer]} ({reason}). Continue without it."
                return Refusal(told, layer, reason)
        if subject.harmless or (reason := self._exhausted(before)) is None:
            return None
        frees = as_datetime(self.frees_at).isoformat()
        return Refusal(f"'{subject.name}' was not run: {reason}. Try again after {frees}.", None, reason)

    def _exhausted(self, before: int) -> str | None:
        quota, used = self.quota, self.used
        if quota.tool_calls is not None and used.tool_calls + before >= quota.tool_calls:
            return f"this agent has used up its {quota.tool_calls} tool calls for this hour"
        if quota.cpu_us is not None and used.cpu_us >= quota.cpu_us:
            return f"this agent has used up its {quota.cpu_us / 1_000_000:g} s of processor time for this hour"
        return None


OPEN = EffectivePermissions()


def warrant(
    server: Policy, organization: Policy, permits: ToolPatterns | None, quota: Quota | None
) -> EffectivePermissions:
    """The effective permissions of an agent; the same for all agents that have nothing of their own."""
    if permits is None and quota is None and organization is NO_POLICY and server.open:
        return _without_layers(server.quota)  # as most are: nothing is made for them
    own = Policy(permits or ANYTHING, quota or UNBOUNDED)
    given = ((Layer.server, server), (Layer.organization, organization), (Layer.agent, own))
    layers = tuple((layer, policy) for layer, policy in given if not policy.open)
    held = server.quota.within(organization.quota).within(own.quota)
    return EffectivePermissions(layers, held) if layers else _without_layers(held)


@lru_cache(maxsize=64)
def _without_layers(quota: Quota) -> EffectivePermissions:
    """Permissions without lists and hourly limits."""
    return OPEN if quota == UNBOUNDED else EffectivePermissions(quota=quota)
