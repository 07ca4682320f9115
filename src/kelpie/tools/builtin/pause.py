"""The tool by which an agent pauses: its turn ends at once, and for some minutes nothing but a message wakes it. It
never fails for the minutes it is given: an invalid value means the default.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from kelpie.core.agents.agent import AgentType
from kelpie.core.errors import InvalidInput
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.core.tools.tools import Tool, ToolType
from kelpie.storage.agents import agents
from kelpie.tools.builtin.schemas import PAUSE_HEARTBEATS
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.world.database import Tx

NAME: str = PAUSE_HEARTBEATS["name"]
MINUTES_DEFAULT, MINUTES_MIN, MINUTES_MAX = 2, 1, 60
MINUTE = 60 * MICROS_PER_SECOND


def is_pause(tool: Tool) -> bool:
    """True if this is the built-in tool, and not a custom tool of that name from before Kelpie had one."""
    return tool.name == NAME and tool.tool_type is not ToolType.custom


def corrected_arguments(arguments: Mapping[str, Any]) -> dict[str, int]:
    """The arguments in the form the tool takes, whatever the model sent."""
    return {"minutes": minutes_of(arguments.get("minutes", MINUTES_DEFAULT))}


def minutes_of(given: object) -> int:
    """Whole minutes within the bounds; the default for a value that is no number."""
    if isinstance(given, str):
        try:
            given = float(given)
        except ValueError:
            return MINUTES_DEFAULT
    if isinstance(given, bool) or not isinstance(given, int | float) or math.isnan(given):
        return MINUTES_DEFAULT
    return round(min(max(given, MINUTES_MIN), MINUTES_MAX))


def pause_heartbeats(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Begins a pause; an earlier one is replaced."""
    minutes = minutes_of(arguments.get("minutes", MINUTES_DEFAULT))
    agents.pause(tx, call.agent.id, call.now, call.now + minutes * MINUTE)
    text = f"Paused for {minutes} {'minute' if minutes == 1 else 'minutes'}: until then you take no steps on your own."
    return Outcome(text, touched=(call.agent.id,), ends_turn=NAME)


def require_heartbeats(field: str, agent_type: AgentType, tools: Iterable[Tool]) -> None:
    """Raises InvalidInput when the pause is given to an agent that has nothing to pause."""
    if not agent_type.has_heartbeats and any(is_pause(tool) for tool in tools):
        known = ", ".join(kind for kind in AgentType if kind.has_heartbeats)
        raise InvalidInput(
            field,
            f"'{NAME}' pauses heartbeats, and a {agent_type} has none; remove the tool, or choose an agent type that "
            f"has them: {known}",
        )
