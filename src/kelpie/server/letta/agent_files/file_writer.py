"""Writing of an agent file as Letta writes it: ids of the file instead of the server's, no secrets, indented JSON.

The text is built piece by piece, because the messages of an agent can be many.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from kelpie.agent.definition import compaction_settings
from kelpie.agent.prompt.agent_types import spec_of
from kelpie.core.agents.agent import Agent
from kelpie.core.agents.agent_file import Document, Exported, ExportedAgent
from kelpie.core.agents.groups import Group, ManagerType
from kelpie.core.conversations.messages import Message
from kelpie.core.memory.blocks import Block
from kelpie.core.time import as_datetime
from kelpie.core.tools.mcp_servers import McpServer, McpServerType
from kelpie.core.tools.tools import Tool
from kelpie.server.letta.agent_files import folder_documents
from kelpie.server.letta.agent_files.message_document import message_document
from kelpie.server.letta.agents.budget_body import budget_shape
from kelpie.server.letta.agents.fact_settings_body import fact_settings_shape
from kelpie.server.letta.agents.permission_body import limits_shape, permits_shape
from kelpie.server.letta.agents.shape import Facts, llm_config, rule_shape
from kelpie.server.letta.blocks.shape import block_shape
from kelpie.server.letta.models.shape import embedding_config, endpoint_type
from kelpie.server.letta.tools.shape import tool_shape

REVISION = "1c28e167b74f"  # the schema of Letta 0.16.8, whose format this is

_BLOCK_LEFT_OUT = ("created_by_id", "last_updated_by_id")
_MANAGER_FIELDS = {
    ManagerType.round_robin: ("max_turns",),
    ManagerType.supervisor: ("manager_agent_id",),
    ManagerType.dynamic: ("manager_agent_id", "termination_token", "max_turns"),
    ManagerType.sleeptime: ("manager_agent_id", "sleeptime_agent_frequency"),
    ManagerType.voice_sleeptime: (
        "manager_agent_id",
        "max_message_buffer_length",
        "min_message_buffer_length",
    ),
}


class References:
    """Ids of the file, numbered by kind in the order in which they are first asked for."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, str]] = {}

    def of(self, kind: str, real: str) -> str:
        known = self._known.setdefault(kind, {})
        return known.setdefault(real, f"{kind}-{len(known)}")

    def known(self, kind: str) -> Mapping[str, str]:
        return self._known.get(kind, {})


