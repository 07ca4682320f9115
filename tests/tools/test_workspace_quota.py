"""The disk quota of an organization: a job that adds files is ended when the workspaces are full together."""

import asyncio
from dataclasses import dataclass, field

import pytest

from kelpie.accounts.quotas.disk_usage import DiskUsage
from kelpie.accounts.quotas.quotas import Quotas
from kelpie.core.agents.agent import Agent, AgentType, ModelChoice
from kelpie.core.errors import ToolError
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.permissions.organization_limits import MEGABYTE, OrganizationLimits
from kelpie.sandbox.port import UsageMeter
from kelpie.tools.code import workspace as module
from kelpie.tools.code.workspace import Workspace
from kelpie.world.clock import SystemClock
from kelpie.world.files.workspaces import Size

OURS = OrganizationId("org-00000000-0000-4000-8000-000000000001")
ANN, BEN = (AgentId(f"agent-00000000-0000-4000-8000-00000000000{n}") for n in (1, 2))


@dataclass
class Disk:
    """Workspaces of which only the sizes exist."""

    sizes: dict[AgentId, int] = field(default_factory=dict[AgentId, int])

    async def directory(self, agent_id: AgentId) -> str:
        return f"/{agent_id}"

    async def size(self, agent_id: AgentId) -> Size:
        return Size(self.sizes.get(agent_id, 0), 1)

    async def names(self) -> list[AgentId]:
        return sorted(self.sizes)

    async def remove(self, agent_id: AgentId) -> None:
        self.sizes.pop(agent_id, None)


def agent(agent_id: AgentId) -> Agent:
    return Agent(agent_id, "a", AgentType.letta_v1_agent, "", ModelChoice("a/b", 1), 1, 1, organization_id=OURS)


async def test_all_workspaces_of_an_organization_share_a_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    disk, usage = Disk({BEN: 6 * MEGABYTE}), DiskUsage(Quotas(SystemClock(), OrganizationLimits(disk_mb=10)))
    workspace = Workspace(disk, 64, usage)
    assert usage.unmeasured([ANN, BEN], 5) == [ANN, BEN]
    usage.measured(OURS, BEN, 6 * MEGABYTE)

    async def grow(size: int, forever: bool) -> str:
        disk.sizes[ANN] = size
        if forever:
            await asyncio.Event().wait()
        return "done"

    assert await workspace.watched(agent(ANN), grow(4 * MEGABYTE, False), UsageMeter()) == "done"
    assert usage.used(OURS) == 10 * MEGABYTE
    with pytest.raises(ToolError, match=r"may have 10 MB together and have 11 MB.*KELPIE_QUOTA_DISK_MB"):
        await workspace.watched(agent(ANN), grow(5 * MEGABYTE, True), UsageMeter())
    # What is over may be read and reduced.
    assert await workspace.watched(agent(ANN), grow(5 * MEGABYTE, False), UsageMeter()) == "done"
    assert await workspace.watched(agent(ANN), grow(1 * MEGABYTE, False), UsageMeter()) == "done"
    assert usage.used(OURS) == 7 * MEGABYTE
    assert usage.unmeasured([ANN], 5) == []
    assert usage.used(OURS) == 1 * MEGABYTE
