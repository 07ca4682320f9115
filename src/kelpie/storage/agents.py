"""Agents: their rows, tags and secrets. Blocks, tools and messages have modules of their own."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Row, Select, bindparam, delete, exists, func, insert, null, select, update

from kelpie.core.agents import Agent, AgentQuery, AgentType, ModelChoice, Secret, ToolRule
from kelpie.core.budgets import Budget, Period
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, OrganizationId, SecretId
from kelpie.core.runs import StopReason
from kelpie.core.time import Micros
from kelpie.storage import heads
from kelpie.storage.agent_filters import CONDITIONS, matching
from kelpie.storage.paging import Paging
from kelpie.storage.tables import agent_blocks, agent_secrets, agent_tags, agents, blocks
from kelpie.world.database import Tx

_COLUMNS = tuple(agents.c.keys())
_PLAIN = tuple(
    name
    for name in _COLUMNS
    if name not in ("id", "agent_type", "model", "tool_rules", "last_stop_reason", "organization_id", "budget")
)


def model_to_json(model: ModelChoice) -> dict[str, Any]:
    return {
        "handle": model.handle,
        "context_window": model.context_window,
        "max_tokens": model.max_tokens,
        "temperature": model.temperature,
        "parallel_tool_calls": model.parallel_tool_calls,
        "settings": dict(model.settings),
    }


def _rules_to_json(rules: Sequence[ToolRule]) -> list[dict[str, Any]]:
    return [{"type": r.type, "tool_name": r.tool_name, "options": dict(r.options)} for r in rules]


def _budget_to_json(budget: Budget | None) -> dict[str, Any] | None:
    return None if budget is None else {"micros": budget.micros, "tokens": budget.tokens, "period": budget.period.value}


def _budget_from_json(data: Mapping[str, Any] | None) -> Budget | None:
    return None if data is None else Budget(data["micros"], data["tokens"], Period(data["period"]))


def _to_row(agent: Agent) -> dict[str, Any]:
    return {
        **{name: getattr(agent, name) for name in _PLAIN},
        "id": agent.id,
        "organization_id": agent.organization_id,
        "agent_type": agent.agent_type.value,
        "model": model_to_json(agent.model),
        "tool_rules": _rules_to_json(agent.tool_rules),
        "last_stop_reason": agent.last_stop_reason.value if agent.last_stop_reason else None,
        "budget": _budget_to_json(agent.budget),
    }


def _from_row(row: Row[Any], tags: Sequence[str]) -> Agent:
    values = dict(zip(_COLUMNS, row, strict=False))  # what a statement has beside the columns comes after them
    stop_reason = values["last_stop_reason"]
    return Agent(
        **{name: values[name] for name in _PLAIN},
        id=AgentId(values["id"]),
        organization_id=OrganizationId(values["organization_id"]),
        agent_type=AgentType(values["agent_type"]),
        model=ModelChoice(**values["model"]),
        tool_rules=tuple(ToolRule(r["type"], r["tool_name"], r["options"]) for r in values["tool_rules"]),
        tags=tuple(tags),
        last_stop_reason=StopReason(stop_reason) if stop_reason else None,
        budget=_budget_from_json(values["budget"]),
    )


_INSERT = insert(agents)
_INSERT_TAG = insert(agent_tags)
_CLEAR_TAGS = delete(agent_tags).where(agent_tags.c.agent_id == bindparam("of_agent"))
_TAGS = (
    select(agent_tags.c.agent_id, agent_tags.c.tag)
    .where(agent_tags.c.agent_id.in_(bindparam("ids", expanding=True)))
    .order_by(agent_tags.c.agent_id, agent_tags.c.tag)
)


def create(tx: Tx, agent: Agent) -> None:
    """Writes a new agent with its tags and its fence."""
    tx.execute(_INSERT, _to_row(agent))
    heads.create(tx, agent.id)
    _add_tags(tx, agent.id, agent.tags)


def _add_tags(tx: Tx, agent_id: AgentId, tags: Sequence[str]) -> None:
    if tags:
        tx.execute(_INSERT_TAG, [{"agent_id": agent_id, "tag": tag} for tag in dict.fromkeys(tags)])


def _tags_of(tx: Tx, ids: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for agent_id, tag in tx.execute(_TAGS, {"ids": list(ids)}):
        found.setdefault(agent_id, []).append(tag)
    return found


_TAGGED = exists().where(agent_tags.c.agent_id == agents.c.id).label("tagged")  # so that few ask for tags
_WITH_TAGGED = select(agents, _TAGGED)
_ONE = _WITH_TAGGED.where(agents.c.id == bindparam("of_agent"))


def get(tx: Tx, agent_id: AgentId) -> Agent:
    """Raises NotFound."""
    row = tx.execute(_ONE, {"of_agent": agent_id}).first()
    if row is None:
        raise NotFound("Agent", agent_id)
    return _from_rows(tx, [row])[0]


def _from_rows(tx: Tx, rows: Sequence[Row[Any]]) -> list[Agent]:
    tagged = [row.id for row in rows if row.tagged]
    tags_of = _tags_of(tx, tagged) if tagged else {}
    return [_from_row(row, tags_of.get(row.id, ())) for row in rows]


_VERSIONS = (
    select(agents.c.version, blocks.c.id, blocks.c.version.label("block_version"))
    .select_from(
        agents.outerjoin(agent_blocks, agent_blocks.c.agent_id == agents.c.id).outerjoin(
            blocks, blocks.c.id == agent_blocks.c.block_id
        )
    )
    .where(agents.c.id == bindparam("of_agent"))
)


def versions(tx: Tx, agent_id: AgentId) -> tuple[int, dict[str, int]] | None:
    """The versions of the agent's settings and of each of its blocks, in one statement; None when it is gone."""
    rows = tx.execute(_VERSIONS, {"of_agent": agent_id}).all()
    if not rows:
        return None
    return rows[0].version, {row.id: row.block_version for row in rows if row.id is not None}


