"""Access tokens as rows. An expired one counts as absent, and is deleted when the next one is created."""

from typing import Any

import sqlalchemy as sa

from kelpie.core.access.credential_scopes import Access, AccessToken, Grant
from kelpie.core.ids import AgentId, OrganizationId, TokenId, UserId
from kelpie.core.time import Micros
from kelpie.storage.tables import access_token_agents, access_tokens
from kelpie.world.database import Tx

_c = access_tokens.c
_ALL = sa.select(access_tokens)
_ONE = _ALL.where(_c.id == sa.bindparam("of_token"))
_LIVE = (
    _ALL.where(_c.organization_id == sa.bindparam("of_organization"), _c.expires_at > sa.bindparam("now"))
    .order_by(_c.created_at.desc(), _c.id.desc())
    .limit(sa.bindparam("at_most"))
    .offset(sa.bindparam("skipped"))
)
_LIVE_OF_AGENT = _LIVE.where(
    _c.id.in_(
        sa.select(access_token_agents.c.token_id).where(access_token_agents.c.agent_id == sa.bindparam("of_agent"))
    )
)
_COUNT = sa.select(sa.func.count()).where(_c.organization_id == sa.bindparam("of_organization"))
_INSERT = sa.insert(access_tokens)
_INSERT_AGENT = sa.insert(access_token_agents)
_DELETE = sa.delete(access_tokens).where(_c.id == sa.bindparam("of_token"))
_DELETE_EXPIRED = sa.delete(access_tokens).where(_c.expires_at <= sa.bindparam("now"))


def _from_row(row: sa.Row[Any]) -> AccessToken:
    return AccessToken(
        id=TokenId(row.id),
        organization_id=OrganizationId(row.organization_id),
        user_id=UserId(row.user_id),
        hostname=row.hostname,
        policy=tuple(
            Grant(AgentId(each["agent_id"]), tuple(Access(one) for one in each["access"])) for each in row.policy
        ),
        created_at=row.created_at,
        expires_at=row.expires_at,
    )


def insert(tx: Tx, token: AccessToken, digest: str) -> None:
    tx.execute(
        _INSERT,
        {
            "id": token.id,
            "organization_id": token.organization_id,
            "user_id": token.user_id,
            "digest": digest,
            "hostname": token.hostname,
            "policy": [
                {"agent_id": str(grant.agent_id), "access": [each.value for each in grant.access]}
                for grant in token.policy
            ],
            "created_at": token.created_at,
            "expires_at": token.expires_at,
        },
    )
    agents = dict.fromkeys(grant.agent_id for grant in token.policy)
    if agents:
        tx.execute(_INSERT_AGENT, [{"token_id": token.id, "agent_id": agent_id} for agent_id in agents])


def find(tx: Tx, token_id: TokenId) -> tuple[AccessToken, str] | None:
    """The token and the digest of its secret."""
    row = tx.execute(_ONE, {"of_token": token_id}).first()
    return None if row is None else (_from_row(row), row.digest)


def count(tx: Tx, organization: OrganizationId) -> int:
    return int(tx.execute(_COUNT, {"of_organization": organization}).scalar_one())


def live(
    tx: Tx, organization: OrganizationId, now: Micros, agent_id: AgentId | None, limit: int, offset: int
) -> list[AccessToken]:
    """The tokens that have not expired, the newest first; only those for one agent if it is named."""
    bound: dict[str, Any] = {"of_organization": organization, "now": now, "at_most": limit, "skipped": offset}
    if agent_id is None:
        return [_from_row(row) for row in tx.execute(_LIVE, bound)]
    return [_from_row(row) for row in tx.execute(_LIVE_OF_AGENT, bound | {"of_agent": agent_id})]


def delete(tx: Tx, token_id: TokenId) -> None:
    tx.execute(_DELETE, {"of_token": token_id})


def delete_expired(tx: Tx, now: Micros) -> None:
    tx.execute(_DELETE_EXPIRED, {"now": now})
