"""Usage of an agent's context window: each part of the prompt, with its estimated number of tokens."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

from kelpie.agent.definition import loaded_agent
from kelpie.agent.prompt import rendering as prompt_rendering
from kelpie.agent.prompt.agent_types import spec_for
from kelpie.agent.prompt.context import CONTEXT_ROWS_MAX
from kelpie.agent.prompt.directory_prompt import render_directories
from kelpie.agent.prompt.wellformed_history import weight
from kelpie.agent.tool_calls.turn_end import exits_of
from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.messages import Message, Role
from kelpie.core.ids import AgentId
from kelpie.core.time import Micros
from kelpie.core.token_estimates import estimate, tokens_in
from kelpie.llm.provider.interface import ToolSchema
from kelpie.storage.archives import passages
from kelpie.storage.conversations import contexts, messages
from kelpie.world.database import Tx


@dataclass(frozen=True)
class WindowUsage:
    """The parts of the next prompt. `history` begins with the system message as it is stored."""

    agent: Agent
    memory: str
    directories: str
    facts: str
    tools: tuple[ToolSchema, ...]
    history: tuple[Message, ...]
    said: int  # messages ever, in the context or not
    archived: int  # passages in its archive

    @property
    def window(self) -> int:
        return self.agent.model.context_window

    @cached_property
    def history_tokens(self) -> int:
        """Tokens of the messages; the system message is counted by its parts, a summary by itself."""
        spec = spec_for(self.agent)
        said = (m for m in self.history if m.role not in (Role.system, Role.summary))
        return sum(tokens_in(weight(prompt_rendering.prepare(m, spec).message)) for m in said)

    @cached_property
    def summary(self) -> str | None:
        """The summary of messages that have left the context."""
        told = [message.text for message in self.history if message.role is Role.summary]
        return "\n".join(told) if told else None

    @property
    def summary_tokens(self) -> int:
        return estimate(self.summary or "")

    @cached_property
    def functions(self) -> list[dict[str, Any]]:
        """The tools as the model is offered them."""
        return [
            {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters), "strict": None}
            for tool in self.tools
        ]

    @cached_property
    def tool_tokens(self) -> int:
        return sum(estimate(orjson.dumps(told).decode()) for told in self.functions)

    @property
    def tokens(self) -> int:
        parts = (self.agent.system, self.memory, self.directories, self.facts)
        return sum(map(estimate, parts)) + self.tool_tokens + self.summary_tokens + self.history_tokens


def of_agent(tx: Tx, agent_id: AgentId, conversation: str, now: Micros) -> WindowUsage:
    """The overview of one of an agent's conversations, in a bounded number of statements. Raises NotFound."""
    loaded = loaded_agent.load_thread(tx, agent_id, conversation)
    agent = loaded.agent
    memory, facts = prompt_rendering.memory_parts(agent, loaded.blocks, now, conversation)
    spec = spec_for(agent)
    return WindowUsage(
        agent=agent,
        memory=memory,
        directories=render_directories(agent, loaded.directories),
        facts=facts,
        tools=prompt_rendering.tool_schemas(loaded.tools, spec, exits_of(spec, agent.tool_rules)),
        history=tuple(contexts.newest(tx, agent_id, conversation, CONTEXT_ROWS_MAX)),
        said=messages.count_of_agent(tx, agent_id),
        archived=passages.count_of_agent(tx, agent_id),
    )
