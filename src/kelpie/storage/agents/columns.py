"""Conversion between an agent and the columns of its row, and between its settings and their stored JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import itemgetter
from typing import Any

from sqlalchemy import Row

from kelpie.core.agents.agent import Agent, AgentType, ModelChoice, ToolRule
from kelpie.core.conversations.runs import StopReason
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.memory.facts import settings_from_json, settings_to_json
from kelpie.core.permissions.budgets import Budget, Period
from kelpie.storage.agents.policies import patterns_from_json, patterns_to_json, quota_from_json, quota_to_json
from kelpie.storage.tables import agents

_COLUMNS = tuple(agents.c.keys())
_READ = frozenset(
    {
        "id",
        "agent_type",
        "model",
        "tool_rules",
        "last_stop_reason",
        "organization_id",
        "budget",
        "facts",
        "permits",
        "quota",
    }
)
_in_order = itemgetter(*(field.name for field in fields(Agent)))
_PLAIN = tuple(name for name in _COLUMNS if name not in _READ)


def model_to_json(model: ModelChoice) -> dict[str, Any]:
    return {
        "handle": model.handle,
        "context_window": model.context_window,
        "max_tokens": model.max_tokens,
        "temperature": model.temperature,
        "parallel_tool_calls": model.parallel_tool_calls,
        "settings": dict(model.settings),
        **({} if model.inner_thoughts is None else {"inner_thoughts": model.inner_thoughts}),
    }


def rules_to_json(rules: Sequence[ToolRule]) -> list[dict[str, Any]]:
    return [{"type": r.type, "tool_name": r.tool_name, "options": dict(r.options)} for r in rules]


def budget_to_json(budget: Budget | None) -> dict[str, Any] | None:
    return None if budget is None else {"micros": budget.micros, "tokens": budget.tokens, "period": budget.period.value}


def budget_from_json(data: Mapping[str, Any] | None) -> Budget | None:
    return None if data is None else Budget(data["micros"], data["tokens"], Period(data["period"]))


def to_row(agent: Agent) -> dict[str, Any]:
    return {
        **{name: getattr(agent, name) for name in _PLAIN},
        "id": agent.id,
        "organization_id": agent.organization_id,
        "agent_type": agent.agent_type.value,
        "model": model_to_json(agent.model),
        "tool_rules": rules_to_json(agent.tool_rules),
        "last_stop_reason": agent.last_stop_reason.value if agent.last_stop_reason else None,
        "budget": budget_to_json(agent.budget),
        "facts": settings_to_json(agent.facts),
        "permits": patterns_to_json(agent.permits),
        "quota": quota_to_json(agent.quota),
    }


def from_row(row: Row[Any], tags: Sequence[str]) -> Agent:
    values = dict(zip(_COLUMNS, row, strict=False))  # further values of a statement come after the columns
    stop_reason, rules = values["last_stop_reason"], values["tool_rules"]
    values["id"] = AgentId(values["id"])
    values["organization_id"] = OrganizationId(values["organization_id"])
    values["agent_type"] = AgentType(values["agent_type"])
    values["model"] = ModelChoice(**values["model"])
    values["tool_rules"] = tuple([ToolRule(r["type"], r["tool_name"], r["options"]) for r in rules]) if rules else ()
    values["tags"] = tuple(tags)
    values["last_stop_reason"] = StopReason(stop_reason) if stop_reason else None
    values["budget"] = budget_from_json(values["budget"])
    values["facts"] = settings_from_json(values["facts"])
    values["permits"] = patterns_from_json(values["permits"])
    values["quota"] = quota_from_json(values["quota"])
    return Agent(*_in_order(values))
