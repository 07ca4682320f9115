"""Tool rules as a small solver: from an agent's rules and the calls its turn has made so far to what may come next.

Pure, and without a memory of its own: the calls come from the journalled results of the turn, so after a crash the same
history gives the same decisions. What can only be followed with tools that the agent does not have is void; and when
the rules leave nothing to call, the tools that end a turn and a plain answer stay open: no rule can lock an agent up.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from kelpie.core.agents.agent import ToolRule
from kelpie.core.conversations.messages import Message

_IN_ORDER = frozenset({"run_first", "constrain_child_tools", "parent_last_tool", "conditional"})
_WORDS = {"true": True, "false": False, "none": None, "null": None}

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Made:
    """A call of the turn that was tried. `text` is None while its result is not known."""

    name: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class AllowedTools:
    """Tools that may be called next. `forced` means that a call must be made; `prefilled` are arguments by tool."""

    allowed: tuple[str, ...]
    forced: bool = False
    prefilled: Mapping[str, Arguments] = field(default_factory=dict[str, Arguments])
    waits_for: str | None = None  # the tool whose result decides, while it is not known


def made_in(rows: Sequence[Message]) -> tuple[Made, ...]:
    """The calls that the rows of a turn answer, in their order, without those that were turned away untried."""
    return tuple(Made(r.name, r.text) for row in rows for r in row.tool_returns if not r.untried)


def wants_end(rows: Sequence[Message], exits: AbstractSet[str]) -> bool:
    """True if the last reply among the rows of a turn would have ended it: by an answer, or by a tool that does."""
    reply = next((row for row in reversed(rows) if row.is_reply and row.step_id is not None), None)
    return reply is not None and (not reply.tool_calls or any(call.name in exits for call in reply.tool_calls))


def allowed_tools(
    rules: Sequence[ToolRule],
    tools: Sequence[str],
    made: Sequence[Made],
    exits: AbstractSet[str] = frozenset(),
    *,
    ending: bool = False,
) -> AllowedTools:
    """Tools that may be called after the calls so far. `tools` are all the agent has, `exits` those that end a turn.

    With `ending` the model has tried to end the turn: tools that the rules require must be called now.
    """
    within = tuple(tool for tool in tools if not _used_up(rules, tool, made))
    if not made and (first := _first(rules, within)):
        return AllowedTools(tuple(first), True, {tool: args for tool, args in first.items() if args})
    last = made[-1] if made else Made("")
    own = [r for r in rules if r.tool_name == last.name]
    if last.text is None and any(r.type == "conditional" for r in own):
        return AllowedTools((), waits_for=last.name)
    only = [children for r in own if (children := _following(r, last, tools)) is not None]
    within = tuple(tool for tool in within if not _without_parent(rules, tool, last.name))
    allowed = tuple(tool for tool in within if all(tool in children for children in only))
    if not allowed:
        return AllowedTools(tuple(tool for tool in within if tool in exits))
    due = owed(rules, tools, made) if ending else ()
    if pressing := tuple(tool for tool in allowed if tool in due):
        return AllowedTools(pressing, True, _prefilled(own, pressing))
    return AllowedTools(allowed, bool(only), _prefilled(own, allowed))


def owed(rules: Sequence[ToolRule], tools: Sequence[str], made: Sequence[Made]) -> tuple[str, ...]:
    """The tools that must still be called before the turn may end."""
    required = dict.fromkeys(r.tool_name for r in rules if r.type == "required_before_exit")
    called = {one.name for one in made}
    return tuple(name for name in required if name in tools and name not in called and not _used_up(rules, name, ()))


def one_at_a_time(rules: Sequence[ToolRule]) -> bool:
    """True if the order of calls matters, so that the model should make one in each step."""
    return any(r.type in _IN_ORDER for r in rules)


def refusal(found: AllowedTools, name: str) -> str:
    """The result of a call that the rules forbid."""
    if found.waits_for is not None:
        return f"'{name}' was not run: the result of '{found.waits_for}' decides the next call. Read that result first."
    if not found.allowed:
        return f"'{name}' was not run: this agent's tool rules allow no more calls in this turn. Give your answer."
    names = ", ".join(found.allowed)
    return f"'{name}' was not run: this agent's tool rules do not allow it now. Allowed tools: {names}."


def call_first(names: Sequence[str]) -> str:
    """The message for a model that would end the turn, or answer, before it has called a required tool."""
    told = f"call {names[0]}" if len(names) == 1 else f"call {', '.join(names[:-1])} and {names[-1]}"
    return f"Automatic message, not from the user: this agent's tool rules require you to {told} before you finish."


def call_one_of(names: Sequence[str]) -> str:
    """The message for a model that answered where it had to make a call."""
    told = names[0] if len(names) == 1 else f"one of {', '.join(names)}"
    return f"Automatic message, not from the user: this agent's tool rules require you to call {told} now."


def _first(rules: Sequence[ToolRule], tools: Sequence[str]) -> dict[str, Arguments]:
    """The tools that a turn must begin with, and the arguments they then have."""
    first: dict[str, Arguments] = {}
    for rule in rules:
        if rule.type == "run_first" and rule.tool_name in tools:
            first[rule.tool_name] = {**first.get(rule.tool_name, {}), **(rule.options.get("args") or {})}
    return {tool: first[tool] for tool in tools if tool in first}


def _following(rule: ToolRule, last: Made, tools: Sequence[str]) -> Sequence[str] | None:
    """The only tools that the rule lets follow the call it is about; None when it says nothing."""
    children: Sequence[str] | None = None
    if rule.type == "constrain_child_tools":
        children = rule.options.get("children") or ()
    elif rule.type == "conditional":
        child = _chosen(rule, last.text or "")
        if child is None:
            return () if rule.options.get("require_output_mapping") else None
        children = (child,)
    return children if children is not None and any(child in tools for child in children) else None


def _chosen(rule: ToolRule, output: str) -> str | None:
    mapping: Mapping[str, str] = rule.options.get("child_output_mapping") or {}
    exact = mapping.get(output.strip())
    if exact is not None:
        return exact
    meant = _value(output)
    alike = (child for key, child in mapping.items() if _value(key) == meant)
    return next(alike, rule.options.get("default_child"))


def _value(text: str) -> tuple[str, Any]:
    """Kind and value of an output, so that True equals true and 4 equals 4.0; the kind keeps True apart from 1."""
    word = text.strip()
    if word.lower() in _WORDS:
        return "word", _WORDS[word.lower()]
    try:
        return "number", float(word)
    except ValueError:
        return "text", word


def _without_parent(rules: Sequence[ToolRule], tool: str, last: str) -> bool:
    """True if the tool may only be called right after another, and that was not the last."""
    return any(
        r.type == "parent_last_tool" and r.tool_name != last and tool in (r.options.get("children") or ())
        for r in rules
    )


def _used_up(rules: Sequence[ToolRule], tool: str, made: Sequence[Made]) -> bool:
    limits = [
        r.options.get("max_count_limit", 0) for r in rules if r.type == "max_count_per_step" and r.tool_name == tool
    ]
    return bool(limits) and sum(one.name == tool for one in made) >= min(limits)


def _prefilled(own: Sequence[ToolRule], allowed: Sequence[str]) -> Mapping[str, Arguments]:
    found: dict[str, Arguments] = {}
    for rule in own:
        nodes: Sequence[Mapping[str, Any]] = rule.options.get("child_arg_nodes") or ()
        for node in nodes if rule.type == "constrain_child_tools" else ():
            name, args = node.get("name"), node.get("args")
            if isinstance(name, str) and args and name in allowed:
                found[name] = {**found.get(name, {}), **args}
    return found
