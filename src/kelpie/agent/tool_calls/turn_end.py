"""End of a turn: one pure decision after each step, for every agent type."""

from collections.abc import Sequence
from dataclasses import dataclass

from kelpie.agent.prompt import default_instructions
from kelpie.agent.prompt.agent_types import TypeSpec
from kelpie.agent.tool_calls import tool_rules as rules
from kelpie.agent.tool_calls.tool_rules import Made
from kelpie.core.agents.agent import ToolRule
from kelpie.core.conversations.runs import StopReason
from kelpie.tools.builtin.pause import NAME as PAUSE


@dataclass(frozen=True, slots=True)
class CallSummary:
    """A tool call as the decision sees it. `refused` means that it never reached a tool."""

    name: str
    heartbeat: bool
    refused: bool
    bad_prefill: bool = False  # refused for what a tool rule prefills, which no further step can change


@dataclass(frozen=True, slots=True)
class Ruled:
    """Demands of the tool rules once the calls of a step are answered."""

    owed: tuple[str, ...] = ()  # must be called before the turn ends
    next: tuple[str, ...] = ()  # one of these must be called now

    @property
    def demands(self) -> bool:
        return bool(self.owed or self.next)


FREE = Ruled()


@dataclass(frozen=True, slots=True)
class Decision:
    """`stop` is None when the turn continues; `nudge` is then a message for the model, if its type needs one."""

    stop: StopReason | None
    nudge: str | None = None
    detail: str | None = None  # Kelpie's own reason, where `stop` has no value for it


def exits_of(spec: TypeSpec, tool_rules: Sequence[ToolRule]) -> frozenset[str]:
    """The tools that end a turn."""
    return spec.exits | {r.tool_name for r in tool_rules if r.type == "exit_loop"}


def ruled(spec: TypeSpec, tool_rules: Sequence[ToolRule], tools: Sequence[str], made: Sequence[Made]) -> Ruled:
    """Demands of the tool rules after the calls that the turn has made."""
    found = rules.allowed_tools(tool_rules, tools, made, exits_of(spec, tool_rules))
    return Ruled(rules.owed(tool_rules, tools, made), found.allowed if found.forced else ())


def decide(
    spec: TypeSpec,
    tool_rules: Sequence[ToolRule],
    calls: Sequence[CallSummary],
    finish_reason: str,
    steps_left: int,
    asked: Ruled = FREE,
    *,
    paused: bool = False,
) -> Decision:
    """The decision after a step whose calls are all answered. A heartbeat does not make a paused agent continue."""
    if any(c.bad_prefill for c in calls):
        return Decision(StopReason.invalid_tool_call)
    if not calls and finish_reason == "length":
        return Decision(StopReason.max_tokens_exceeded)
    stop = _stop(spec, tool_rules, calls)
    if stop is None and paused and spec.heartbeats and not asked.demands and not any(c.refused for c in calls):
        return Decision(StopReason.end_turn, detail=PAUSE)
    if stop is None:
        nudge = _nudge(spec, tool_rules, calls)
    elif asked.next and not _ending(spec, tool_rules, calls):
        nudge = default_instructions.HEARTBEAT_RULE if calls else rules.call_one_of(asked.next)
    elif asked.owed:
        nudge = rules.call_first(asked.owed)
    else:
        return Decision(stop)
    return Decision(StopReason.max_steps) if steps_left <= 0 else Decision(None, nudge)


def _ending(spec: TypeSpec, tool_rules: Sequence[ToolRule], calls: Sequence[CallSummary]) -> list[CallSummary]:
    exits = exits_of(spec, tool_rules)
    return [c for c in calls if c.name in exits and not c.refused]


def _stop(spec: TypeSpec, tool_rules: Sequence[ToolRule], calls: Sequence[CallSummary]) -> StopReason | None:
    """Reason for which the turn would end here, if no rule asked for more."""
    if ending := _ending(spec, tool_rules, calls):
        asked = not spec.heartbeats or any(c.heartbeat for c in ending)
        return StopReason.tool_rule if asked else StopReason.end_turn
    if calls and (not spec.heartbeats or _nudge(spec, tool_rules, calls) is not None):
        return None
    return StopReason.end_turn


def _nudge(spec: TypeSpec, tool_rules: Sequence[ToolRule], calls: Sequence[CallSummary]) -> str | None:
    if not spec.heartbeats:
        return None
    if any(c.heartbeat for c in calls):
        return default_instructions.HEARTBEAT_ASKED
    going_on = {r.tool_name for r in tool_rules if r.type == "continue_loop"}
    if any(c.refused or c.name in going_on for c in calls):
        return default_instructions.HEARTBEAT_RULE
    return None
