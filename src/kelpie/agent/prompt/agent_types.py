"""The agent types as a table: they differ in configuration, never in code. One loop runs them all."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

from kelpie.agent.prompt import default_instructions as instructions
from kelpie.core.agents.agent import Agent, AgentType, ModelChoice
from kelpie.core.errors import InvalidInput
from kelpie.llm.catalog.openai_traits import handle_reasons


class Thoughts(Enum):
    """The way in which a model's thoughts arrive, and what its text beside a tool call is."""

    plain = "plain"  # thoughts of the model's own; text is an answer
    in_calls = "in_calls"  # in an argument of every tool call; text beside a call is a thought too
    native = "native"  # thoughts of the model's own; text beside a call is a thought too
    off = "off"  # none; text beside a call is an answer


BaseRules = Literal["never", "by_model", "always"]
SPEAK = "send_message"


@dataclass(frozen=True, slots=True)
class TypeSpec:
    """Definition of an agent type: its tools, its rule for the next step, its prompt."""

    base_tools: tuple[str, ...]
    instructions: str | None  # None: the client must give its own
    heartbeats: bool  # the model asks for its next step with `request_heartbeat`; otherwise any tool call goes on
    inner_thoughts: bool  # every tool call carries the model's thoughts in a `thinking` argument
    must_call_tool: bool  # the model must call a tool in every step
    base_rules: BaseRules  # whether its base tools come with exit and continue rules; some models manage without
    boot_messages: bool  # whether a new one starts with a short exchange that shows how to answer
    memory_in_prompt: bool = True
    numbered_lines: bool = False  # whether models that count lines well are shown the numbers of a block's lines
    one_turn_memory: bool = False  # what was said is out of sight after each turn, whatever its maker says
    exits: frozenset[str] = frozenset()  # tools that end a turn, whether or not a rule says so
    needs_companion: bool = False  # it only works with another agent that looks after its memory

    @property
    def speaks_by_tool(self) -> bool:
        """True if the type answers with a tool; otherwise the text of its reply is the answer."""
        return SPEAK in self.base_tools


_CLASSIC_TOOLS = (
    "send_message",
    "conversation_search",
    "core_memory_append",
    "core_memory_replace",
    "memory",
    "memory_apply_patch",
)

TYPES: dict[AgentType, TypeSpec] = {
    AgentType.letta_v1_agent: TypeSpec(
        base_tools=("conversation_search", "memory_replace", "memory_insert"),
        instructions=instructions.DIRECT,
        heartbeats=False,
        inner_thoughts=False,
        must_call_tool=False,
        base_rules="never",
        boot_messages=False,
        numbered_lines=True,
    ),
    AgentType.memgpt_v2_agent: TypeSpec(
        base_tools=("send_message", "conversation_search", "memory_replace", "memory_insert"),
        instructions=instructions.BY_LINES,
        heartbeats=True,
        inner_thoughts=True,
        must_call_tool=True,
        base_rules="by_model",
        boot_messages=True,
        numbered_lines=True,
    ),
    AgentType.memgpt_agent: TypeSpec(
        base_tools=_CLASSIC_TOOLS,
        instructions=instructions.CLASSIC,
        heartbeats=True,
        inner_thoughts=True,
        must_call_tool=True,
        base_rules="by_model",
        boot_messages=True,
    ),
    AgentType.split_thread_agent: TypeSpec(
        base_tools=_CLASSIC_TOOLS,
        instructions=None,
        heartbeats=True,
        inner_thoughts=True,
        must_call_tool=True,
        base_rules="by_model",
        boot_messages=True,
    ),
    AgentType.react_agent: TypeSpec(
        base_tools=(),
        instructions=instructions.REACT,
        heartbeats=True,
        inner_thoughts=True,
        must_call_tool=False,  # it has no tool to speak with
        base_rules="by_model",
        boot_messages=True,
        memory_in_prompt=False,
    ),
    AgentType.workflow_agent: TypeSpec(
        base_tools=(),
        instructions=instructions.WORKFLOW,
        heartbeats=True,
        inner_thoughts=True,
        must_call_tool=True,
        base_rules="by_model",
        boot_messages=False,  # it would see them with its first task and with no other
        memory_in_prompt=False,
        one_turn_memory=True,
    ),
    AgentType.sleeptime_agent: TypeSpec(
        base_tools=("memory_replace", "memory_insert", "memory_rethink", "memory_finish_edits"),
        instructions=instructions.SLEEPTIME,
        heartbeats=False,
        inner_thoughts=True,
        must_call_tool=False,
        base_rules="always",
        boot_messages=False,
        numbered_lines=True,
        exits=frozenset({"memory_finish_edits"}),
    ),
    AgentType.voice_convo_agent: TypeSpec(
        base_tools=("send_message", "search_memory"),
        instructions=instructions.VOICE,
        heartbeats=True,
        inner_thoughts=True,
        must_call_tool=True,
        base_rules="by_model",
        boot_messages=True,
        needs_companion=True,
    ),
    AgentType.voice_sleeptime_agent: TypeSpec(
        base_tools=("store_memories", "rethink_user_memory", "finish_rethinking_memory"),
        instructions=instructions.VOICE_SLEEPTIME,
        heartbeats=False,
        inner_thoughts=True,
        must_call_tool=True,
        base_rules="by_model",
        boot_messages=False,
        exits=frozenset({"finish_rethinking_memory"}),
    ),
}

COMPANIONS = (AgentType.sleeptime_agent, AgentType.voice_sleeptime_agent)
WATCHED_TOOLS = ("send_message", "conversation_search", "archival_memory_search")  # of one that has a companion
EXITS = frozenset({"send_message", "send_message_to_agent_async", "memory_finish_edits"})


_NATIVE = {kind: replace(spec, inner_thoughts=False) for kind, spec in TYPES.items()}


def spec_of(agent_type: AgentType) -> TypeSpec:
    return TYPES[agent_type]


def spec_for(agent: Agent) -> TypeSpec:
    """The type as the model is prompted: one that thinks by itself, or that shall not think, is not asked for its
    thoughts in tool calls."""
    silent = agent.model.inner_thoughts is False or thinks_by_itself(agent.model)
    return (_NATIVE if silent else TYPES)[agent.agent_type]


def thoughts_of(agent: Agent) -> Thoughts:
    """The way in which the thoughts of the agent's model arrive."""
    if not TYPES[agent.agent_type].inner_thoughts:
        return Thoughts.plain
    if spec_for(agent).inner_thoughts:
        return Thoughts.in_calls
    return Thoughts.native if thinks_by_itself(agent.model) else Thoughts.off


def thinks_by_itself(model: ModelChoice) -> bool:
    """Checks whether the model reasons without being asked in its tool calls."""
    return model.thinks or handle_reasons(model.handle)


def instructions_for(agent_type: AgentType, given: str | None) -> str:
    """The instructions of a new agent. Raises InvalidInput for a type that has none of its own when none are given."""
    words = TYPES[agent_type].instructions if given is None else given
    if words is None:
        raise InvalidInput("system", f"a {agent_type} has no default system prompt; give one")
    return words
