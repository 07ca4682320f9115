"""Reading of an agent file: from its JSON to the values that an import works with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import orjson
from pydantic import BaseModel, ValidationError

from kelpie.agent.prompt.agent_types import spec_of
from kelpie.core.agents.agent import AgentType, NewAgent
from kelpie.core.agents.agent_file import (
    AgentFile,
    FileAgent,
    FileBlock,
    FileGroup,
    FileServer,
    FileTool,
    MessageIds,
    member,
)
from kelpie.core.agents.groups import Manager, ManagerType
from kelpie.core.conversations.messages import Message
from kelpie.core.errors import InvalidInput
from kelpie.core.tools.mcp_servers import McpConfig, McpServerType
from kelpie.core.tools.tools import ToolType
from kelpie.server.letta.agent_files import file_pieces, folder_documents
from kelpie.server.letta.agent_files.message_document import MessageReader
from kelpie.server.letta.agents.body import CreateAgent, new_agent
from kelpie.server.letta.blocks.body import CreateBlock, new_block
from kelpie.server.letta.groups.body import CreateGroup
from kelpie.server.letta.models.body import LlmConfig, ModelSettings
from kelpie.server.letta.tools.body import CreateTool, new_tool

Row = Mapping[str, Any]
M = TypeVar("M", bound=BaseModel)

# Fields of an agent that are given to the new agent as to any other; the rest is about other parts of the file.
_AGENT_FIELDS = frozenset(
    {
        "name", "system", "agent_type", "description", "metadata", "llm_config", "embedding_config", "model",
        "embedding", "model_settings", "compaction_settings", "context_window_limit",
        "embedding_chunk_size", "max_tokens",
        "tool_rules", "tags", "tools", "memory_blocks", "tool_exec_environment_variables", "secrets", "project_id",
        "message_buffer_autoclear", "response_format", "timezone", "max_files_open", "per_file_view_window_char_limit",
        "hidden", "parallel_tool_calls", "include_base_tools", "include_multi_agent_tools", "kelpie_budget",
        "kelpie_facts", "kelpie_permissions", "kelpie_limits",
    }
)  # fmt: skip
_TOOL_FIELDS = (
    "source_code", "source_type", "description", "tags", "json_schema", "args_json_schema", "return_char_limit",
    "pip_requirements", "npm_requirements", "default_requires_approval", "enable_parallel_execution", "kelpie_sandbox",
)  # fmt: skip
# Of a block that a template made: a copy of it belongs to no deployment, and is not deleted with one.
_DEPLOYED = frozenset({"deployment_id", "entity_id", "template_id", "base_template_id"})
_SOURCE_TYPES = ("python", "typescript", "javascript", "json")
_DEFAULT_TEMPERATURE = 1.0  # Letta's, which every file names
_BACKGROUND = (ManagerType.sleeptime, ManagerType.voice_sleeptime)


def agent_file(answered: bytes) -> AgentFile:
    """The file that a worker returned in pieces. Raises InvalidInput."""
    pieces = list(file_pieces.split(answered))
    head: dict[str, Any] = orjson.loads(pieces[0])
    _check_links(head["files"], "files", "source_id")
    groups = tuple(_group(row, f"groups[{n}]") for n, row in enumerate(head["groups"]))
    watched = {group.leader for group in groups if group.manager.type in _BACKGROUND}
    agents = tuple(_agent(row, f"agents[{n}]", watched) for n, row in enumerate(head["agents"]))
    tools = tuple(_tool(row, f"tools[{n}]") for n, row in enumerate(head["tools"]))
    folders = tuple(folder_documents.folder(row, f"sources[{n}]") for n, row in enumerate(head["sources"]))
    files, notes = folder_documents.files(head["files"], folders)
    found = AgentFile(
        agents=agents,
        messages=_Messages(pieces[1:], [agent.new.agent_type for agent in agents]),
        blocks=tuple(_block(row, f"blocks[{n}]") for n, row in enumerate(head["blocks"])),
        tools=tools,
        servers=tuple(_server(row, f"mcp_servers[{n}]") for n, row in enumerate(head["mcp_servers"])),
        groups=groups,
        folders=folders,
        files=files,
        notes=(*notes, *head[file_pieces.NOTES]),
        skills=tuple(head["skills"]),
    )
    _check_references(found)
    return found


class _Messages:
    """The messages of a file, parsed piece by piece."""

    def __init__(self, pieces: Sequence[memoryview], types: Sequence[AgentType]) -> None:
        self._pieces = pieces
        self._types = types

    def of_agent(self, number: int, ids: MessageIds) -> Iterator[list[Message]]:
        thinks = spec_of(self._types[number]).inner_thoughts
        reader = MessageReader(ids, thoughts_in_calls=thinks, where=f"agents[{number}].messages")
        mark = b"[%d," % number
        for piece in self._pieces:
            if piece[: len(mark)] == mark:
                yield [reader.read(row) for row in orjson.loads(piece)[1]]


def _checked(model: type[M], given: Any, where: str) -> M:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(f"file.{where}.{path}".rstrip("."), first["msg"]) from None


def _agent(row: Row, where: str, watched: set[str | None]) -> FileAgent:
    given = {name: value for name, value in row.items() if name in _AGENT_FIELDS and value is not None}
    given.setdefault("include_base_tools", False)
    body = _checked(
        CreateAgent, given | {"enable_sleeptime": row["id"] in watched, "include_base_tool_rules": False}, where
    )
    try:
        new = new_agent(body)
    except InvalidInput as error:
        raise InvalidInput(f"file.{where}.{error.field}", error.remedy) from None
    if body.embedding_config is not None and row.get("embedding_chunk_size") is None:
        new = replace(new, embedding_chunk_size=body.embedding_config.embedding_chunk_size)
    if body.model_settings is not None:  # as they are, without the defaults that a client's request brings along
        settings = body.model_settings.model_dump(exclude_unset=True, exclude_none=True)
        new = replace(new, model_settings=settings)
    if body.llm_config is not None:
        new = _with_config(new, body.llm_config, row["llm_config"], f"{where}.llm_config")
    return FileAgent(
        reference=row["id"],
        new=replace(new, enable_sleeptime=new.enable_sleeptime or None),
        blocks=_references(row, "block_ids", where),
        tools=_references(row, "tool_ids", where),
        messages=tuple(row["message_references"]),
        context=_references(row, "in_context_message_ids", where),
        folders=tuple(dict.fromkeys((*_references(row, "source_ids", where), *_references(row, "folder_ids", where)))),
        open_files=folder_documents.open_files(row.get("files_agents"), where),
    )


def _with_config(new: NewAgent, config: LlmConfig, row: Row, where: str) -> NewAgent:
    """The settings of the model that only the old description of it has in a file. Raises InvalidInput."""
    settings: dict[str, Any] = dict(new.model_settings or {})
    if not settings:
        temperature = row.get("temperature")
        if isinstance(temperature, int | float) and temperature != _DEFAULT_TEMPERATURE:
            settings["temperature"] = float(temperature)
        for name in ("effort", "verbosity", "frequency_penalty", "response_format"):
            if row.get(name) is not None:
                settings[name] = row[name]
        if isinstance(row.get("reasoning_effort"), str):
            settings["reasoning"] = {"reasoning_effort": row["reasoning_effort"]}
        if row.get("strict") is True:
            settings["strict"] = True
        _checked(ModelSettings, {"provider_type": "openai", **settings}, where)  # they hold for any provider
    changes = config.reasoning_changes()
    return replace(
        new,
        model_settings=settings or None,
        reasoning=changes.get("reasoning"),
        max_reasoning_tokens=changes.get("max_reasoning_tokens"),
        inner_thoughts=changes.get("inner_thoughts"),
    )


def _references(row: Row, name: str, where: str) -> tuple[str, ...]:
    given: Any = row.get(name) or []
    if not isinstance(given, list) or not all(isinstance(each, str) for each in cast("list[Any]", given)):
        raise InvalidInput(f"file.{where}.{name}", "must be a list of ids")
    return tuple(dict.fromkeys(cast("list[str]", given)))


def _block(row: Row, where: str) -> FileBlock:
    given = {name: value for name, value in row.items() if value is not None and name not in _DEPLOYED}
    return FileBlock(row["id"], new_block(_checked(CreateBlock, given, where)))


def _tool(row: Row, where: str) -> FileTool:
    name, kind = row.get("name"), row.get("tool_type", ToolType.custom)
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"file.{where}.name", "must be the name of the tool")
    if kind not in list(ToolType):
        raise InvalidInput(f"file.{where}.tool_type", f"'{str(kind)[:80]}' is not a type of tools")
    kind = ToolType(kind)
    document = {key: value for key, value in row.items() if key != "id"}
    if kind is ToolType.external_mcp:
        server = member(member(row, "metadata_"), "mcp").get("server_name")
        return FileTool(row["id"], name, kind, document, server_name=server if isinstance(server, str) else None)
    if kind is not ToolType.custom or not row.get("source_code"):
        return FileTool(row["id"], name, kind, document)
    given = {key: row[key] for key in _TOOL_FIELDS if row.get(key) is not None}
    if given.get("source_type") not in _SOURCE_TYPES:
        given.pop("source_type", None)
    new = new_tool(_checked(CreateTool, given, where))
    return FileTool(row["id"], name, kind, document, new)


def _server(row: Row, where: str) -> FileServer:
    name: Any = row.get("server_name")
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"file.{where}.server_name", "must be the name of the server")
    document = {key: value for key, value in row.items() if key != "id"}
    kind, stdio = row.get("server_type"), row.get("stdio_config")
    config: McpConfig | None = None
    if kind == McpServerType.stdio.value and isinstance(stdio, dict):
        command, args = cast("Row", stdio).get("command"), cast("Row", stdio).get("args") or []
        if isinstance(command, str) and isinstance(args, list):
            config = McpConfig(McpServerType.stdio, command, tuple(str(each) for each in cast("list[Any]", args)))
    elif kind in (McpServerType.sse.value, McpServerType.streamable_http.value):
        url = row.get("server_url")
        config = McpConfig(McpServerType(kind), server_url=url) if isinstance(url, str) else None
    return FileServer(row["id"], name, config, document)


def _group(row: Row, where: str) -> FileGroup:
    given = {name: value for name, value in row.items() if value is not None}
    body = _checked(CreateGroup, {"agent_ids": [], "description": "", **given}, where)
    manager = body.manager_config.model_dump()
    kind, leader = ManagerType(manager.pop("manager_type")), manager.pop("manager_agent_id", None)
    return FileGroup(
        reference=row["id"],
        description=body.description,
        manager=Manager(kind, **manager),
        leader=leader,
        members=tuple(dict.fromkeys(body.agent_ids)),
        blocks=tuple(dict.fromkeys(body.shared_block_ids)),
        hidden=body.hidden,
        project_id=body.project_id,
    )


def _check_references(file: AgentFile) -> None:
    """Raises InvalidInput for a reference to something that is not in the file; folders may be missing, because
    Letta leaves empty ones out."""
    blocks, tools = {each.reference for each in file.blocks}, {each.reference for each in file.tools}
    agents = {each.reference for each in file.agents}
    for n, agent in enumerate(file.agents):
        for name, given, known in (
            ("block_ids", agent.blocks, blocks),
            ("tool_ids", agent.tools, tools),
            ("in_context_message_ids", agent.context, set(agent.messages)),
        ):
            _require(given, known, f"agents[{n}].{name}")
    for n, group in enumerate(file.groups):
        leaders = () if group.leader is None else (group.leader,)
        _require((*group.members, *leaders), agents, f"groups[{n}]")
        _require(group.blocks, blocks, f"groups[{n}].shared_block_ids")


def _check_links(rows: Sequence[Row], where: str, *names: str) -> None:
    for n, row in enumerate(rows):
        for name in names:
            if not isinstance(row.get(name), str | None):
                raise InvalidInput(f"file.{where}[{n}].{name}", "must be an id")


def _require(given: Sequence[str], known: set[str], where: str) -> None:
    if (missing := next((each for each in given if each not in known), None)) is not None:
        raise InvalidInput(f"file.{where}", f"refers to '{missing[:80]}', which is not in the file")
