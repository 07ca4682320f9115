"""The agent types as a table: they differ in configuration, never in code. One loop runs them all."""

from dataclasses import dataclass

from kelpie.agent import instructions
from kelpie.core.agents import AgentType
from kelpie.core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class TypeSpec:
    """What makes a type: its tools, its way of going on, its prompt."""

    base_tools: tuple[str, ...]
    instructions: str
    heartbeats: bool  # the model asks for its next step with `request_heartbeat`; otherwise any tool call goes on
    inner_thoughts: bool  # every tool call carries the model's thoughts in a `thinking` argument
    must_call_tool: bool  # the model is told to call a tool in every step
    base_tool_rules: bool  # whether its base tools come with exit and continue rules
    boot_messages: bool  # whether a new one starts with a short exchange that shows how to answer


TYPES: dict[AgentType, TypeSpec] = {
    AgentType.letta_v1_agent: TypeSpec(
        base_tools=("conversation_search", "memory_replace", "memory_insert"),
        instructions=instructions.DIRECT,
        heartbeats=False,
        inner_thoughts=False,
        must_call_tool=False,
        base_tool_rules=False,
        boot_messages=False,
    ),
    AgentType.memgpt_agent: TypeSpec(
        base_tools=(
            "send_message",
            "conversation_search",
            "core_memory_append",
            "core_memory_replace",
            "memory",
            "memory_apply_patch",
        ),
        instructions=instructions.BY_TOOL,
        heartbeats=True,
        inner_thoughts=True,
        must_call_tool=True,
        base_tool_rules=True,
        boot_messages=True,
    ),
}

EXITS = frozenset({"send_message", "send_message_to_agent_async", "memory_finish_edits"})


def spec_of(agent_type: AgentType) -> TypeSpec:
    """Raises InvalidInput for a type this version does not run."""
    spec = TYPES.get(agent_type)
    if spec is None:
        known = ", ".join(sorted(TYPES))
        raise InvalidInput("agent_type", f"'{agent_type}' is not run by this version of Kelpie; use one of {known}")
    return spec
