"""Agents and their tags. Secrets, blocks, tools and messages have modules of their own."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Row,
    Select,
    bindparam,
    case,
    delete,
    func,
    null,
    select,
    update,
)
from sqlalchemy import exists as sql_exists

from kelpie.core.agents.agent import Agent, AgentQuery
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.memory.facts import settings_to_json
from kelpie.core.time import Micros
from kelpie.storage.agents import ownership_fence
from kelpie.storage.agents.columns import budget_to_json, from_row, model_to_json, rules_to_json, to_row
from kelpie.storage.agents.filters import CONDITIONS, candidates, matching
from kelpie.storage.agents.policies import patterns_to_json, quota_to_json
from kelpie.storage.rows.inserts import Insert
from kelpie.storage.rows.paging import Paging
from kelpie.storage.tables import agent_blocks, agent_tags, agents, blocks, organization_usage, tool_policies
from kelpie.world.database import Tx
from kelpie.world.statements import Prepared

_INSERT = Insert(agents)
_INSERT_TAG = Insert(agent_tags)
_CLEAR_TAGS = delete(agent_tags).where(agent_tags.c.agent_id == bindparam("of_agent"))
_TAGS = (
    select(agent_tags.c.agent_id, agent_tags.c.tag)
    .where(agent_tags.c.agent_id.in_(bindparam("ids", expanding=True)))
    .order_by(agent_tags.c.agent_id, agent_tags.c.tag)
)


def create(tx: Tx, agent: Agent) -> None:
    """Writes a new agent with its tags and its fence."""
    _INSERT.run(tx, [to_row(agent)])
    ownership_fence.create(tx, agent.id)
    _add_tags(tx, agent.id, agent.tags)


def _add_tags(tx: Tx, agent_id: AgentId, tags: Sequence[str]) -> None:
    if tags:
        _INSERT_TAG.run(tx, [{"agent_id": agent_id, "tag": tag} for tag in dict.fromkeys(tags)])


def _tags_of(tx: Tx, ids: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for agent_id, tag in tx.execute(_TAGS, {"ids": list(ids)}):
        found.setdefault(agent_id, []).append(tag)
    return found


_TAGGED = sql_exists().where(agent_tags.c.agent_id == agents.c.id).label("tagged")  # so that few ask for tags
_WITH_TAGGED = select(agents, _TAGGED)
_PRESENT = agents.c.organization_id != ""  # an agent without one was deleted, see `removal`
_ONE = Prepared(_WITH_TAGGED.where(agents.c.id == bindparam("of_agent"), _PRESENT))


def get(tx: Tx, agent_id: AgentId) -> Agent:
    """Raises NotFound."""
    row = _ONE.first(tx, {"of_agent": agent_id})
    if row is None:
        raise NotFound("Agent", agent_id)
    return _from_rows(tx, [row])[0]


def owned(tx: Tx, organization: OrganizationId, agent_id: AgentId) -> Agent:
    """Raises NotFound, also for an agent of another organisation."""
    agent = get(tx, agent_id)
    if agent.organization_id != organization:
        raise NotFound("Agent", agent_id)
    return agent


def _from_rows(tx: Tx, rows: Sequence[Row[Any]]) -> list[Agent]:
    tagged = [row.id for row in rows if row.tagged]
    tags_of = _tags_of(tx, tagged) if tagged else {}
    return [from_row(row, tags_of.get(row.id, ())) for row in rows]


class Versions(NamedTuple):
    """Versions of the agent's settings, of each of its blocks, and of its organisation's policy (0: there is none)."""

    settings: int
    blocks: dict[str, int]
    policy: int


_POLICY = (
    select(tool_policies.c.version)
    .where(tool_policies.c.organization_id == agents.c.organization_id)
    .correlate(agents)
    .scalar_subquery()
)
_VERSIONS = Prepared(
    select(agents.c.version, blocks.c.id, blocks.c.version.label("block_version"), _POLICY.label("policy_version"))
    .select_from(
        agents.outerjoin(agent_blocks, agent_blocks.c.agent_id == agents.c.id).outerjoin(
            blocks, blocks.c.id == agent_blocks.c.block_id
        )
    )
    .where(agents.c.id == bindparam("of_agent"), _PRESENT)
)


def versions(tx: Tx, agent_id: AgentId) -> Versions | None:
    """The versions of everything that an agent depends on, in one statement; None when it is gone."""
    rows = _VERSIONS.rows(tx, {"of_agent": agent_id})
    if not rows:
        return None
    held = {row.id: row.block_version for row in rows if row.id is not None}
    return Versions(rows[0].version, held, rows[0].policy_version or 0)


_EXISTS_ID = select(agents.c.id).where(agents.c.id == bindparam("of_agent"), _PRESENT)


def exists(tx: Tx, agent_id: AgentId) -> bool:
    return tx.execute(_EXISTS_ID, {"of_agent": agent_id}).first() is not None


def require(tx: Tx, agent_id: AgentId) -> None:
    """Raises NotFound when there is no such agent."""
    if not exists(tx, agent_id):
        raise NotFound("Agent", agent_id)


def update_agent(tx: Tx, agent_id: AgentId, changes: Mapping[str, Any], now: Micros) -> None:
    """Changes columns (and `tags`) of an agent; `changes` are domain values by field name. Raises NotFound."""
    values: dict[str, Any] = {k: v for k, v in changes.items() if k != "tags"}
    if "model" in values:
        values["model"] = model_to_json(values["model"])
    if "budget" in values:
        values["budget"] = null() if values["budget"] is None else budget_to_json(values["budget"])
    if "facts" in values:
        values["facts"] = settings_to_json(values["facts"])
    if "permits" in values:
        values["permits"] = patterns_to_json(values["permits"])
    if "quota" in values:
        values["quota"] = quota_to_json(values["quota"])
    if "tool_rules" in values:
        values["tool_rules"] = rules_to_json(values["tool_rules"])
    values |= {"updated_at": now, "version": agents.c.version + 1}
    if tx.execute(update(agents).where(agents.c.id == agent_id, _PRESENT).values(values)).rowcount != 1:
        raise NotFound("Agent", agent_id)
    if "tags" in changes:
        tx.execute(_CLEAR_TAGS, {"of_agent": agent_id})
        _add_tags(tx, agent_id, changes["tags"])


_TOUCH_VERSION = update(agents).where(agents.c.id == bindparam("of_agent")).values(version=agents.c.version + 1)


def bump(tx: Tx, agent_id: AgentId) -> None:
    """Marks that a relation of the agent (its tools) changed."""
    tx.execute(_TOUCH_VERSION, {"of_agent": agent_id})


def bump_many(tx: Tx, agent_ids: tuple[AgentId, ...]) -> tuple[AgentId, ...]:
    """The same for several agents; returns them."""
    for agent_id in agent_ids:
        bump(tx, agent_id)
    return agent_ids


# A turn may end before a change that was committed earlier; the time of the last use does not go back.
_AT = bindparam("at", type_=BigInteger())
_LATER = case((agents.c.updated_at > _AT, agents.c.updated_at), else_=_AT)
_TOUCH = (
    update(agents).where(agents.c.id == bindparam("of_agent")).values(updated_at=_LATER, version=agents.c.version + 1)
)


def touch(tx: Tx, agent_id: AgentId, at: Micros) -> None:
    """Marks that a client attached something to the agent or detached it."""
    tx.execute(_TOUCH, {"of_agent": agent_id, "at": at})


_RECORD_RUN = Prepared(
    update(agents)
    .where(agents.c.id == bindparam("of_agent"))
    .values(
        updated_at=_LATER,
        last_run_completion=_AT,
        last_run_duration_ms=bindparam("duration_ms"),
        last_stop_reason=bindparam("reason"),
    )
)


def record_run(tx: Tx, agent_id: AgentId, at: Micros, duration_ms: int, reason: StopReason) -> None:
    """Records the result and time of the agent's last run; not a change of its configuration."""
    _RECORD_RUN.run(tx, {"of_agent": agent_id, "at": at, "duration_ms": duration_ms, "reason": reason.value})


