"""Prompt of the model: instructions, memory, history, tools. Pure functions over the data of the activation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from kelpie.agent.prompt.agent_types import TypeSpec, spec_of
from kelpie.agent.prompt.directory_prompt import render_directories
from kelpie.core.agents.agent import Agent
from kelpie.core.agents.turn_overrides import Skill
from kelpie.core.conversations.messages import Message, Reasoning, Role, ToolCall, ToolReturn
from kelpie.core.files.files import Directory
from kelpie.core.ids import DEFAULT_CONVERSATION
from kelpie.core.memory.blocks import Block
from kelpie.core.time import Micros, as_datetime
from kelpie.core.tools.tools import Tool
from kelpie.llm.provider.interface import PreparedMessage, ToolSchema
from kelpie.memory.block_prompt import render_blocks
from kelpie.tools.builtin.pause import is_pause

THINKING = "thinking"
HEARTBEAT = "request_heartbeat"
_MEMORY_PLACE = "{CORE_MEMORY}"
_COUNTS_LINES = frozenset({"anthropic"})  # providers whose models use line numbers well


def system_text(
    agent: Agent, blocks: Sequence[Block], now: Micros, conversation: str = "", directories: Sequence[Directory] = ()
) -> str:
    """Instructions, memory and open files as one text. It changes with these, settings and the day, not with every
    call."""
    blocks_shown, facts = memory_parts(agent, blocks, now, conversation)
    memory = "\n\n".join(part for part in (blocks_shown, render_directories(agent, directories), facts) if part)
    if _MEMORY_PLACE in agent.system:
        return agent.system.replace(_MEMORY_PLACE, memory)
    return f"{agent.system}\n\n{memory}"


def with_skills(text: str, skills: Sequence[Skill]) -> str:
    """The text with what the client's surroundings know how to do."""
    if not skills:
        return text
    lines = [f"- {skill.name}: {skill.description} (described in {skill.location})" for skill in skills]
    return "\n".join([text, "", "<available_skills>", *lines, "</available_skills>"])


def with_instructions(text: str, instructions: str | None) -> str:
    """The text with what the client asks of the agent for this turn."""
    if not instructions:
        return text
    return "\n".join([text, "", "<client_instructions>", instructions, "</client_instructions>"])


def memory_parts(agent: Agent, blocks: Sequence[Block], now: Micros, conversation: str = "") -> tuple[str, str]:
    """The blocks as text, and a note with the ids of agent and conversation and the date."""
    spec = spec_of(agent.agent_type)
    numbered = spec.numbered_lines and agent.model.handle.partition("/")[0] in _COUNTS_LINES
    memory = render_blocks(blocks, numbered=numbered) if spec.memory_in_prompt else ""
    lines = (
        f"- AGENT_ID: {agent.id}",
        f"- CONVERSATION_ID: {conversation or DEFAULT_CONVERSATION}",
        f"- Today: {as_datetime(now).strftime('%Y-%m-%d')} (UTC)",
    )
    return memory, "\n".join(("<memory_metadata>", *lines, "</memory_metadata>"))


def prepare(message: Message, spec: TypeSpec) -> PreparedMessage:
    """A stored message in the form the model is shown it."""
    if message.role is Role.tool:
        shown = tuple(replace(r, text=packed_return(r, message.created_at)) for r in message.tool_returns)
        return PreparedMessage(replace(message, tool_returns=shown))
    if message.is_reply and message.tool_calls:
        calls = tuple(_shown_call(call, message, spec) for call in message.tool_calls)
        content = message.content
        if spec.inner_thoughts:
            content = tuple(p for p in content if not (isinstance(p, Reasoning) and not p.native))
        return PreparedMessage(replace(message, role=Role.assistant, content=content, tool_calls=calls))
    return PreparedMessage(message)


def _shown_call(call: ToolCall, message: Message, spec: TypeSpec) -> ToolCall:
    """A call with arguments that are sure to be a JSON object, and with the thoughts that came with it."""
    arguments = read_object(call.arguments)
    if arguments is None:
        return replace(call, arguments="{}")
    thought = next((p.text for p in message.content if isinstance(p, Reasoning) and not p.native), None)
    if spec.inner_thoughts and thought is not None:
        return replace(call, arguments=orjson.dumps({THINKING: thought, **arguments}).decode())
    return call


def read_object(text: str) -> dict[str, Any] | None:
    """The JSON object in a text, or None. An empty text is the empty object: some models send that."""
    if not text.strip():
        return {}
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]


def packed_return(result: ToolReturn, at: Micros) -> str:
    """A tool's result as the model reads it; it says so when a person let a call run with other arguments."""
    changed = {} if result.ran_with is None else {"ran_with_arguments_changed_by_a_person": result.ran_with}
    return orjson.dumps(
        {"status": "OK" if result.ok else "Failed", "message": result.text, **changed, "time": shown_time(at)},
        option=orjson.OPT_INDENT_2,
    ).decode()


def shown_time(at: Micros) -> str:
    return as_datetime(at).strftime("%Y-%m-%d %I:%M:%S %p UTC+0000")


def packed_event(kind: str, at: Micros, **fields: str) -> str:
    """A message the server itself writes into the history, marked as such."""
    return orjson.dumps({"type": kind, **fields, "time": shown_time(at)}, option=orjson.OPT_INDENT_2).decode()


def tool_schemas(tools: Sequence[Tool], spec: TypeSpec, exits: frozenset[str]) -> tuple[ToolSchema, ...]:
    """The tools as the model is offered them; `exits` are those that end a turn."""
    return tuple(_schema(tool, spec, tool.name in exits or is_pause(tool)) for tool in tools)


def _schema(tool: Tool, spec: TypeSpec, ends_turn: bool) -> ToolSchema:
    description = tool.json_schema.get("description") or tool.description or ""
    parameters: Mapping[str, Any] = tool.json_schema.get("parameters") or {"type": "object", "properties": {}}
    if not (spec.inner_thoughts or spec.heartbeats):
        return ToolSchema(tool.name, description, parameters)
    properties: dict[str, Any] = {}
    required: list[str] = []
    if spec.inner_thoughts:
        properties[THINKING] = {"type": "string", "description": "Your private thoughts before this call."}
        required.append(THINKING)
    properties |= parameters.get("properties") or {}
    required += parameters.get("required") or []
    if spec.heartbeats and not ends_turn:
        properties[HEARTBEAT] = {
            "type": "boolean",
            "description": "True to receive the result of this call and continue; false to end your turn after it.",
        }
        required.append(HEARTBEAT)
    return ToolSchema(tool.name, description, {**parameters, "properties": properties, "required": required})