class LettaFileWriter:
    """One file."""

    def __init__(self, facts: Facts, skills: Sequence[Document] = ()) -> None:
        self._facts = facts
        self._skills = skills
        self._references = References()
        self._pieces: list[bytes] = [b'{\n  "agents": [']
        self._size = 0
        self._exported: Exported | None = None
        self._agent: ExportedAgent | None = None
        self._messages = 0
        self._model = ""
        self._thoughts_in_calls = False

    @property
    def size(self) -> int:
        return self._size

    def begin(self, exported: Exported) -> None:
        self._exported = exported
        for each in exported.agents:
            self._references.of("agent", each.view.agent.id)
        for group in exported.groups:
            self._references.of("group", group.id)

    def agent(self, agent: ExportedAgent) -> None:
        self._close_agent()
        separator = b"," if self._agent is not None else b""
        self._agent, self._messages = agent, 0
        row = agent.view.agent
        shown = self._agent_document(agent)
        self._model = shown["llm_config"]["model"]
        self._thoughts_in_calls = spec_of(row.agent_type).inner_thoughts
        self._add(separator + b"\n    " + _indented(shown, 4).removesuffix(b"\n    }") + b',\n      "messages": [')

    def messages(self, some: Sequence[Message]) -> None:
        assert self._agent is not None
        found: list[bytes] = []
        for message in some:
            document = message_document(
                message,
                self._references.of("message", message.id),
                self._references.of("agent", message.agent_id),
                self._model,
                self._references.known("group"),
                thoughts_in_calls=self._thoughts_in_calls,
            )
            found.append(b"\n        " + _indented(document, 8))
        if found:
            self._add((b"," if self._messages else b"") + b",".join(found))
            self._messages += len(found)

    def end(self) -> list[bytes]:
        self._close_agent()
        assert self._exported is not None
        rest = _indented(self._rest(self._exported), 0).removeprefix(b"{")
        self._add(b"\n  ]," + rest + b"\n")
        return self._pieces

    def _close_agent(self) -> None:
        """The messages that the model sees come after all of them, because then their ids are known."""
        if self._agent is not None:
            known = self._references.known("message")
            context = [known[each] for each in self._agent.context if each in known]
            end = b"\n      ]" if self._messages else b"]"
            self._add(end + b',\n      "in_context_message_ids": ' + _indented(context, 6) + b"\n    }")

    def _add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)

    # --- parts ---------------------------------------------------------------------------------------------------

    def _agent_document(self, exported: ExportedAgent) -> dict[str, Any]:
        agent, of = exported.view.agent, self._references.of
        known = self._facts.model(agent.model.handle)
        kept = exported.kept
        tools = [of("tool", tool.id) for tool in exported.tools] + [of("tool", _kept_tool(tool)) for tool in kept.tools]
        sources = [of("source", folder.id) for folder in exported.view.folders]
        secrets = {secret.key: "" for secret in exported.view.secrets}
        settings = {name: value for name, value in agent.model.settings.items() if value is not None}
        kind = endpoint_type(known, agent.model.handle.partition("/")[0])
        offered: Mapping[str, Any] = getattr(known, "settings", {})
        return {
            "name": agent.name,
            "memory_blocks": [],
            "tools": [],
            "tool_ids": tools,
            "source_ids": sources,
            "folder_ids": None,
            "block_ids": [of("block", block.id) for block in exported.blocks],
            "tool_rules": [rule_shape(rule) for rule in agent.tool_rules],
            "tags": list(agent.tags),
            "system": agent.system,
            "agent_type": agent.agent_type,
            "initial_message_sequence": None,
            "include_base_tools": False,
            "include_multi_agent_tools": False,
            "include_base_tool_rules": False,
            "include_default_source": False,
            "description": agent.description,
            "metadata": None if agent.metadata is None else dict(agent.metadata),
            "llm_config": llm_config(agent, known),
            "embedding_config": embedding_config(agent.embedding, agent.embedding_chunk_size, self._facts.embeddings),
            "model": None,
            "embedding": None,
            "model_settings": None if settings == dict(offered) else {"provider_type": kind, **settings},
            "compaction_settings": _own_compaction(agent),
            "context_window_limit": None,
            "embedding_chunk_size": None,
            "max_tokens": None,
            "max_reasoning_tokens": None,
            "enable_reasoner": False,
            "reasoning": None,
            "from_template": None,
            "template": False,
            "project": None,
            "tool_exec_environment_variables": secrets,
            "secrets": secrets or None,
            "memory_variables": None,
            "project_id": None,
            "template_id": None,
            "base_template_id": None,
            "identity_ids": None,
            "message_buffer_autoclear": agent.message_buffer_autoclear,
            "enable_sleeptime": False,
            "response_format": None if agent.response_format is None else dict(agent.response_format),
            "timezone": agent.timezone,
            "max_files_open": agent.max_files_open,
            "per_file_view_window_char_limit": agent.per_file_view_window_char_limit,
            "hidden": agent.hidden,
            "parallel_tool_calls": None,
            **_kelpie_fields(agent),
            "id": of("agent", agent.id),
            "files_agents": [folder_documents.view_document(view, agent.id, of) for view in exported.files],
            "group_ids": [of("group", group.id) for group in self._led(agent)],
        }

    def _led(self, agent: Agent) -> list[Group]:
        assert self._exported is not None
        return [group for group in self._exported.groups if group.manager.agent_id == agent.id]

    def _rest(self, exported: Exported) -> dict[str, Any]:
        """Everything after the agents. Tools are sorted by name and blocks by label, as in Letta."""
        agents, of = exported.agents, self._references.of
        blocks = {block.id: block for each in agents for block in each.blocks}
        remote = exported.remote_names
        tools = {tool.id: _tool_document(tool, remote.get(tool.id)) for each in agents for tool in each.tools}
        kept_tools = {_kept_tool(tool): dict(tool) for each in agents for tool in each.kept.tools}
        listed = [{"id": of("tool", key), **document} for key, document in (tools | kept_tools).items()]
        known = self._facts.embeddings
        servers = [_server_document(server, of("mcp_server", server.id)) for server in exported.servers]
        named = {server.server_name for server in exported.servers}
        for document in (each for agent in agents for each in agent.kept.servers):
            if (name := document["server_name"]) not in named:
                named.add(name)
                servers.append({"id": of("mcp_server", name), **document})
        skills = [_skill(each) for each in (*(each for agent in agents for each in agent.kept.skills), *self._skills)]
        return {
            "groups": [self._group(group, set(blocks)) for group in exported.groups],
            "blocks": [
                _block_document(block, of("block", block.id))
                for block in sorted(blocks.values(), key=lambda block: (block.label, block.id))
            ],
            "files": [each for folder in exported.folders for each in folder_documents.file_documents(folder, of)],
            "sources": [folder_documents.folder_document(each.folder, of, known) for each in exported.folders],
            "tools": sorted(listed, key=lambda tool: tool["name"]),
            "mcp_servers": servers,
            "skills": list({skill["name"]: skill for skill in skills}.values()),
            "metadata": {"revision_id": REVISION},
            "created_at": as_datetime(exported.at).isoformat(),
        }

    def _group(self, group: Group, blocks: set[str]) -> dict[str, Any]:
        manager, of = group.manager, self._references.of
        values = {
            "manager_agent_id": None if manager.agent_id is None else of("agent", manager.agent_id),
            "termination_token": manager.termination_token,
            "max_turns": manager.max_turns,
            "sleeptime_agent_frequency": manager.sleeptime_agent_frequency,
            "max_message_buffer_length": manager.max_message_buffer_length,
            "min_message_buffer_length": manager.min_message_buffer_length,
        }
        fields = {name: values[name] for name in _MANAGER_FIELDS[manager.type]}
        return {
            "agent_ids": [of("agent", each) for each in group.agent_ids],
            "description": group.description,
            "manager_config": {"manager_type": manager.type, **fields},
            "project_id": None,
            "shared_block_ids": [of("block", each) for each in group.shared_block_ids if each in blocks],
            "hidden": group.hidden,
            "id": of("group", group.id),
        }


