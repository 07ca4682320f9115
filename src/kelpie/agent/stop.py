"""Whether a turn goes on after a step: one pure decision for every agent type."""

from collections.abc import Sequence
from dataclasses import dataclass

from kelpie.agent import instructions
from kelpie.agent.types import TypeSpec
from kelpie.core.agents import ToolRule
from kelpie.core.runs import StopReason


@dataclass(frozen=True, slots=True)
class Called:
    """A tool call as the decision sees it. `refused` means that it never reached a tool."""

    name: str
    heartbeat: bool
    refused: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """`stop` is None when the turn goes on; `nudge` is then what the model is told, if its type needs telling."""

    stop: StopReason | None
    nudge: str | None = None


def decide(
    spec: TypeSpec, rules: Sequence[ToolRule], calls: Sequence[Called], finish_reason: str, steps_left: int
) -> Decision:
    """What happens after a step whose calls have all been answered."""
    if not calls:
        cut = finish_reason == "length"
        return Decision(StopReason.max_tokens_exceeded if cut else StopReason.end_turn)
    exits = spec.exits | {r.tool_name for r in rules if r.type == "exit_loop"}
    ending = [c for c in calls if c.name in exits and not c.refused]
    if ending:
        asked = not spec.heartbeats or any(c.heartbeat for c in ending)
        return Decision(StopReason.tool_rule if asked else StopReason.end_turn)
    nudge = _nudge(spec, rules, calls)
    if spec.heartbeats and nudge is None:
        return Decision(StopReason.end_turn)
    return Decision(StopReason.max_steps) if steps_left <= 0 else Decision(None, nudge)


def _nudge(spec: TypeSpec, rules: Sequence[ToolRule], calls: Sequence[Called]) -> str | None:
    if not spec.heartbeats:
        return None
    if any(c.heartbeat for c in calls):
        return instructions.HEARTBEAT_ASKED
    going_on = {r.tool_name for r in rules if r.type == "continue_loop"}
    if any(c.refused or c.name in going_on for c in calls):
        return instructions.HEARTBEAT_RULE
    return None
