"""The approval rule of an agent's tool: switched on and off by tool name."""

from collections.abc import Iterable

from kelpie.core.agents.agent import ToolRule
from kelpie.core.ids import AgentId
from kelpie.core.time import Micros
from kelpie.core.tools.tools import Tool
from kelpie.storage.agents import agents
from kelpie.world.database import Tx

RULE = "requires_approval"


def switch(tx: Tx, agent_id: AgentId, tool_name: str, on: bool, now: Micros) -> bool:
    """Sets the rule for the tool, which the agent may not have yet; False when nothing changed. Raises NotFound."""
    rules = agents.get(tx, agent_id).tool_rules
    others = tuple(rule for rule in rules if not (rule.type == RULE and rule.tool_name == tool_name))
    if (len(others) < len(rules)) == on:
        return False
    agents.update_agent(tx, agent_id, {"tool_rules": (*others, ToolRule(RULE, tool_name)) if on else others}, now)
    return True


def switch_on_by_default(tx: Tx, agent_id: AgentId, attached: Iterable[Tool], now: Micros) -> None:
    """Sets the rule for those tools, just attached, that require approval by default. Raises NotFound."""
    for tool in attached:
        if tool.default_requires_approval:
            switch(tx, agent_id, tool.name, True, now)
