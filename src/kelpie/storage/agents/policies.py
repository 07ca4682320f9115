"""Permissions and limits as they are stored: those of agents in their rows, those of organisations in rows of their
own.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, insert, select, update

from kelpie.core.ids import OrganizationId, UserId
from kelpie.core.permissions.policies import NO_POLICY, Policy
from kelpie.core.permissions.quotas import UNBOUNDED, Quota
from kelpie.core.permissions.tool_permissions import ANYTHING, ToolPatterns
from kelpie.core.time import Micros
from kelpie.storage.tables import tool_policies
from kelpie.world.database import Tx


def patterns_to_json(permits: ToolPatterns | None) -> dict[str, Any] | None:
    if permits is None:
        return None
    return {"allow": None if permits.allow is None else list(permits.allow), "deny": list(permits.deny)}


def patterns_from_json(data: Mapping[str, Any] | None) -> ToolPatterns | None:
    if data is None:
        return None
    return ToolPatterns(None if data["allow"] is None else tuple(data["allow"]), tuple(data["deny"]))


def quota_to_json(quota: Quota | None) -> dict[str, Any] | None:
    return None if quota is None else {name: getattr(quota, name) for name in Quota.__slots__}


def quota_from_json(data: Mapping[str, Any] | None) -> Quota | None:
    return None if data is None else Quota(**data)


_OF = select(tool_policies).where(tool_policies.c.organization_id == bindparam("of_organization"))
_INSERT = insert(tool_policies)
_UPDATE = (
    update(tool_policies)
    .where(tool_policies.c.organization_id == bindparam("of_organization"))
    .values(
        permits=bindparam("new_permits"),
        quota=bindparam("new_quota"),
        version=bindparam("new_version"),
        updated_by_id=bindparam("user"),
        updated_at=bindparam("at"),
    )
)


def policy_of(tx: Tx, organization: OrganizationId) -> Policy:
    """The policy of an organisation for all of its agents."""
    row = tx.execute(_OF, {"of_organization": organization}).first()
    if row is None:
        return NO_POLICY
    return Policy(patterns_from_json(row.permits) or ANYTHING, quota_from_json(row.quota) or UNBOUNDED, row.version)


def set_policy(tx: Tx, organization: OrganizationId, policy: Policy, user: UserId, now: Micros) -> Policy:
    """Replaces the policy; its version is the next one."""
    version = policy_of(tx, organization).version + 1
    permits, quota = patterns_to_json(policy.permits), quota_to_json(policy.quota)
    if version == 1:
        new = {"permits": permits, "quota": quota, "version": 1, "updated_by_id": user, "updated_at": now}
        tx.execute(_INSERT, {"organization_id": organization, **new})
    else:
        tx.execute(
            _UPDATE,
            {
                "of_organization": organization,
                "new_permits": permits,
                "new_quota": quota,
                "new_version": version,
                "user": user,
                "at": now,
            },
        )
    return Policy(policy.permits, policy.quota, version)
