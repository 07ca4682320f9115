"""Usage and quotas of organizations as rows. Triggers write the counters (`storage.usage_triggers`); this module reads
them, and can count everything again to check and repair them.
"""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import sqlalchemy as sa

from kelpie.core.ids import OrganizationId
from kelpie.core.permissions.organization_limits import OrganizationUsage
from kelpie.core.time import Micros
from kelpie.storage.tables import organization_quotas, organization_usage, removed_agents
from kelpie.storage.usage_triggers import COUNTED, measured, owner_of
from kelpie.world.database import Tx

_U, _Q = organization_usage.c, organization_quotas.c
_OF: sa.BindParameter[str] = sa.bindparam("of_organization", type_=sa.Text)
_STATE = (
    sa.select(_U.agents, _U.messages, _U.bytes, _U.files, _Q.limits)
    .select_from(organization_usage.outerjoin(organization_quotas, _Q.organization_id == _U.organization_id))
    .where(_U.organization_id == _OF)
)
_COUNTERS = sa.select(organization_usage)
_LIMITS = sa.select(_Q.organization_id, _Q.limits)
_DROP_LIMITS = sa.delete(organization_quotas).where(_Q.organization_id == _OF)
_ADD_LIMITS = sa.insert(organization_quotas)
_CORRECT = (
    sa.update(organization_usage)
    .where(_U.organization_id == _OF)
    .values(
        agents=_U.agents + sa.bindparam("more_agents"),
        messages=_U.messages + sa.bindparam("more_messages"),
        bytes=_U.bytes + sa.bindparam("more_bytes"),
        files=_U.files + sa.bindparam("more_files"),
    )
)
_BEING_REMOVED = sa.select(removed_agents.c.agent_id).where(removed_agents.c.organization_id == _OF).limit(1)


class UsageState(NamedTuple):
    """What an organization uses, and the limits of its own, if it has any."""

    used: OrganizationUsage
    own: Mapping[str, int] | None


NOTHING_STORED = UsageState(OrganizationUsage(), None)


def state(tx: Tx, organization: OrganizationId) -> UsageState:
    """The usage and the own limits of an organization, in one statement; nothing for an unknown one."""
    row = tx.execute(_STATE, {"of_organization": organization}).first()
    if row is None:
        return NOTHING_STORED
    return UsageState(OrganizationUsage(row.agents, row.messages, row.bytes, row.files), row.limits)


def all_limits(tx: Tx) -> dict[OrganizationId, Mapping[str, int]]:
    """The limits of every organization that has its own."""
    return {OrganizationId(row.organization_id): row.limits for row in tx.execute(_LIMITS)}


def set_limits(tx: Tx, organization: OrganizationId, limits: Mapping[str, int], now: Micros) -> None:
    """Replaces the limits of one organization; without any, those of the server hold."""
    tx.execute(_DROP_LIMITS, {"of_organization": organization})
    if limits:
        tx.execute(_ADD_LIMITS, {"organization_id": organization, "limits": dict(limits), "updated_at": now})


def has_removed_agents(tx: Tx, organization: OrganizationId) -> bool:
    """Checks whether rows of a deleted agent remain."""
    return tx.execute(_BEING_REMOVED, {"of_organization": organization}).scalar() is not None


@cache
def _recount(dialect: str) -> tuple[tuple[str | None, str], ...]:
    """For each counted table the counter of its rows, and the statement that counts rows and bytes."""
    return tuple(
        (
            each.counter,
            f"SELECT count(*), coalesce(sum({measured(each, 'counted', dialect)}), 0) "
            f"FROM {each.table} AS counted WHERE {owner_of(each, 'counted')} = :of_organization",
        )
        for each in COUNTED
    )


def recount(tx: Tx, organization: OrganizationId) -> OrganizationUsage:
    """The usage counted from the rows. It reads everything that the organization stores."""
    counts, total = {"agents": 0, "messages": 0, "files": 0}, 0
    for counter, statement in _recount(tx.dialect.name):
        rows, size = tx.execute(sa.text(statement), {"of_organization": organization}).one()
        total += int(size)
        if counter is not None:
            counts[counter] = int(rows)
    return OrganizationUsage(counts["agents"], counts["messages"], total, counts["files"])


@cache
def _recount_all(dialect: str) -> tuple[tuple[str | None, str], ...]:
    """For each counted table the counter of its rows, and the statement that counts for every organization."""
    return tuple(
        (
            each.counter,
            f"SELECT {owner_of(each, 'counted')}, count(*), coalesce(sum({measured(each, 'counted', dialect)}), 0) "
            f"FROM {each.table} AS counted GROUP BY 1",
        )
        for each in COUNTED
    )


def count_miscounted(tx: Tx) -> int:
    """Number of organizations whose counters are not what the rows say. It reads everything that is stored."""
    nothing = {"agents": 0, "messages": 0, "bytes": 0, "files": 0}
    right: dict[str, dict[str, int]] = {}
    for counter, statement in _recount_all(tx.dialect.name):
        for owner, rows, size in tx.execute(sa.text(statement)):
            found = right.setdefault(owner, dict(nothing))
            found["bytes"] += int(size)
            if counter is not None:
                found[counter] = int(rows)
    kept = tx.execute(_COUNTERS).mappings().all()
    return sum({name: row[name] for name in nothing} != right.get(row["organization_id"], nothing) for row in kept)


def deviation(tx: Tx, organization: OrganizationId) -> OrganizationUsage:
    """What must be added to the counters to make them right; all zero when they are."""
    kept, right = state(tx, organization).used, recount(tx, organization)
    return OrganizationUsage(
        right.agents - kept.agents, right.messages - kept.messages, right.bytes - kept.bytes, right.files - kept.files
    )


def correct(tx: Tx, organization: OrganizationId, by: OrganizationUsage) -> None:
    """Adds a deviation to the counters. What was written since it was found is counted already, so it stays right."""
    more = {
        "more_agents": by.agents,
        "more_messages": by.messages,
        "more_bytes": by.bytes,
        "more_files": by.files,
    }
    tx.execute(_CORRECT, {"of_organization": organization, **more})
