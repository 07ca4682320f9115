"""Prompts for MCP clients: a person picks one, with an agent, and the client puts it into the conversation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kelpie.core.agents.agent import Include
from kelpie.core.errors import InvalidInput
from kelpie.server.mcp import agent_resources
from kelpie.server.mcp.peer import Peer
from kelpie.server.mcp.tool_definitions import SEND_MESSAGE

ARGUMENT_CHARS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class PromptDefinition:
    """A prompt; all of its arguments are required. One that `writes` needs a key with that scope."""

    name: str
    title: str
    description: str
    arguments: Mapping[str, str]  # descriptions by name
    writes: bool = False

    def wire(self) -> dict[str, Any]:
        given = [{"name": name, "description": text, "required": True} for name, text in self.arguments.items()]
        return {"name": self.name, "title": self.title, "description": self.description, "arguments": given}


_AGENT = "Id or name of the agent."
AGENT_MEMORY = PromptDefinition(
    "agent_memory", "Memory of an agent", "Brings what an agent remembers into this conversation.", {"agent": _AGENT}
)
ASK_AGENT = PromptDefinition(
    "ask_agent",
    "Ask an agent",
    "Sends a message to an agent and brings its reply into this conversation.",
    {"agent": _AGENT, "message": "What to say to the agent."},
    writes=True,
)
DEFINITIONS = (AGENT_MEMORY, ASK_AGENT)


async def messages(peer: Peer, prompt: PromptDefinition, arguments: Mapping[str, str]) -> list[dict[str, Any]]:
    """The messages of a prompt. Raises KelpieError for an agent that is not there or not the caller's."""
    agent_id = await peer.agent(arguments["agent"])
    peer.require("GET", f"/v1/agents/{agent_id}")
    name = (await peer.api.agents.get(agent_id, Include())).agent.name
    if prompt is ASK_AGENT:
        asked = f"Send this message to the agent '{name}' ({agent_id}) with the tool {SEND_MESSAGE.name}, and tell me "
        return [_said(f"{asked}its reply:\n\n{arguments['message']}")]
    read = await agent_resources.read(peer, f"kelpie://agents/{agent_id}")
    return [
        _said(f"The agent '{name}' remembers what follows. Take it into account in our conversation."),
        {"role": "user", "content": {"type": "resource", "resource": read["contents"][0]}},
    ]


def checked(prompt: PromptDefinition, given: Any) -> dict[str, str]:
    """The arguments of a prompt. Raises InvalidInput."""
    arguments = given if isinstance(given, Mapping) else {}
    for name in prompt.arguments:
        value = arguments.get(name)
        if not isinstance(value, str) or not value.strip() or len(value) > ARGUMENT_CHARS_MAX:
            raise InvalidInput(f"arguments.{name}", f"must be a text of up to {ARGUMENT_CHARS_MAX} characters")
    return {name: arguments[name] for name in prompt.arguments}


def _said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": {"type": "text", "text": text}}
