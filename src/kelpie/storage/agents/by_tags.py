"""Search for the recipients of an agent's message by their tags."""

from functools import lru_cache
from typing import Any

from sqlalchemy import Select, bindparam, func, select

from kelpie.core.ids import AgentId, OrganizationId
from kelpie.storage.tables import agent_tags, agents
from kelpie.world.database import Tx

_ALL = (
    select(agent_tags.c.agent_id)
    .where(agent_tags.c.tag.in_(bindparam("every", expanding=True)))
    .group_by(agent_tags.c.agent_id)
    .having(func.count(agent_tags.c.tag) == bindparam("every_count"))
)
_SOME = select(agent_tags.c.agent_id).where(agent_tags.c.tag.in_(bindparam("some", expanding=True)))
_OTHERS = (
    select(agents.c.id)
    .where(agents.c.organization_id == bindparam("of_organization"), agents.c.id != bindparam("sender"))
    .order_by(agents.c.created_at, agents.c.id)
    .limit(bindparam("at_most"))
)


@lru_cache(maxsize=4)
def _tagged(every: bool, some: bool) -> Select[Any]:
    statement = _OTHERS
    if every:
        statement = statement.where(agents.c.id.in_(_ALL))
    return statement.where(agents.c.id.in_(_SOME)) if some else statement


def tagged(
    tx: Tx, organization: OrganizationId, sender: AgentId, every: tuple[str, ...], some: tuple[str, ...], at_most: int
) -> list[AgentId]:
    """Agents other than the sender that have all tags of the first list and any of the second, oldest first."""
    bound: dict[str, Any] = {"of_organization": organization, "sender": sender, "at_most": at_most}
    wanted = sorted(set(every))
    bound |= {"every": wanted, "every_count": len(wanted)} if wanted else {}
    bound |= {"some": sorted(set(some))} if some else {}
    return [AgentId(row.id) for row in tx.execute(_tagged(bool(wanted), bool(some)), bound)]
