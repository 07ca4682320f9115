"""One valid call of every method of `letta-client`, by the method's name. The same lines serve both clients."""

from collections.abc import Callable
from typing import Any

from tests.conformance.things import MODEL, SOURCE, STDIO, Things

Case = Callable[[Any, Things], Any]
UNKNOWN = "00000000-0000-4000-8000-000000000001"
AGENT_FILE = b'{"agents": [{"id": "agent-0", "name": "Ann", "messages": []}]}'
HELLO = [{"role": "user", "content": "hello"}]


def _two(pair: tuple[str, str], call: Callable[[str, str], Any]) -> Any:
    return call(*pair)


def _of_file(t: Things, call: Any) -> Any:
    agent, file = t.agent_with_file()
    return call(file, agent_id=agent)


def _of_folder(t: Things, call: Any) -> Any:
    agent, folder = t.agent_with_folder()
    return call(folder, agent_id=agent)


def _in_folder(t: Things, call: Any) -> Any:
    folder, file = t.file()
    return call(file, folder_id=folder)


CASES: dict[str, Case] = {
    "health": lambda sdk, t: sdk.health(),
    # --- agents
    "agents.create": lambda sdk, t: sdk.agents.create(
        model=MODEL, name="Ann", memory_blocks=[{"label": "human", "value": "v"}], tags=["a"], timezone="Europe/Berlin"
    ),
    "agents.list": lambda sdk, t: (t.agent(), sdk.agents.list(limit=3, include=["agent.blocks", "agent.tools"]))[1],
    "agents.retrieve": lambda sdk, t: sdk.agents.retrieve(t.agent(), include=["agent.blocks", "agent.tools"]),
    "agents.update": lambda sdk, t: sdk.agents.update(t.agent(), name="Ben", tags=["b"], description="d"),
    "agents.delete": lambda sdk, t: sdk.agents.delete(t.agent()),
    "agents.recompile": lambda sdk, t: sdk.agents.recompile(t.agent(), dry_run=True),
    "agents.export_file": lambda sdk, t: sdk.agents.export_file(t.agent()),
    "agents.import_file": lambda sdk, t: sdk.agents.import_file(file=AGENT_FILE, model=MODEL),
    "agents.archives.attach": lambda sdk, t: sdk.agents.archives.attach(t.archive(), agent_id=t.agent()),
    "agents.archives.detach": lambda sdk, t: _two(
        t.agent_with_archive(), lambda agent, archive: sdk.agents.archives.detach(archive, agent_id=agent)
    ),
    "agents.blocks.attach": lambda sdk, t: sdk.agents.blocks.attach(t.block(), agent_id=t.agent()),
    "agents.blocks.detach": lambda sdk, t: _two(
        t.agent_with_block(), lambda agent, block: sdk.agents.blocks.detach(block, agent_id=agent)
    ),
    "agents.blocks.list": lambda sdk, t: sdk.agents.blocks.list(t.agent()),
    "agents.blocks.retrieve": lambda sdk, t: sdk.agents.blocks.retrieve("human", agent_id=t.agent()),
    "agents.blocks.update": lambda sdk, t: sdk.agents.blocks.update("human", agent_id=t.agent(), value="new"),
    "agents.files.close": lambda sdk, t: _of_file(t, sdk.agents.files.close),
    "agents.files.close_all": lambda sdk, t: sdk.agents.files.close_all(t.agent_with_file()[0]),
    "agents.files.list": lambda sdk, t: sdk.agents.files.list(t.agent_with_file()[0]),
    "agents.files.open": lambda sdk, t: _of_file(t, sdk.agents.files.open),
    "agents.folders.attach": lambda sdk, t: sdk.agents.folders.attach(t.folder(), agent_id=t.agent()),
    "agents.folders.detach": lambda sdk, t: _of_folder(t, sdk.agents.folders.detach),
    "agents.folders.list": lambda sdk, t: sdk.agents.folders.list(t.agent_with_folder()[0]),
    "agents.identities.attach": lambda sdk, t: sdk.agents.identities.attach(t.identity(), agent_id=t.agent()),
    "agents.identities.detach": lambda sdk, t: sdk.agents.identities.detach(t.identity(), agent_id=t.agent()),
    "agents.messages.cancel": lambda sdk, t: sdk.agents.messages.cancel(t.busy()),
    "agents.messages.compact": lambda sdk, t: sdk.agents.messages.compact(
        t.talked.agent, compaction_settings={"mode": "all"}
    ),
    "agents.messages.create": lambda sdk, t: sdk.agents.messages.create(t.agent(), messages=HELLO),
    "agents.messages.create_async": lambda sdk, t: sdk.agents.messages.create_async(t.agent(), messages=HELLO),
    "agents.messages.list": lambda sdk, t: sdk.agents.messages.list(t.talked.agent),
    "agents.messages.reset": lambda sdk, t: sdk.agents.messages.reset(t.agent(), add_default_initial_messages=True),
    "agents.messages.stream": lambda sdk, t: sdk.agents.messages.stream(t.agent(), messages=HELLO, stream_tokens=True),
    "agents.passages.create": lambda sdk, t: sdk.agents.passages.create(t.agent(), text="rain", tags=["a"]),
    "agents.passages.delete": lambda sdk, t: _two(
        t.agent_passage(), lambda agent, passage: sdk.agents.passages.delete(passage, agent_id=agent)
    ),
    "agents.passages.list": lambda sdk, t: sdk.agents.passages.list(t.agent_passage()[0]),
    "agents.passages.search": lambda sdk, t: sdk.agents.passages.search(t.agent_passage()[0], query="rain"),
    "agents.schedule.create": lambda sdk, t: sdk.agents.schedule.create(
        t.agent(), messages=HELLO, schedule={"type": "one-time", "scheduled_at": 4102444800000}
    ),
    "agents.schedule.delete": lambda sdk, t: sdk.agents.schedule.delete(**t.schedule()),
    "agents.schedule.list": lambda sdk, t: sdk.agents.schedule.list(t.schedule()["agent_id"]),
    "agents.schedule.retrieve": lambda sdk, t: sdk.agents.schedule.retrieve(**t.schedule()),
    "agents.tools.attach": lambda sdk, t: sdk.agents.tools.attach(t.tool(), agent_id=t.agent()),
    "agents.tools.detach": lambda sdk, t: _two(
        t.agent_with_tool(), lambda agent, tool: sdk.agents.tools.detach(tool, agent_id=agent)
    ),
    "agents.tools.list": lambda sdk, t: sdk.agents.tools.list(t.agent()),
    "agents.tools.run": lambda sdk, t: sdk.agents.tools.run(
        "conversation_search", agent_id=t.agent(), args={"query": "x"}
    ),
    "agents.tools.update_approval": lambda sdk, t: sdk.agents.tools.update_approval(
        "conversation_search", agent_id=t.agent(), body_requires_approval=True
    ),
    # --- archives, passages, tags
    "archives.create": lambda sdk, t: sdk.archives.create(name=t.word(), description="d"),
    "archives.delete": lambda sdk, t: sdk.archives.delete(t.archive()),
    "archives.list": lambda sdk, t: (t.archive(), sdk.archives.list(limit=3))[1],
    "archives.retrieve": lambda sdk, t: sdk.archives.retrieve(t.archive()),
    "archives.update": lambda sdk, t: sdk.archives.update(t.archive(), name=t.word(), description="new"),
    "archives.passages.create": lambda sdk, t: sdk.archives.passages.create(t.archive(), text="rain", tags=["a"]),
    "archives.passages.create_many": lambda sdk, t: sdk.archives.passages.create_many(
        t.archive(), passages=[{"text": "rain"}, {"text": "snow", "tags": ["b"]}]
    ),
    "archives.passages.delete": lambda sdk, t: _two(
        t.passage(), lambda archive, passage: sdk.archives.passages.delete(passage, archive_id=archive)
    ),
    "passages.search": lambda sdk, t: sdk.passages.search(archive_id=t.passage()[0], query="rain"),
    "tags.list": lambda sdk, t: (t.agent(tags=["zebra"]), sdk.tags.list(limit=5))[1],
    # --- blocks
    "blocks.create": lambda sdk, t: sdk.blocks.create(label="human", value="v", tags=["a"], metadata={"k": 1}),
    "blocks.delete": lambda sdk, t: sdk.blocks.delete(t.block()),
    "blocks.list": lambda sdk, t: (t.block(), sdk.blocks.list(limit=3))[1],
    "blocks.retrieve": lambda sdk, t: sdk.blocks.retrieve(t.block()),
    "blocks.update": lambda sdk, t: sdk.blocks.update(t.block(), value="new", description="d"),
    "blocks.agents.list": lambda sdk, t: sdk.blocks.agents.list(t.agent_with_block()[1]),
    # --- conversations
    "conversations.create": lambda sdk, t: sdk.conversations.create(agent_id=t.agent(), summary="s"),
    "conversations.delete": lambda sdk, t: sdk.conversations.delete(t.conversation()),
    "conversations.fork": lambda sdk, t: sdk.conversations.fork(t.conversation()),
    "conversations.list": lambda sdk, t: (t.conversation(), sdk.conversations.list(limit=3))[1],
    "conversations.retrieve": lambda sdk, t: sdk.conversations.retrieve(t.conversation()),
    "conversations.update": lambda sdk, t: sdk.conversations.update(t.conversation(), summary="new"),
    "conversations.recompile": lambda sdk, t: sdk.conversations.recompile(t.conversation(), dry_run=True),
    "conversations.cancel": lambda sdk, t: sdk.conversations.cancel("default", agent_id=t.busy()),
    "conversations.messages.compact": lambda sdk, t: sdk.conversations.messages.compact(
        t.fork(), compaction_settings={"mode": "all"}
    ),
    "conversations.messages.create": lambda sdk, t: sdk.conversations.messages.create(t.conversation(), messages=HELLO),
    "conversations.messages.list": lambda sdk, t: sdk.conversations.messages.list(t.conversation()),
    "conversations.messages.stream": lambda sdk, t: sdk.conversations.messages.stream(t.slow_conversation()),
    # --- messages, runs, steps
    "messages.list": lambda sdk, t: (t.talked, sdk.messages.list(limit=5))[1],
    "messages.retrieve": lambda sdk, t: sdk.messages.retrieve(t.talked.message),
    "messages.search": lambda sdk, t: (t.talked, sdk.messages.search(query="rain"))[1],
    "runs.list": lambda sdk, t: sdk.runs.list(agent_id=t.talked.agent),
    "runs.retrieve": lambda sdk, t: sdk.runs.retrieve(t.talked.run),
    "runs.messages.list": lambda sdk, t: sdk.runs.messages.list(t.talked.run),
    "runs.messages.stream": lambda sdk, t: sdk.runs.messages.stream(t.behind()),
    "runs.steps.list": lambda sdk, t: sdk.runs.steps.list(t.talked.run),
    "runs.trace.retrieve": lambda sdk, t: sdk.runs.trace.retrieve(t.talked.run),
    "runs.usage.retrieve": lambda sdk, t: sdk.runs.usage.retrieve(t.talked.run),
    "steps.feedback.create": lambda sdk, t: sdk.steps.feedback.create(t.talked.step, feedback="positive", tags=["a"]),
    "steps.list": lambda sdk, t: sdk.steps.list(agent_id=t.talked.agent),
    "steps.messages.list": lambda sdk, t: sdk.steps.messages.list(t.talked.step),
    "steps.metrics.retrieve": lambda sdk, t: sdk.steps.metrics.retrieve(t.talked.step),
    "steps.retrieve": lambda sdk, t: sdk.steps.retrieve(t.talked.step),
    "steps.trace.retrieve": lambda sdk, t: sdk.steps.trace.retrieve(t.talked.step),
    # --- tools, MCP servers, models
    "tools.create": lambda sdk, t: sdk.tools.create(source_code=SOURCE.replace("shout", t.word()), tags=["a"]),
    "tools.delete": lambda sdk, t: sdk.tools.delete(t.tool()),
    "tools.list": lambda sdk, t: (t.tool(), sdk.tools.list(limit=20))[1],
    "tools.retrieve": lambda sdk, t: sdk.tools.retrieve(t.tool()),
    "tools.search": lambda sdk, t: (t.tool(), sdk.tools.search(query="loudly"))[1],
    "tools.update": lambda sdk, t: sdk.tools.update(t.tool(), description="new", return_char_limit=100),
    "tools.upsert": lambda sdk, t: sdk.tools.upsert(source_code=SOURCE),
    "mcp_servers.create": lambda sdk, t: sdk.mcp_servers.create(server_name=t.word(), config=STDIO),
    "mcp_servers.delete": lambda sdk, t: sdk.mcp_servers.delete(t.mcp_server()),
    "mcp_servers.list": lambda sdk, t: (t.mcp_server(), sdk.mcp_servers.list())[1],
    "mcp_servers.refresh": lambda sdk, t: sdk.mcp_servers.refresh(t.mcp_tool()[0]),
    "mcp_servers.retrieve": lambda sdk, t: sdk.mcp_servers.retrieve(t.mcp_server()),
    "mcp_servers.update": lambda sdk, t: sdk.mcp_servers.update(
        t.mcp_server(), config={"mcp_server_type": "stdio", "command": "false", "args": ["x"]}, server_name=t.word()
    ),
    "mcp_servers.tools.list": lambda sdk, t: sdk.mcp_servers.tools.list(t.mcp_tool()[0]),
    "mcp_servers.tools.retrieve": lambda sdk, t: _two(
        t.mcp_tool(), lambda server, tool: sdk.mcp_servers.tools.retrieve(tool, mcp_server_id=server)
    ),
    "mcp_servers.tools.run": lambda sdk, t: _two(
        t.mcp_tool(), lambda server, tool: sdk.mcp_servers.tools.run(tool, mcp_server_id=server, args={"a": 1})
    ),
    "models.list": lambda sdk, t: sdk.models.list(),
    "models.embeddings.list": lambda sdk, t: sdk.models.embeddings.list(),
    # --- tokens
    "access_tokens.create": lambda sdk, t: sdk.access_tokens.create(
        hostname="https://app.example", policy=[{"type": "agent", "id": t.agent(), "access": ["read_agent"]}]
    ),
    "access_tokens.delete": lambda sdk, t: sdk.access_tokens.delete(t.token(t.agent())["token"], body={}),
    "access_tokens.list": lambda sdk, t: (t.token(t.agent()), sdk.access_tokens.list())[1],
    # --- files
    "folders.create": lambda sdk, t: sdk.folders.create(name=t.word()),
    "folders.delete": lambda sdk, t: sdk.folders.delete(t.folder()),
    "folders.list": lambda sdk, t: (t.folder(), sdk.folders.list())[1],
    "folders.retrieve": lambda sdk, t: sdk.folders.retrieve(t.folder()),
    "folders.update": lambda sdk, t: sdk.folders.update(t.folder(), description="new"),
    "folders.agents.list": lambda sdk, t: sdk.folders.agents.list(t.agent_with_folder()[1]),
    "folders.files.delete": lambda sdk, t: _in_folder(t, sdk.folders.files.delete),
    "folders.files.list": lambda sdk, t: sdk.folders.files.list(t.file()[0]),
    "folders.files.retrieve": lambda sdk, t: _in_folder(t, sdk.folders.files.retrieve),
    "folders.files.upload": lambda sdk, t: sdk.folders.files.upload(t.folder(), file=("a.txt", b"text")),
    # --- templates
    "templates.create": lambda sdk, t: sdk.templates.create(type="agent", agent_id=t.agent(), name=t.word()),
    "templates.delete": lambda sdk, t: sdk.templates.delete(t.template()),
    "templates.rollback": lambda sdk, t: sdk.templates.rollback(t.template(), version="1"),
    "templates.save": lambda sdk, t: sdk.templates.save(t.template(), message="second", migrate_agents=True),
    "templates.update": lambda sdk, t: sdk.templates.update(t.template(), agent_file_json=t.exported()),
    "templates.agents.create": lambda sdk, t: sdk.templates.agents.create(
        f"{t.template()}:latest", memory_variables={"name": "Ann"}, tool_variables={"KEY": "v"}, tags=["t"]
    ),
    # --- devices
    "environments.list": lambda sdk, t: sdk.environments.list(),
    "environments.retrieve": lambda sdk, t: sdk.environments.retrieve("kelpie"),
    "environments.send_message": lambda sdk, t: sdk.environments.send_message("c", messages=HELLO),
}
