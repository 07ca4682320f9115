"""Size of the files in workspaces, by organization, as last measured.

A workspace is measured by every call that can write to it, and after a start by the cleanup, some at a time. The sum
is therefore too small for a while after a start, and never too large for long.
"""

from collections.abc import Collection

from kelpie.accounts.quotas.quotas import Quotas
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.permissions.organization_limits import MEGABYTE


class DiskUsage:
    """The workspaces of a server whose size is known."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._sizes: dict[OrganizationId, dict[AgentId, int]] = {}

    def measured(self, organization: OrganizationId, agent_id: AgentId, size: int) -> None:
        """Remembers the size of a workspace."""
        self._sizes.setdefault(organization, {})[agent_id] = size

    def used(self, organization: OrganizationId) -> int:
        """Bytes of all workspaces of an organization."""
        return sum(self._sizes.get(organization, {}).values())

    def limit(self, organization: OrganizationId) -> int | None:
        """Bytes that the workspaces of an organization may have together; None is no limit."""
        return self._quotas.limits(organization).disk_mb * MEGABYTE or None

    def unmeasured(self, agent_ids: Collection[AgentId], most: int) -> list[AgentId]:
        """Some of the workspaces whose size is not known; those that no longer exist are forgotten."""
        there, known = set(agent_ids), set[AgentId]()
        for sizes in self._sizes.values():
            for agent_id in [each for each in sizes if each not in there]:
                del sizes[agent_id]
            known |= sizes.keys()
        return sorted(there - known)[:most]