_EXISTS_ID = select(agents.c.id).where(agents.c.id == bindparam("of_agent"))


def require(tx: Tx, agent_id: AgentId) -> None:
    """Raises NotFound when there is no such agent."""
    if tx.execute(_EXISTS_ID, {"of_agent": agent_id}).first() is None:
        raise NotFound("Agent", agent_id)


def update_agent(tx: Tx, agent_id: AgentId, changes: Mapping[str, Any], now: Micros) -> None:
    """Changes columns (and `tags`) of an agent; `changes` are domain values by field name. Raises NotFound."""
    values: dict[str, Any] = {k: v for k, v in changes.items() if k != "tags"}
    if "model" in values:
        values["model"] = model_to_json(values["model"])
    if "budget" in values:
        values["budget"] = null() if values["budget"] is None else _budget_to_json(values["budget"])
    if "tool_rules" in values:
        values["tool_rules"] = _rules_to_json(values["tool_rules"])
    values |= {"updated_at": now, "version": agents.c.version + 1}
    if tx.execute(update(agents).where(agents.c.id == agent_id).values(values)).rowcount != 1:
        raise NotFound("Agent", agent_id)
    if "tags" in changes:
        tx.execute(_CLEAR_TAGS, {"of_agent": agent_id})
        _add_tags(tx, agent_id, changes["tags"])


_TOUCH_VERSION = update(agents).where(agents.c.id == bindparam("of_agent")).values(version=agents.c.version + 1)


def bump(tx: Tx, agent_id: AgentId) -> None:
    """Marks that something that hangs on the agent (its tools) changed."""
    tx.execute(_TOUCH_VERSION, {"of_agent": agent_id})


_RECORD_RUN = (
    update(agents)
    .where(agents.c.id == bindparam("of_agent"))
    .values(
        last_run_completion=bindparam("at"),
        last_run_duration_ms=bindparam("duration_ms"),
        last_stop_reason=bindparam("reason"),
    )
)


def record_run(tx: Tx, agent_id: AgentId, at: Micros, duration_ms: int, reason: StopReason) -> None:
    """Notes on the agent how its last run went; not a change of its configuration."""
    tx.execute(_RECORD_RUN, {"of_agent": agent_id, "at": at, "duration_ms": duration_ms, "reason": reason.value})