_PAUSE = (
    update(agents)
    .where(agents.c.id == bindparam("of_agent"))
    .values(paused_at=bindparam("at"), paused_until=bindparam("until"), version=agents.c.version + 1)
)


def pause(tx: Tx, agent_id: AgentId, at: Micros, until: Micros) -> None:
    """Records a pause that the agent asked for, replacing an earlier one."""
    tx.execute(_PAUSE, {"of_agent": agent_id, "at": at, "until": until})


_EXISTING = select(agents.c.id).where(agents.c.id.in_(bindparam("ids", expanding=True)), _PRESENT)


def existing(tx: Tx, ids: Sequence[AgentId]) -> frozenset[str]:
    """Those of the agents that exist, in any organisation."""
    return frozenset(tx.execute(_EXISTING, {"ids": list(ids)}).scalars())


_NAMES = select(agents.c.id, agents.c.name).where(agents.c.id.in_(bindparam("ids", expanding=True)), _PRESENT)


def names(tx: Tx, ids: Sequence[AgentId]) -> dict[str, str]:
    """The names of those of these agents that exist."""
    return {row.id: row.name for row in tx.execute(_NAMES, {"ids": list(ids)})} if ids else {}


_OWNERS = select(agents.c.id, agents.c.organization_id).where(
    agents.c.id.in_(bindparam("ids", expanding=True)), _PRESENT
)