def _indented(value: Any, spaces: int) -> bytes:
    """JSON whose lines after the first begin so many spaces further right. No text in it holds a line break."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).replace(b"\n", b"\n" + b" " * spaces)


def _block_document(block: Block, reference: str) -> dict[str, Any]:
    shown = {name: value for name, value in block_shape(block).items() if name not in _BLOCK_LEFT_OUT}
    return {**shown, "project_id": None, "tags": list(block.tags) or None, "id": reference}


def _tool_document(tool: Tool, remote_name: str | None) -> dict[str, Any]:
    shown = {name: value for name, value in tool_shape(tool).items() if name not in ("id", "kelpie_sandbox")}
    sandbox = {"kelpie_sandbox": dict(tool.sandbox)} if tool.sandbox else {}
    remote = {"kelpie_remote_name": remote_name} if remote_name is not None else {}
    return {**shown, "project_id": None, **sandbox, **remote}


def _kept_tool(document: Document) -> str:
    """The key of a tool that this server lacks: it has no id here."""
    return f"kept {document['name']}"


def _server_document(server: McpServer, reference: str) -> dict[str, Any]:
    """A server without its token, headers and variables."""
    config = server.config
    stdio: dict[str, Any] | None = None
    if config.server_type is McpServerType.stdio:
        stdio = {
            "server_name": server.server_name,
            "type": "stdio",
            "command": config.command,
            "args": list(config.args),
        }
    return {
        "id": reference,
        "server_type": config.server_type,
        "server_name": server.server_name,
        "server_url": config.server_url,
        "stdio_config": stdio,
        "metadata_": {},
    }


def _skill(document: Document) -> dict[str, Any]:
    return {"name": document.get("name"), "files": document.get("files"), "source_url": document.get("source_url")}


def _own_compaction(agent: Agent) -> dict[str, Any] | None:
    """The settings of compaction that differ from those that every agent gets."""
    own = agent.compaction_settings
    default = compaction_settings.made(None, agent.model.handle)
    return None if own is None or own == default else dict(own)


def _kelpie_fields(agent: Agent) -> dict[str, Any]:
    """Settings that only Kelpie has, where they are set."""
    fields = {
        "kelpie_budget": None if agent.budget is None else budget_shape(agent.budget),
        "kelpie_permissions": None if agent.permits is None else permits_shape(agent.permits),
        "kelpie_limits": None if agent.quota is None else limits_shape(agent.quota),
        "kelpie_facts": None if agent.facts is None else fact_settings_shape(agent.facts),
    }
    return {name: value for name, value in fields.items() if value is not None}