_PAUSE = (
    update(agents)
    .where(agents.c.id == bindparam("of_agent"))
    .values(paused_at=bindparam("at"), paused_until=bindparam("until"), version=agents.c.version + 1)
)


def pause(tx: Tx, agent_id: AgentId, at: Micros, until: Micros) -> None:
    """Notes a rest that the agent asked for, in the place of one before."""
    tx.execute(_PAUSE, {"of_agent": agent_id, "at": at, "until": until})


_DELETE = delete(agents).where(agents.c.id == bindparam("of_agent"))


def remove(tx: Tx, agent_id: AgentId) -> None:
    """Deletes an agent and all that is only its own. Raises NotFound."""
    if tx.execute(_DELETE, {"of_agent": agent_id}).rowcount != 1:
        raise NotFound("Agent", agent_id)


# --- lists ----------------------------------------------------------------------------------------------------------

_PAGES = Paging(agents, "created_at", "updated_at", "last_run_completion")
_ALL = _WITH_TAGGED.where(agents.c.organization_id == bindparam("organization"))


@lru_cache(maxsize=256)
def _query(conditions: tuple[str, ...]) -> Select[Any]:
    return _ALL.where(*(CONDITIONS[name] for name in conditions))


@lru_cache(maxsize=256)
def _counting(conditions: tuple[str, ...]) -> Select[Any]:
    return _COUNT.where(*(CONDITIONS[name] for name in conditions))


def select_agents(tx: Tx, organization: OrganizationId, query: AgentQuery) -> list[Agent]:
    """Agents on one page, with their tags, in a bounded number of statements."""
    conditions, bound = matching(query)
    bound["organization"] = organization
    rows = _PAGES.rows(tx, _query(conditions), query.page, bound, within={"organization_id": organization})
    return _from_rows(tx, rows)


_COUNT = select(func.count()).select_from(agents).where(agents.c.organization_id == bindparam("organization"))
_BY_IDS = _ALL.where(agents.c.id.in_(bindparam("ids", expanding=True)))


def count(tx: Tx, organization: OrganizationId, query: AgentQuery) -> int:
    """How many agents match, on all pages together."""
    conditions, bound = matching(query)
    return int(tx.execute(_counting(conditions), bound | {"organization": organization}).scalar_one())


def get_many(tx: Tx, organization: OrganizationId, ids: Sequence[AgentId]) -> list[Agent]:
    """The agents with these ids, in that order; ids that do not exist are left out."""
    rows = {row.id: row for row in tx.execute(_BY_IDS, {"organization": organization, "ids": list(ids)})} if ids else {}
    return _from_rows(tx, [rows[i] for i in ids if i in rows])


# --- secrets --------------------------------------------------------------------------------------------------------

_SECRETS = (
    select(agent_secrets)
    .where(agent_secrets.c.agent_id.in_(bindparam("ids", expanding=True)))
    .order_by(agent_secrets.c.agent_id, agent_secrets.c.key)
)
_CLEAR_SECRETS = delete(agent_secrets).where(agent_secrets.c.agent_id == bindparam("of_agent"))
_INSERT_SECRET = insert(agent_secrets)


def replace_secrets(tx: Tx, agent_id: AgentId, secrets: Sequence[Secret]) -> None:
    tx.execute(_CLEAR_SECRETS, {"of_agent": agent_id})
    if secrets:
        tx.execute(
            _INSERT_SECRET,
            [
                {
                    "id": s.id,
                    "agent_id": agent_id,
                    "key": s.key,
                    "value": s.value,
                    "description": s.description,
                    "created_at": s.created_at,
                    "updated_at": s.updated_at,
                }
                for s in secrets
            ],
        )


def secrets_of(tx: Tx, ids: Sequence[AgentId]) -> dict[str, tuple[Secret, ...]]:
    """The secrets of many agents in one query."""
    found: dict[str, list[Secret]] = {}
    for row in tx.execute(_SECRETS, {"ids": list(ids)}):
        secret = Secret(SecretId(row.id), row.key, row.value, row.created_at, row.updated_at, row.description)
        found.setdefault(row.agent_id, []).append(secret)
    return {agent_id: tuple(secrets) for agent_id, secrets in found.items()}