def owners(tx: Tx, ids: Sequence[AgentId]) -> dict[AgentId, OrganizationId]:
    """The organisation of each of the agents that exist."""
    return {AgentId(row.id): OrganizationId(row.organization_id) for row in tx.execute(_OWNERS, {"ids": list(ids)})}


# --- lists ----------------------------------------------------------------------------------------------------------

_PAGES = Paging(agents, "created_at", "updated_at", "last_run_completion")
_OURS = agents.c.organization_id == bindparam("organization")
# The same, for statements that know their candidates: no index on the organization may be used for them.
_OURS_AMONG = agents.c.organization_id.concat("") == bindparam("organization")


@lru_cache(maxsize=256)
def _query(conditions: tuple[str, ...]) -> Select[Any]:
    return _WITH_TAGGED.where(*_where(conditions))


@lru_cache(maxsize=256)
def _counting(conditions: tuple[str, ...]) -> Select[Any]:
    return select(func.count()).select_from(agents).where(*_where(conditions))


def _where(conditions: tuple[str, ...]) -> list[ColumnElement[bool]]:
    return [_OURS_AMONG if "among" in conditions else _OURS, *(CONDITIONS[name] for name in conditions)]


def _narrowed(tx: Tx, organization: OrganizationId, query: AgentQuery) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The conditions of a query and their parameters, limited to a few candidates where a filter allows it."""
    conditions, bound = matching(query)
    few = candidates(tx, query, bound)
    bound["organization"] = organization
    return (conditions, bound) if few is None else ((*conditions, "among"), bound | {"among": few})


def select_agents(tx: Tx, organization: OrganizationId, query: AgentQuery) -> list[Agent]:
    """Agents on one page, with their tags, in a bounded number of statements."""
    conditions, bound = _narrowed(tx, organization, query)
    rows = _PAGES.rows(tx, _query(conditions), query.page, bound, within={"organization_id": organization})
    return _from_rows(tx, rows)


_COUNTED = select(organization_usage.c.agents).where(organization_usage.c.organization_id == bindparam("organization"))
_COUNT_HIDDEN = select(func.count()).select_from(agents).where(_OURS, agents.c.hidden)
_BY_IDS = _WITH_TAGGED.where(_OURS, agents.c.id.in_(bindparam("ids", expanding=True)))


def count(tx: Tx, organization: OrganizationId, query: AgentQuery) -> int:
    """Number of agents that match, on all pages together."""
    conditions, bound = _narrowed(tx, organization, query)
    if set(conditions) <= {"visible"}:  # all of them are counted already
        every = int(tx.execute(_COUNTED, bound).scalar_one_or_none() or 0)
        return every if query.show_hidden else every - int(tx.execute(_COUNT_HIDDEN, bound).scalar_one())
    return int(tx.execute(_counting(conditions), bound).scalar_one())


def get_many(tx: Tx, organization: OrganizationId, ids: Sequence[AgentId]) -> list[Agent]:
    """The agents with these ids, in that order; ids that do not exist are left out."""
    rows = {row.id: row for row in tx.execute(_BY_IDS, {"organization": organization, "ids": list(ids)})} if ids else {}
    return _from_rows(tx, [rows[i] for i in ids if i in rows])
