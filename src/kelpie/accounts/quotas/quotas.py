"""Quotas of organizations in a running server: the limits that hold, the count of requests, and the refusals.

Limits of single organizations are kept in memory, because every request asks for them; only the operator changes them,
through this server. Usage is never kept in memory: it is read in the transaction that adds to it.
"""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import replace

from kelpie.core.errors import RateExceeded
from kelpie.core.ids import OrganizationId
from kelpie.core.permissions.organization_limits import (
    NO_LIMITS,
    SETTINGS,
    OrganizationLimits,
    check_growth,
    check_room,
    effective,
)
from kelpie.storage.accounts import usage
from kelpie.world.clock import Clock
from kelpie.world.database import Database, Tx

MINUTE_NS = 60 * 1_000_000_000


class Quotas:
    """The limits of every organization."""

    def __init__(self, clock: Clock, server: OrganizationLimits = NO_LIMITS) -> None:
        self._clock = clock
        self._server = server
        self._own: dict[OrganizationId, Mapping[str, int]] = {}
        self._reading = asyncio.Lock()
        self._minute = 0
        self._requests: dict[OrganizationId, int] = {}  # of this minute

    async def load(self, database: Database) -> None:
        """Reads the limits of single organizations. Raises StorageError."""
        async with self._reading:  # so that no older answer replaces a newer one
            self._own = await database.read(usage.all_limits)

    def limits(self, organization: OrganizationId) -> OrganizationLimits:
        """The limits that hold for an organization now."""
        return effective(organization, self._server, self._own.get(organization))

    def own(self, organization: OrganizationId) -> Mapping[str, int]:
        """The limits that were set for this organization alone."""
        return self._own.get(organization, {})

    def requests(self, organization: OrganizationId) -> int:
        """Number of requests of an organization in this minute."""
        return self._requests.get(organization, 0) if self._minute == self._now() else 0

    def count_request(self, organization: OrganizationId) -> None:
        """Counts a request. Raises RateExceeded when the organization may make no more in this minute."""
        limit = self.limits(organization).requests_per_minute
        if not limit:
            return
        if (minute := self._now()) != self._minute:
            self._minute, self._requests = minute, {}
        made = self._requests.get(organization, 0)
        if made >= limit:
            wait_s = MINUTE_NS * (minute + 1) / 1e9 - self._clock.monotonic_ns() / 1e9
            raise RateExceeded(
                f"The organization may make {limit} requests in a minute and has made {made}. Try again in "
                f"{max(1, math.ceil(wait_s))} seconds, or ask the operator to raise the quota 'requests_per_minute' of "
                f"the organization ({SETTINGS['requests_per_minute']}).",
                wait_s,
                quota="requests_per_minute",
                limit=limit,
                used=made,
                setting=SETTINGS["requests_per_minute"],
            )
        self._requests[organization] = made + 1

    def require_room(self, tx: Tx, organization: OrganizationId, more_bytes: int = 0) -> None:
        """Raises QuotaExceeded when the organization has no room for messages, or for so many bytes more."""
        limits = self.limits(organization)
        if limits.messages or limits.stored_mb:
            used = usage.state(tx, organization).used
            check_room(limits, replace(used, bytes=used.bytes + more_bytes))

    def require_bytes(self, tx: Tx, organization: OrganizationId, more: int) -> None:
        """Raises QuotaExceeded when so many bytes more are more than the organization may store."""
        limits = self.limits(organization)
        if limits.stored_mb:
            used = usage.state(tx, organization).used
            check_growth(limits, used, replace(used, bytes=used.bytes + more))

    def _now(self) -> int:
        return self._clock.monotonic_ns() // MINUTE_NS
