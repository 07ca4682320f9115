"""Usage of organizations, and the quotas that the operator sets for one of them.

The operator sees and changes all; an administrator sees the own organization.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kelpie.accounts.quotas.disk_usage import DiskUsage
from kelpie.accounts.quotas.quotas import Quotas
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.errors import Forbidden, NotFound
from kelpie.core.ids import OrganizationId
from kelpie.core.permissions.organization_limits import OrganizationLimits, OrganizationUsage, checked_limits
from kelpie.storage.accounts import accounts, usage
from kelpie.world.database import Tx
from kelpie.world.world import World


@dataclass(frozen=True, slots=True)
class UsageReport:
    """What an organization uses, the limits that hold, and those that were set for it alone."""

    organization: OrganizationId
    used: OrganizationUsage
    requests: int  # in this minute
    disk_bytes: int  # of files in workspaces, as last measured
    limits: OrganizationLimits
    own: Mapping[str, int]


class OrganizationUsages:
    """Usage and quotas that the caller may see."""

    def __init__(self, world: World, quotas: Quotas, disk: DiskUsage, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._disk = disk
        self._quotas = quotas
        self._caller = caller

    async def get(self, organization: OrganizationId | None = None) -> UsageReport:
        """The usage of an organization, without an id of the caller's. Raises NotFound."""
        wanted = organization or self._caller.organization_id
        if not self._caller.operator and wanted != self._caller.organization_id:
            raise NotFound("Organization", wanted)
        return self._report(wanted, await self._world.database.read(lambda tx: _state(tx, wanted)))

    async def set_limits(self, organization: OrganizationId, given: Mapping[str, object]) -> UsageReport:
        """Replaces the limits of one organization. Raises NotFound, InvalidInput, and Forbidden."""
        self._operator_only()
        limits, now = checked_limits(given), self._world.clock.now()

        def write(tx: Tx) -> OrganizationUsage:
            found = _state(tx, organization)
            usage.set_limits(tx, organization, limits, now)
            return found

        try:
            used = await self._world.database.transact(write)
        finally:
            await self._quotas.load(self._world.database)
        return self._report(organization, used)

    async def recount(self, organization: OrganizationId) -> OrganizationUsage:
        """Counts everything again and corrects the counters; returns what had to be added. Raises NotFound, Forbidden.

        Everything is read on a snapshot beside other work; only the difference is written.
        """
        self._operator_only()

        def read(tx: Tx) -> OrganizationUsage:
            _state(tx, organization)
            return usage.deviation(tx, organization)

        found = await self._world.database.read(read)
        if found != OrganizationUsage():
            await self._world.database.transact(lambda tx: usage.correct(tx, organization, found))
        return found

    def _report(self, organization: OrganizationId, used: OrganizationUsage) -> UsageReport:
        quotas = self._quotas
        limits, own = quotas.limits(organization), quotas.own(organization)
        requests, disk = quotas.requests(organization), self._disk.used(organization)
        return UsageReport(organization, used, requests, disk, limits, own)

    def _operator_only(self) -> None:
        if not self._caller.operator:
            raise Forbidden("Only the operator may do this; authenticate with the server password.")


def _state(tx: Tx, organization: OrganizationId) -> OrganizationUsage:
    accounts.get_organization(tx, organization)
    return usage.state(tx, organization).used
