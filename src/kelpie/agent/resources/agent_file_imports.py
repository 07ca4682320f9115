"""Import of an agent file: planned, then staged piece by piece, then published in one small transaction.

A failure before that leaves nothing that anybody could find, and the cleanup deletes the rows. Nothing here may be
visible before the last transaction: blocks, tools, groups and servers are written in it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from kelpie.agent.agent_files import import_plan, planned_folders, planned_tools
from kelpie.agent.agent_files.import_plan import History, ImportPlan, PlannedAgent, References, joined
from kelpie.agent.agent_files.planned_folders import MadeFolders
from kelpie.agent.agent_files.planned_tools import PlannedServer, PlannedTools
from kelpie.agent.definition import changes as agent_changes
from kelpie.agent.definition import creation
from kelpie.agent.live.live_agents import LiveAgents
from kelpie.agent.maintenance.staged_agents import StagedAgents
from kelpie.agent.prompt.agent_types import spec_of
from kelpie.agent.resources.agents import Agents
from kelpie.core.access.callers import Caller
from kelpie.core.agents.agent import ModelChoice, NewAgent
from kelpie.core.agents.agent_file import AgentFile, FileAgent, FileTool, Imported, ImportOptions
from kelpie.core.errors import CommitUnknown, InvalidInput, NotFound
from kelpie.core.ids import AgentId, FileId, MessageId, RunId, StepId
from kelpie.core.memory.block_history import author_of
from kelpie.core.settings.settings import Settings
from kelpie.core.tools.mcp_servers import McpServer
from kelpie.core.tools.tools import Tool, ToolType
from kelpie.llm.routing.handles import LETTA_FREE
from kelpie.llm.routing.models import Models
from kelpie.storage.agents import groups, kept_parts, staging
from kelpie.storage.agents import secrets as agent_secrets
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.blocks import blocks
from kelpie.storage.conversations import approvals, contexts, fact_progress, messages
from kelpie.storage.encryption.sealing import Sealing
from kelpie.storage.rows.piece_size import PieceSize
from kelpie.storage.templates import agent_variables
from kelpie.storage.tools import mcp_servers as server_rows
from kelpie.storage.tools import mcp_tools
from kelpie.storage.tools import tools as tool_rows
from kelpie.tools.builtin.pause import require_heartbeats
from kelpie.tools.mcp import tool_sync
from kelpie.tools.registry.mcp_servers import McpServers
from kelpie.tools.registry.registry import Tools
from kelpie.world.database import Tx
from kelpie.world.long_writes import write_piece
from kelpie.world.world import World

CONTEXT_PIECE = 500


class AgentFileImports:
    """Imports agent files for one caller."""

    def __init__(
        self,
        world: World,
        models: Models,
        settings: Settings,
        agents: Agents,
        tools: Tools,
        servers: McpServers,
        live_agents: LiveAgents,
        staged: StagedAgents,
        piece_size: PieceSize,
        wake_files: Callable[[], None],
        caller: Caller,
    ) -> None:
        self._world = world
        self._models = models
        self._settings = settings
        self._agents = agents
        self._tools = tools
        self._servers = servers
        self._live_agents = live_agents
        self._staged = staged
        self._piece_size = piece_size
        self._wake_files = wake_files
        self._caller = caller
        self._organization = caller.organization_id

    async def load(self, file: AgentFile, options: ImportOptions) -> Imported:
        """Makes the agents of a file, all of them or none.

        Raises InvalidInput, Conflict, ModelError, QuotaExceeded, StorageError.
        """
        notes = list(file.notes)
        plan = await self.plan(file, options, notes)
        with self._staged.held(plan.agent_ids):
            histories = [await self._stage(file, planned) for planned in plan.agents]
            sealing = Sealing(self._world.keyring, self._world.ids.secret())
            publish = partial(self._publish, plan=plan, histories=histories, sealing=sealing)
            affected = await self._published(plan, publish, notes)
        self._live_agents.reload(affected)
        groups_made = tuple(group.id for group in plan.groups)
        return Imported(plan.agent_ids, groups_made, tuple(dict.fromkeys(notes)))

    async def _published(
        self, plan: ImportPlan, publish: Callable[[Tx], tuple[tuple[AgentId, ...], MadeFolders]], notes: list[str]
    ) -> tuple[AgentId, ...]:
        """Keeps the texts of files, then publishes; of an import that fails nothing is kept."""
        uploads, made = self._world.uploads, frozenset[FileId]()
        try:
            await planned_folders.keep(uploads, plan.folders)
            affected, folders = await self._world.database.transact(publish)
            made = folders.made
            notes += folders.renamed
        except CommitUnknown:  # the texts may be needed; those that are not are dropped at the next start
            made = frozenset(file.id for folder in plan.folders for _, file in folder.files)
            raise
        finally:
            await planned_folders.discard(uploads, plan.folders, made)
            if made:
                self._wake_files()
        return affected

    # --- the plan ------------------------------------------------------------------------------------------------

    async def plan(self, file: AgentFile, options: ImportOptions, notes: list[str]) -> ImportPlan:
        """Everything that the import will write; nothing is written yet. Raises InvalidInput, ModelError."""
        ids, now, deployment = self._world.ids, self._world.clock.now(), options.deployment
        references = import_plan.draw(file, ids, now, self._caller, self._settings.block_limit, deployment)
        tools = await self._planned_tools(file, options, notes)
        folders = planned_folders.plan(file, ids, now, self._caller, await self._folder_models(file, options))
        notes += _missing_folders(file)
        planned = [
            await self._agent(file, number, agent, options, references, tools, notes)
            for number, agent in enumerate(file.agents)
        ]
        _note_kept(planned, notes)
        made = import_plan.planned_groups(file, references, now, self._caller, deployment)
        return ImportPlan(file, tuple(planned), references.blocks, made, tools, now, folders, deployment)

    async def _agent(
        self,
        file: AgentFile,
        number: int,
        agent: FileAgent,
        options: ImportOptions,
        references: References,
        tools: PlannedTools,
        notes: list[str],
    ) -> PlannedAgent:
        ids, now = self._world.ids, self._world.clock.now() + number
        agent_id = references.agents[agent.reference]
        new = await self._wanted(agent.new, number, agent, options, notes)
        model = await self._model(new, agent.new.model, number, options, notes)
        new = await self._agents.checked(new, model.handle)
        own = creation.make_blocks(new.memory_blocks, ids, now, self._settings.block_limit, self._caller)
        held = (*(references.blocks[reference] for reference in agent.blocks), *own)
        _check_labels(held, number)
        try:
            row = creation.make_agent(new, agent_id, model, (), now, self._caller)
            secrets = creation.make_secrets(new.secrets, ids, now)
        except InvalidInput as error:
            raise InvalidInput(f"file.agents[{number}].{error.field}", error.remedy) from None
        named = {reference: str(group) for reference, group in references.groups.items()}
        message_ids = import_plan.message_ids(agent, agent_id, named, ids, now, options.strip_messages)
        context = tuple(message_ids.by_reference[each] for each in agent.context if message_ids.by_reference)
        planned = PlannedAgent(
            number, row, new, held, agent.tools, secrets, message_ids, context, (), (ids.new(RunId), ids.new(StepId)),
            import_plan.kept_parts(file, agent, number, tools), agent.folders, agent.open_files,
        )  # fmt: skip
        if context:
            return planned
        given = import_plan.given_messages(number, options.deployment)
        system, *others = creation.first_messages(agent_id, spec_of(new.agent_type), given, ids, now)
        first = (replace(system, content=History(planned).instructions()), *others)
        return replace(planned, first=first, context=tuple(message.id for message in first))

    async def _wanted(
        self, new: NewAgent, number: int, agent: FileAgent, options: ImportOptions, notes: list[str]
    ) -> NewAgent:
        """The agent with the client's wishes. Raises InvalidInput."""
        name = import_plan.new_name(agent, number, options)
        shown = name or agent.new.name
        wanted = options.embedding or new.embedding or self._settings.default_embedding
        embedding = await self._embedding(wanted, options, shown, notes)
        secrets = {**new.secrets, **options.secrets}
        if empty := sorted(key for key, value in secrets.items() if not value):
            missing = joined(empty)
            notes.append(f"{shown}: the file has no values for the secrets {missing}. Set them on the agent.")
        return replace(
            import_plan.deployed_agent(new, agent, options.deployment),
            name=name,
            embedding=embedding,
            secrets=secrets,
            timezone=new.timezone or self._settings.default_timezone,
            project_id=options.project_id or new.project_id,
            model=options.model or new.model,
        )

    async def _embedding(
        self, handle: str | None, options: ImportOptions, name: str | None, notes: list[str]
    ) -> str | None:
        """The embedding model; a file's own that this server lacks is replaced by the default one, because no vectors
        are in a file. Raises InvalidInput, ModelError."""
        if handle is None:
            return None
        try:
            found = (await self._models.resolve_embedding(handle)).handle
        except (NotFound, InvalidInput) as error:
            if options.embedding is not None:
                raise InvalidInput("embedding", str(error)) from None
            default = self._settings.default_embedding or await self._models.own_embedding()
            found = None if default is None else (await self._models.resolve_embedding(default)).handle
        if found != handle:
            notes.append(f"{name}: the embedding model {handle} is not available here; {found or 'none'} is used.")
        return found

    async def _folder_models(self, file: AgentFile, options: ImportOptions) -> Callable[[str | None], str | None]:
        """The embedding model for each handle that a folder names; a model that this server lacks is the default."""
        wanted = {each.new.embedding for each in file.folders}
        found = {
            handle: await self._embedding(handle, replace(options, embedding=None), None, [])
            for handle in sorted(each for each in wanted if each is not None)
        }
        default = self._settings.default_embedding or await self._models.own_embedding()
        return lambda handle: default if handle is None else found[handle]

    async def _model(
        self, new: NewAgent, in_file: str | None, number: int, options: ImportOptions, notes: list[str]
    ) -> ModelChoice:
        """The model; what the file says of its settings holds only for the model that is `in_file`.

        Raises InvalidInput for a model that this server lacks, and ModelError.
        """
        handle = new.model or (await self._models.default()).handle
        try:
            info = await self._models.resolve(handle)
        except (NotFound, InvalidInput) as error:
            field = "model" if options.model else f"file.agents[{number}].model"
            place = "the field 'model' of the import" if options.deployment is None else "the template"
            why = (error.remedy if isinstance(error, InvalidInput) else str(error)).rstrip(".")
            raise InvalidInput(field, f"{why}. Name a model of this server in {place}.") from None
        if handle == LETTA_FREE:
            notes.append(f"{new.name}: the model {LETTA_FREE} does not exist here; {info.handle} is used.")
        elif info.handle != handle:
            notes.append(f"{new.name}: the model {handle} is {info.handle} here.")
        given: dict[str, Any] = {name: getattr(new, name) for name in agent_changes.MODEL_FIELDS if name != "model"}
        if options.model not in (None, in_file) or handle == LETTA_FREE:  # what the file says is about another model
            window = new.context_window_limit
            given = dict.fromkeys(given) | {"context_window_limit": window and min(window, info.context_window)}
        return creation.choose_model(info, given, self._settings.context_window)

    # --- tools ---------------------------------------------------------------------------------------------------

    async def _planned_tools(self, file: AgentFile, options: ImportOptions, notes: list[str]) -> PlannedTools:
        names = sorted({tool.name for tool in file.tools})
        used = {reference for agent in file.agents for reference in agent.tools}
        wanted = [tool for tool in file.tools if tool.reference in used]

        def read(tx: Tx) -> tuple[dict[str, Tool], dict[str, McpServer], dict[str, dict[str, str]]]:
            servers = {
                each.server_name: each for each in server_rows.select(tx, self._organization, self._world.keyring)
            }
            named = {server.name for server in file.servers} & servers.keys()
            listed = {
                name: {one.remote_name: one.tool.name for one in mcp_tools.of_server(tx, servers[name].id)}
                for name in sorted(named)
            }
            return tool_rows.by_names(tx, self._organization, names), servers, listed

        there, servers, listed = await self._world.database.read(read)
        new_servers = self._new_servers(file, wanted, servers, notes)
        made: dict[str, Tool] = {}
        remote: dict[str, str] = {}
        lacking: list[FileTool] = []
        known: dict[str, str] = {}
        for tool in wanted:
            known[tool.reference] = tool.name
            server = tool.server_name if tool.tool_type is ToolType.external_mcp else None
            far = planned_tools.remote_tool(tool).name
            if server is not None and server in new_servers and far not in new_servers[server].refused:
                remote[tool.reference], known[tool.reference] = server, far
            elif server in listed and far in listed[server]:
                known[tool.reference] = listed[server][far]
            elif planned_tools.may_replace(tool, there.get(tool.name), options.override_existing_tools):
                made[tool.reference] = await self._made(file, tool)
            elif tool.name not in there or server is not None:
                lacking.append(tool)
        if lacking:
            missing = joined([tool.name for tool in lacking])
            notes.append(f"Tools that this server lacks: {missing}. The agents work without them; an export has them.")
        return PlannedTools(
            known,
            made,
            remote,
            {tool.reference: tool.document for tool in lacking},
            tuple(new_servers.values()),
            planned_tools.lacking_servers(file.servers, lacking),
            options.override_existing_tools,
        )

    def _new_servers(
        self, file: AgentFile, wanted: list[FileTool], there: Mapping[str, McpServer], notes: list[str]
    ) -> dict[str, PlannedServer]:
        """The servers of the file that are registered: those that this one lacks and may have."""
        found: dict[str, PlannedServer] = {}
        for server in file.servers:
            if server.name in there or server.config is None or server.name in found:
                continue
            try:
                made = self._servers.prepared(server.name, server.config)
            except InvalidInput as error:
                notes.append(f"The MCP server {server.name[:80]} was not registered: {error.remedy}.")
                continue
            tools = [planned_tools.remote_tool(tool) for tool in wanted if tool.server_name == server.name]
            listed, refused = tool_sync.ready(tools, [self._world.ids.uuid() for _ in tools])
            found[server.name] = PlannedServer(made, tuple(listed), refused)
            notes.append(
                f"The MCP server {server.name[:80]} was registered without its secrets; set them if it needs any."
            )
        return found

    async def _made(self, file: AgentFile, tool: FileTool) -> Tool:
        """The custom tool to register, under the name by which it was looked for. Raises InvalidInput."""
        assert tool.new is not None
        where = f"file.tools[{file.tools.index(tool)}]"
        try:
            made = await self._tools.prepared(tool.new)
        except InvalidInput as error:
            raise InvalidInput(f"{where}.{error.field}", error.remedy) from None
        if made.name != tool.name:
            raise InvalidInput(f"{where}.name", f"must be '{made.name}', as its schema or its source code says")
        return made

    # --- writing -------------------------------------------------------------------------------------------------

    async def _stage(self, file: AgentFile, planned: PlannedAgent) -> History:
        """Writes an agent with its messages, for nobody to see. Raises InvalidInput for one of them."""
        database, now = self._world.database, planned.ids.now
        await database.transact(lambda tx: staging.stage(tx, planned.agent, now))
        history = History(planned)
        for batch in history.batches(file, self._piece_size.rows):
            await write_piece(database, partial(messages.append, new=batch))
        agent_id = planned.agent.id
        for start in range(0, len(planned.context), CONTEXT_PIECE):
            some = planned.context[start : start + CONTEXT_PIECE]
            await write_piece(database, partial(_show, agent_id=agent_id, some=some, first=start))
        return history

    def _publish(
        self, tx: Tx, plan: ImportPlan, histories: list[History], sealing: Sealing
    ) -> tuple[tuple[AgentId, ...], MadeFolders]:
        """Writes everything that others can see, and makes the agents visible; returns the agents that must see a
        change of their tools, and the folders."""
        found, affected = planned_tools.write(
            tx, plan.tools, self._organization, self._caller.user_id, plan.now, sealing
        )
        author = author_of(self._caller)
        made = planned_folders.write(tx, self._organization, plan.folders)
        blocks.insert(tx, tuple(plan.blocks.values()), author)
        shared = {block.id for block in plan.blocks.values()}
        for planned, history in zip(plan.agents, histories, strict=True):
            agent = planned.agent
            staging.publish(tx, agent.id, self._organization)
            blocks.insert(tx, tuple(block for block in planned.blocks if block.id not in shared), author)
            block_attachments.attach_new(tx, agent.id, planned.blocks)
            self._give_tools(tx, planned, found)
            planned_folders.attach(tx, agent, planned.folders, planned.open_files, made, plan.now)
            if planned.secrets:
                agent_secrets.replace(tx, agent.id, planned.secrets, sealing)
            if history.pending is not None:
                approvals.move(tx, None, history.pending)
            if agent.facts is not None:
                fact_progress.follow(tx, agent.id, agent.facts)
            if planned.new.identity_ids:
                agent_changes.link_identities(tx, agent, planned.new.identity_ids)
            if plan.deployment is not None:
                agent_variables.write(tx, agent.id, plan.deployment.memory_variables)
            kept_parts.write(tx, agent.id, planned.kept)
        for group in plan.groups:
            groups.add(tx, group, self._organization)
        return affected, made

    def _give_tools(self, tx: Tx, planned: PlannedAgent, found: Mapping[str, Tool]) -> None:
        mine = [found[reference] for reference in planned.tools if reference in found]
        names = (*creation.own_tools(planned.new, spec_of(planned.new.agent_type)), *planned.new.tools)
        try:
            named = agent_changes.find_tools(tx, self._organization, tuple(dict.fromkeys(names)), ()) if names else ()
            require_heartbeats("tools", planned.new.agent_type, (*mine, *named))
        except InvalidInput as error:
            raise InvalidInput(f"file.agents[{planned.number}].{error.field}", error.remedy) from None
        tool_rows.give_to_new(tx, planned.agent.id, [tool.id for tool in (*mine, *named)])


def _show(tx: Tx, agent_id: AgentId, some: tuple[MessageId, ...], first: int) -> None:
    contexts.insert_at(tx, agent_id, some, "", first)


def _check_labels(held: tuple[Any, ...], number: int) -> None:
    """Raises InvalidInput for two blocks of one label."""
    labels = [block.label for block in held]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise InvalidInput(f"file.agents[{number}].block_ids", f"two blocks have the label '{twice[:80]}'")


def _missing_folders(file: AgentFile) -> list[str]:
    """Letta leaves empty folders out of a file."""
    known = {each.reference for each in file.folders}
    lacking = {each for agent in file.agents for each in agent.folders if each not in known}
    return (
        [f"{len(lacking)} folders without files are not in the file; the agents work without them."] if lacking else []
    )


def _note_kept(planned: list[PlannedAgent], notes: list[str]) -> None:
    if any(each.kept.skills for each in planned):
        notes.append("Skills are kept for the next export, but agents cannot use them yet.")
