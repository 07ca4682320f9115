"""Agents API: create, read, change, start and stop them.

Everything is a read or a small transaction, after which the live activation reloads, so nothing ever waits behind a
turn.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kelpie.actors.dispatcher import Dispatcher
from kelpie.agent.companions import companions
from kelpie.agent.definition import changes as agent_changes
from kelpie.agent.definition import creation, first_messages, loaded_agent
from kelpie.agent.definition.shown_status import shown_status
from kelpie.agent.live.live_agents import LiveAgents
from kelpie.agent.live.pauses import Pauses
from kelpie.agent.maintenance.recovery import Recovery
from kelpie.agent.prompt.agent_types import spec_of
from kelpie.agent.turn.activation import Activation
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.agents.agent import (
    EVERYTHING,
    ActivationStatus,
    Agent,
    AgentQuery,
    AgentView,
    Include,
    ModelChoice,
    NewAgent,
    Secret,
)
from kelpie.core.errors import InvalidInput, NotFound
from kelpie.core.files.folders import Folder
from kelpie.core.ids import AgentId, FolderId
from kelpie.core.memory.block_history import author_of
from kelpie.core.memory.facts import FactSettings
from kelpie.core.permissions.budgets import Budget
from kelpie.core.settings.settings import Settings
from kelpie.core.time import Micros
from kelpie.llm.routing.models import Models
from kelpie.search import scope_removal
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents
from kelpie.storage.agents import removal as agent_removal
from kelpie.storage.agents import secrets as agent_secrets
from kelpie.storage.archives import removal as archive_removal
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.blocks import blocks
from kelpie.storage.conversations import fact_progress
from kelpie.storage.encryption.sealing import Sealing
from kelpie.storage.files import attachments, folders, views
from kelpie.storage.files.attachments import FILE_TOOLS
from kelpie.storage.rows.piece_size import PieceSize
from kelpie.storage.tools import tools
from kelpie.storage.views import agents as agent_views
from kelpie.tools.builtin.pause import require_heartbeats
from kelpie.world.database import Tx
from kelpie.world.world import World

ALL = AgentQuery(show_hidden=True)
_MANY = 1000


class Agents:
    """Agents of the caller's organization."""

    def __init__(
        self,
        world: World,
        models: Models,
        dispatcher: Dispatcher[Activation],
        live_agents: LiveAgents,
        recovery: Recovery,
        pauses: Pauses,
        settings: Settings,
        piece_size: PieceSize,
        caller: Caller = DEFAULT_CALLER,
    ) -> None:
        self._world = world
        self._models = models
        self._dispatcher = dispatcher
        self._live_agents = live_agents
        self._recovery = recovery
        self._pauses = pauses
        self._settings = settings
        self._piece_size = piece_size
        self._caller = caller
        self._organization = caller.organization_id

    # --- making and looking --------------------------------------------------------------------------------------

    async def create(self, new: NewAgent) -> AgentView:
        """Makes an agent with its blocks, tools and first messages, all or nothing.

        Raises InvalidInput, NotFound (model, block), Conflict (two blocks of one label), ModelError, StorageError.
        """
        spec = spec_of(new.agent_type)
        settings = self._settings
        timezone = new.timezone or settings.default_timezone
        embedding = await self._embedding(new.embedding or settings.default_embedding)
        new = replace(new, embedding=embedding, timezone=timezone)
        model = await self._model(new)
        new = await self.checked(new, model.handle)
        ids, now = self._world.ids, self._world.clock.now()
        agent_id = ids.new(AgentId)
        made = creation.make_blocks(new.memory_blocks, ids, now, self._settings.block_limit, self._caller)
        secrets = creation.make_secrets(new.secrets, ids, now)
        sealing = self._sealing(secrets)
        if len(new.initial_messages or ()) > _MANY:
            await asyncio.sleep(0)  # reading and making thousands of messages is too much for one go
        first = creation.first_messages(agent_id, spec, new.initial_messages, ids, now)
        given = self._default_folder(new, agent_id, now)
        reads = FILE_TOOLS if new.folder_ids or given else ()
        names = (*creation.own_tools(new, spec), *new.tools, *reads)
        companion = self._companion(now) if new.enable_sleeptime else None

        def write(tx: Tx) -> AgentView:
            attached = agent_changes.find_tools(tx, self._organization, tuple(dict.fromkeys(names)), new.tool_ids)
            require_heartbeats("tools", new.agent_type, attached)
            agent = creation.make_agent(new, agent_id, model, attached, now, self._caller)
            agents.create(tx, agent)
            blocks.give_to_new(tx, agent_id, made, author_of(self._caller))
            for block_id in new.block_ids:
                row_ownership.block(tx, self._organization, block_id)
                block_attachments.attach(tx, agent_id, block_id)
            tools.give_to_new(tx, agent_id, [tool.id for tool in attached])
            if secrets:
                agent_secrets.replace(tx, agent_id, secrets, sealing)
            linked = agent_changes.link_identities(tx, agent, new.identity_ids) if new.identity_ids else ()
            hung = tuple(block_attachments.of_agent(tx, agent_id)) if new.block_ids else made
            folders_of = self._attach_folders(tx, agent, new, given, now)
            read = loaded_agent.directories(tx, agent) if folders_of else ()
            first_messages.write(tx, loaded_agent.AgentSnapshot(agent, hung, attached, directories=read), first)
            if agent.facts is not None:
                fact_progress.follow(tx, agent_id, agent.facts)
            group = companions.create(tx, agent, hung, companion) if companion else None
            ids_of = tuple(row.id for row in first)
            seen = views.shown(tx, agent) if folders_of else ()
            return AgentView(agent, ids_of, hung, attached, secrets, linked, folders_of, group, files=seen)

        return self.with_status(await self._world.database.transact(write))

    def _default_folder(self, new: NewAgent, agent_id: AgentId, now: Micros) -> Folder | None:
        """A folder for the agent alone, if it is wanted."""
        if not new.include_default_folder:
            return None
        return Folder(
            id=self._world.ids.new(FolderId),
            name=f"External Data Source for {agent_id}",
            created_at=now,
            updated_at=now,
            embedding=new.embedding,
            organization_id=self._organization,
            created_by_id=self._caller.user_id,
            last_updated_by_id=self._caller.user_id,
        )

    def _attach_folders(
        self, tx: Tx, agent: Agent, new: NewAgent, given: Folder | None, now: Micros
    ) -> tuple[Folder, ...]:
        """Raises Conflict for a folder that does not exist, and InvalidInput for too many."""
        if given is None and not new.folder_ids:
            return ()
        attachments.require_all(tx, self._organization, new.folder_ids)
        if given is not None:
            folders.insert(tx, given)
        for folder_id in (*dict.fromkeys(new.folder_ids), *(() if given is None else (given.id,))):
            attachments.attach(tx, self._organization, agent.id, folder_id, now)
        return tuple(attachments.of_agent(tx, agent.id))

    async def checked(self, new: NewAgent, handle: str) -> NewAgent:
        """The agent with its settings for facts as they are stored. Raises InvalidInput for these or for its budget,
        and ModelError."""
        self._check_budget(new.budget, handle)
        return replace(new, facts=await self._facts(new.facts))

    def _sealing(self, secrets: Sequence[Secret]) -> Sealing:
        return Sealing(self._world.keyring, self._world.ids.secret() if secrets else b"")

    def _companion(self, now: Micros) -> companions.PreparedCompanion:
        return companions.prepare(self._world.ids, now, self._settings.block_limit, self._caller)

    async def _model(self, new: NewAgent) -> ModelChoice:
        info = await self._models.resolve(new.model or (await self._models.default()).handle)
        given = {name: getattr(new, name, None) for name in agent_changes.MODEL_FIELDS if name != "model"}
        return creation.choose_model(info, given, self._settings.context_window)

    async def _embedding(self, handle: str | None) -> str | None:
        """The handle as its provider lists it. Raises InvalidInput for an embedding model that is not known, and
        ModelError."""
        if handle is None:
            return None
        try:
            return (await self._models.resolve_embedding(handle)).handle
        except NotFound as error:
            raise InvalidInput("embedding", str(error)) from error

    def _check_budget(self, budget: Budget | None, handle: str) -> None:
        """Raises InvalidInput for money that could not be counted."""
        if budget is not None and budget.micros is not None and self._models.prices.of(handle) is None:
            remedy = f"the price of {handle} is unknown; set it in KELPIE_MODEL_PRICES, or give the budget in tokens"
            raise InvalidInput("kelpie_budget.usd", remedy)

    async def _facts(self, settings: FactSettings | None) -> FactSettings | None:
        """The settings with the model as its provider lists it. Raises InvalidInput for one that is not known, and
        ModelError."""
        if settings is not None and settings.model is not None:
            try:
                return replace(settings, model=(await self._models.resolve(settings.model)).handle)
            except NotFound as error:
                raise InvalidInput("kelpie_facts.model", str(error)) from error
        return settings

    async def get(self, agent_id: AgentId, include: Include = EVERYTHING) -> AgentView:
        """Raises NotFound."""
        return self.with_status(await self._world.database.read(lambda tx: self._one(tx, agent_id, include)))

    async def get_many(self, ids: list[AgentId], include: Include) -> list[AgentView]:
        """The agents with these ids, in that order; ids that do not exist are left out."""
        keyring = self._world.keyring
        found = await self._world.database.read(
            lambda tx: agent_views.many(tx, agents.get_many(tx, self._organization, ids), include, keyring)
        )
        return [self.with_status(view) for view in found]

    async def count(self, query: AgentQuery = ALL) -> int:
        """Number of agents that match, on all pages together."""
        return await self._world.database.read(lambda tx: agents.count(tx, self._organization, query))

    def status(self, agent_id: AgentId) -> ActivationStatus:
        """Status of the agent's activation; does not check that the agent exists."""
        return self._dispatcher.status(agent_id)

    def with_status(self, view: AgentView) -> AgentView:
        """The view with the status of the agent's activation, which views of other resources lack."""
        status = shown_status(view.agent.stopped, self._dispatcher.status(view.agent.id))
        return replace(view, status=status, paused_until=self._pauses.until(view.agent))

    # --- changing ------------------------------------------------------------------------------------------------

    async def update(self, agent_id: AgentId, changes: Mapping[str, Any]) -> AgentView:
        """Changes what is given, by field name. Raises NotFound, InvalidInput, Conflict, ModelError, StorageError."""
        now, ids = self._world.clock.now(), self._world.ids
        secrets = creation.make_secrets(changes.get("secrets") or {}, ids, now)
        sealing = self._sealing(secrets)
        model, companion = await self._changed_model(agent_id, changes), self._companion(now)
        if changes.get("embedding") is not None:
            changes = {**changes, "embedding": await self._embedding(changes["embedding"])}
        if changes.get("facts") is not None:
            changes = {**changes, "facts": await self._facts(changes["facts"])}

        def write(tx: Tx) -> AgentView:
            agent = agents.owned(tx, self._organization, agent_id)
            self._check_budget(changes.get("budget", agent.budget), (model or agent.model).handle)
            columns = agent_changes.row_changes(changes, model, agent, self._caller.user_id)
            agents.update_agent(tx, agent_id, columns, now)
            agent_changes.apply_relations(tx, agent, changes, secrets, sealing, now)
            if "facts" in changes:
                fact_progress.follow(tx, agent_id, changes["facts"])
            if changes.get("enable_sleeptime"):
                companions.create(
                    tx, agents.get(tx, agent_id), tuple(block_attachments.of_agent(tx, agent_id)), companion
                )
            return agent_views.one(tx, agent_id, EVERYTHING, self._world.keyring)

        view = await self._world.database.transact(write)
        self._live_agents.reload((agent_id,))
        if "message_ids" in changes:
            self._live_agents.forget_context((agent_id,))
        return self.with_status(view)

    async def _changed_model(self, agent_id: AgentId, changes: Mapping[str, Any]) -> ModelChoice | None:
        if not agent_changes.changes_model(changes):
            return None
        agent = await self._world.database.read(lambda tx: agents.owned(tx, self._organization, agent_id))
        info = await self._models.resolve(changes.get("model") or agent.model.handle)
        return agent_changes.new_model(agent, info, changes, self._settings.context_window)

    async def delete(self, agent_id: AgentId) -> None:
        """Deletes an agent with its history and its companion. A turn that is running is cut off. Raises NotFound."""
        now, rows = self._world.clock.now(), self._piece_size.rows

        def write(tx: Tx) -> list[AgentId]:
            row_ownership.agent(tx, self._organization, agent_id)
            gone = [agent_id, *companions.of(tx, agent_id)]
            for one in gone:
                archive_removal.remove_owned(tx, one, rows)
                agent_removal.remove(tx, one, now, rows)
                scope_removal.discard_scope(tx, "message", one, rows)
                scope_removal.discard_scope(tx, "fact", one, rows)
            return gone

        for gone in await self._world.database.transact(write):
            await self._dispatcher.release(gone, "deleted")

    # --- life ----------------------------------------------------------------------------------------------------

    async def stop(self, agent_id: AgentId) -> ActivationStatus:
        """Stops the agent for good: running turns may finish, waiting ones are refused. Raises NotFound."""
        await self._set_stopped(agent_id, True)
        return await self._dispatcher.stop(agent_id, "stopped by its operator")

    async def start(self, agent_id: AgentId) -> ActivationStatus:
        """Lets a stopped agent take messages again. Raises NotFound."""
        await self._set_stopped(agent_id, False)
        self._live_agents.reload((agent_id,))
        return shown_status(False, self._dispatcher.status(agent_id))

    async def restart(self, agent_id: AgentId) -> ActivationStatus:
        """Unloads the agent and loads it again. Raises NotFound, or what loading raises."""
        await self._set_stopped(agent_id, False)
        await self._dispatcher.release(agent_id, "restarted by its operator")
        await self._recovery.recover_agent(agent_id)
        return self._dispatcher.status(agent_id)

    async def _set_stopped(self, agent_id: AgentId, stopped: bool) -> None:
        now = self._world.clock.now()

        def write(tx: Tx) -> None:
            row_ownership.agent(tx, self._organization, agent_id)
            agents.update_agent(tx, agent_id, {"stopped": stopped}, now)

        await self._world.database.transact(write)

    def _one(self, tx: Tx, agent_id: AgentId, include: Include) -> AgentView:
        return agent_views.many(tx, [agents.owned(tx, self._organization, agent_id)], include, self._world.keyring)[0]

    async def page(self, query: AgentQuery, include: Include) -> list[AgentView]:
        """Raises InvalidInput for a page that cannot be."""
        keyring = self._world.keyring

        def read(tx: Tx) -> list[AgentView]:
            return agent_views.page(
                tx, agents.select_agents(tx, self._organization, query), include, query.page, keyring
            )

        return [self.with_status(view) for view in await self._world.database.read(read)]
