"""Creation of an agent: from the client's request to the rows that are written, with every default in one place.

Pure but for looking models up; ids and times are passed in.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from kelpie.agent.definition import compaction_settings
from kelpie.agent.prompt import default_instructions
from kelpie.agent.prompt.agent_types import COMPANIONS, EXITS, SPEAK, WATCHED_TOOLS, TypeSpec, instructions_for, spec_of
from kelpie.agent.prompt.rendering import packed_event
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.agents.agent import Agent, ModelChoice, NewAgent, Secret, ToolRule
from kelpie.core.conversations.messages import Message, NewMessage, Reasoning, Role, Text, ToolCall, ToolReturn
from kelpie.core.dates.time_zones import check_timezone
from kelpie.core.errors import Conflict, InvalidInput
from kelpie.core.ids import AgentId, BlockId, MessageId, SecretId
from kelpie.core.memory.blocks import DEFAULT_LIMIT, Block, NewBlock
from kelpie.core.time import Micros
from kelpie.core.tools import environment_variables
from kelpie.core.tools.tools import Tool, ToolType
from kelpie.llm.catalog.thinking_defaults import BUDGET_TOKENS_MIN
from kelpie.llm.provider.interface import ModelInfo
from kelpie.tools.builtin import MULTI_AGENT
from kelpie.world.ids import Ids
from kelpie.world.lazy_imports import lazily

with lazily:
    from kelpie.memory import blocks as _blocks

CONTEXT_WINDOW_DEFAULT_MAX = 128_000
NAME_CHARS_MAX = 1_000
SUBAGENT_TAG = "role:subagent"
SENT = "Sent message successfully."
_JOINERS = "\u00a0\u200c\u200d\u3000"  # invisible, but parts of names in many languages and of emoji
_NO_STRICT_TOOLS = frozenset({"anthropic", "kelpie", "ollama"})  # provider types whose wire format has no such setting
_BASE_TYPES = frozenset({ToolType.letta_core, ToolType.letta_memory_core, ToolType.letta_sleeptime_core})
_NO_BASE_RULES = ("claude-4-sonnet", "claude-3-5-sonnet", "gpt-5", "gemini-2.5-pro")
# context window up to -> (files open at once, characters of each that are shown)
_FILE_WINDOWS = ((8_000, 3, 5_000), (32_000, 5, 15_000), (128_000, 10, 25_000), (200_000, 10, 40_000))
_COMMON_SETTINGS = frozenset(
    {"max_output_tokens", "temperature", "parallel_tool_calls", "response_format", "fallbacks"}
)
_FILE_WINDOW_LARGEST = (15, 40_000)


def check_name(name: str) -> str:
    """Raises InvalidInput for a name that is too long or could not be shown."""
    if len(name) > NAME_CHARS_MAX:
        raise InvalidInput("name", f"has {len(name)} characters; use at most {NAME_CHARS_MAX}")
    if not all(char.isprintable() or char in _JOINERS for char in name):
        raise InvalidInput("name", "contains a line break or another control character; remove it")
    return name


def choose_model(info: ModelInfo, new: Mapping[str, Any], window_max: int = CONTEXT_WINDOW_DEFAULT_MAX) -> ModelChoice:
    """Model choice of an agent: the client's settings over the model's own. Raises InvalidInput."""
    settings = {**info.settings, **_applicable_settings(info, new.get("model_settings") or {})}
    settings |= _switched_thinking(info, new)
    window = new.get("context_window_limit") or min(info.context_window, window_max)
    if window < 1:
        raise InvalidInput("context_window_limit", "must be a positive number of tokens")
    limit = settings.get("max_output_tokens") or new.get("max_tokens") or info.max_tokens
    parallel = settings.get("parallel_tool_calls", new.get("parallel_tool_calls"))
    return ModelChoice(
        handle=info.handle,
        context_window=window,
        max_tokens=limit,
        temperature=settings.get("temperature", info.temperature),
        parallel_tool_calls=bool(parallel),
        settings=settings,
        inner_thoughts=False if new.get("reasoning") is False else new.get("inner_thoughts"),
    )


def _switched_thinking(info: ModelInfo, new: Mapping[str, Any]) -> dict[str, Any]:
    """The thinking setting by Letta's older switches, for models that have one. Raises InvalidInput."""
    if "thinking" not in info.settings:
        return {}
    budget = new.get("max_reasoning_tokens")
    if new.get("reasoning") is False:
        return {"thinking": {"type": "disabled"}}
    if not budget or not info.reasoning:
        return {}
    if budget < BUDGET_TOKENS_MIN:
        raise InvalidInput("max_reasoning_tokens", f"{info.handle} needs at least {BUDGET_TOKENS_MIN}")
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _applicable_settings(info: ModelInfo, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that this model takes: all if they are for its own provider, or for OpenAI and its provider has the same
    API; otherwise only those that all providers have."""
    meant = given.get("provider_type", info.provider_type)
    own = meant == info.provider_type or (meant == "openai" and info.provider_type != "anthropic")
    left_out = {"provider_type", "strict"} if info.provider_type in _NO_STRICT_TOOLS else {"provider_type"}
    return {name: value for name, value in given.items() if name not in left_out and (own or name in _COMMON_SETTINGS)}


def file_window(context_window: int) -> tuple[int, int]:
    return next(((n, chars) for limit, n, chars in _FILE_WINDOWS if context_window <= limit), _FILE_WINDOW_LARGEST)


def wants_base_rules(new: NewAgent, spec: TypeSpec, model: ModelChoice) -> bool:
    """True if the client asks for base rules; else if the type does, unless its model is known to work without."""
    if new.include_base_tool_rules is not None:
        return new.include_base_tool_rules
    name = model.handle.lower()
    manages = "mini" not in name and any(known in name for known in _NO_BASE_RULES)
    # A client that gives rules gets the rest of them; an agent with a companion speaks by tool, which ends its turn.
    by_model = spec.base_rules == "by_model" or bool(new.tool_rules) or bool(new.enable_sleeptime)
    return spec.base_rules == "always" or (by_model and not manages)


def own_tools(new: NewAgent, spec: TypeSpec) -> tuple[str, ...]:
    """Names of the tools that the type gives an agent, beside those that the client attaches."""
    watched = new.enable_sleeptime and not spec.needs_companion and new.agent_type not in COMPANIONS
    own = (WATCHED_TOOLS if watched else spec.base_tools) if new.include_base_tools else ()
    return (*own, *(MULTI_AGENT if new.include_multi_agent_tools else ()))


def base_rules(tools: Sequence[Tool]) -> tuple[ToolRule, ...]:
    """Rules of the base tools: those that end a turn, and those that continue it."""
    return tuple(
        ToolRule("exit_loop" if tool.name in EXITS else "continue_loop", tool.name)
        for tool in tools
        if tool.tool_type in _BASE_TYPES or tool.name in EXITS
    )


def distinct_rules(rules: Sequence[ToolRule]) -> tuple[ToolRule, ...]:
    """The rules, each once: equal ones have the same type, tool and options; the order of children is free."""
    found: dict[bytes, ToolRule] = {}
    for rule in rules:
        options = dict(rule.options)
        if "children" in options:
            options["children"] = sorted(set(options["children"]))
        key = orjson.dumps((rule.type, rule.tool_name, options), option=orjson.OPT_SORT_KEYS)
        found.setdefault(key, rule)
    return tuple(found.values())


def rules_for(new: NewAgent, spec: TypeSpec, tools: Sequence[Tool], model: ModelChoice) -> tuple[ToolRule, ...]:
    rules = list(distinct_rules(new.tool_rules or ()))
    base = base_rules(tools) if wants_base_rules(new, spec, model) else ()
    approvals = tuple(ToolRule("requires_approval", t.name) for t in tools if t.default_requires_approval)
    for rule in (*base, *approvals):
        if not any(r.type == rule.type and r.tool_name == rule.tool_name for r in rules):
            rules.append(rule)
    return tuple(rules)


def _instructions(new: NewAgent, spec: TypeSpec) -> str:
    """The client's instructions, or those of the type; a plain-text type that speaks by tool needs others."""
    if new.system is None and not spec.speaks_by_tool and SPEAK in own_tools(new, spec):
        return default_instructions.WATCHED
    return instructions_for(new.agent_type, new.system)


def make_agent(
    new: NewAgent,
    agent_id: AgentId,
    model: ModelChoice,
    tools: Sequence[Tool],
    now: Micros,
    caller: Caller = DEFAULT_CALLER,
) -> Agent:
    """The agent's row. Raises InvalidInput."""
    spec = spec_of(new.agent_type)
    if spec.needs_companion and not new.enable_sleeptime:
        raise InvalidInput("enable_sleeptime", f"must be true for a {new.agent_type}")
    files, chars = file_window(model.context_window)
    return Agent(
        id=agent_id,
        name=check_name(new.name) if new.name is not None else f"Agent {agent_id.uuid[-8:]}",
        agent_type=new.agent_type,
        system=_instructions(new, spec),
        model=model,
        created_at=now,
        updated_at=now,
        embedding=new.embedding,
        embedding_chunk_size=new.embedding_chunk_size or 300,
        description=new.description,
        metadata=new.metadata,
        tool_rules=rules_for(new, spec, tools, model),
        tags=tuple(sorted(set(new.tags))),
        timezone=check_timezone(new.timezone or "UTC"),
        hidden=True if SUBAGENT_TAG in new.tags else new.hidden,
        project_id=new.project_id,
        template_id=new.template_id,
        base_template_id=new.base_template_id,
        deployment_id=new.deployment_id,
        entity_id=new.entity_id,
        compaction_settings=compaction_settings.made(new.compaction_settings, model.handle),
        response_format=new.response_format,
        budget=new.budget,
        facts=new.facts,
        permits=new.permits,
        quota=new.quota,
        message_buffer_autoclear=new.message_buffer_autoclear or spec.one_turn_memory,
        enable_sleeptime=new.enable_sleeptime,
        max_files_open=new.max_files_open or files,
        per_file_view_window_char_limit=new.per_file_view_window_char_limit or chars,
        organization_id=caller.organization_id,
        created_by_id=caller.user_id,
        last_updated_by_id=caller.user_id,
    )


def make_blocks(
    new: Sequence[NewBlock], ids: Ids, now: Micros, limit: int = DEFAULT_LIMIT, caller: Caller = DEFAULT_CALLER
) -> tuple[Block, ...]:
    """The blocks an agent is made with. Raises Conflict for two of one label."""
    for label, count in Counter(block.label for block in new).items():
        if count > 1:
            raise Conflict(f"memory_blocks: two blocks have the label '{label}'; each label may occur only once")
    # A microsecond apart, because blocks are shown oldest first: so they stay in the order they were given in.
    user, organization = caller.user_id, caller.organization_id
    return tuple(
        _blocks.make(block, ids.new(BlockId), now + i, user, organization, limit=limit) for i, block in enumerate(new)
    )


def make_secrets(secrets: Mapping[str, str], ids: Ids, now: Micros) -> tuple[Secret, ...]:
    """Raises InvalidInput for what no environment can hold."""
    environment_variables.check_all("secrets", secrets)
    return tuple(Secret(ids.new(SecretId), key, value, now, now) for key, value in sorted(secrets.items()))


def first_messages(
    agent_id: AgentId, spec: TypeSpec, given: Sequence[NewMessage] | None, ids: Ids, now: Micros
) -> tuple[Message, ...]:
    """First messages of a new or reset agent: an empty system message, then the given messages or its type's own."""
    rows = [Message(ids.new(MessageId), agent_id, Role.system, now)]
    if given is not None:
        for message in given:
            rows += _given_rows(agent_id, message, spec, ids, now)
    elif spec.boot_messages:
        rows += _boot(agent_id, spec, ids, now)
        login = packed_event("login", now, last_login="Never (first login)")
        rows.append(Message(ids.new(MessageId), agent_id, Role.user, now, (Text(login),)))
    return tuple(rows)


def _boot(agent_id: AgentId, spec: TypeSpec, ids: Ids, now: Micros) -> list[Message]:
    """Shows the model how its type answers: never with a tool that it does not have."""
    thought, said = Reasoning(default_instructions.BOOT_THOUGHT, native=False), default_instructions.BOOT_MESSAGE
    if spec.speaks_by_tool:
        return _spoken(agent_id, said, (thought,), ids, now)
    return [Message(ids.new(MessageId), agent_id, Role.assistant, now, (Text(said),))]


def _given_rows(agent_id: AgentId, message: NewMessage, spec: TypeSpec, ids: Ids, now: Micros) -> list[Message]:
    if message.role is Role.assistant and spec.speaks_by_tool:
        text = "\n".join(part.text for part in message.content if isinstance(part, Text))
        return _spoken(agent_id, text, (), ids, now)
    return [Message(ids.new(MessageId), agent_id, message.role, now, message.content, name=message.name)]


def _spoken(agent_id: AgentId, text: str, thoughts: tuple[Reasoning, ...], ids: Ids, now: Micros) -> list[Message]:
    """An answer given by tool, with its result, as if the agent had said it."""
    call = ToolCall(f"call_{ids.uuid()[:8]}", SPEAK, orjson.dumps({"message": text}).decode())
    result = ToolReturn(call.id, call.name, True, SENT)
    return [
        Message(ids.new(MessageId), agent_id, Role.assistant, now, thoughts, (call,)),
        Message(ids.new(MessageId), agent_id, Role.tool, now, tool_returns=(result,), name=call.name),
    ]
