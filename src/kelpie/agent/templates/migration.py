"""Migration: agents that were made from a template get the definition of one of its later versions.

An agent keeps its name, messages, identities, tags and archives. Each is changed in one transaction; when something
fails in between, the agents that are left are migrated by the next call. Blocks that did not come from the template are
never changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kelpie.agent.agent_files import planned_tools
from kelpie.agent.agent_files.import_plan import ImportPlan, PlannedAgent
from kelpie.agent.live.live_agents import LiveAgents
from kelpie.agent.resources.agent_file_imports import AgentFileImports
from kelpie.agent.resources.agents import Agents
from kelpie.agent.templates.templates import ReadFile, named
from kelpie.core.access.callers import Caller
from kelpie.core.agents import templates
from kelpie.core.agents.agent import Agent, AgentQuery, Include
from kelpie.core.agents.agent_file import ImportOptions
from kelpie.core.agents.deployments import Deployment
from kelpie.core.agents.templates import FILLED_CHARS_MAX, Snapshot
from kelpie.core.errors import InvalidInput, NotFound
from kelpie.core.ids import AgentId, BlockId, DeploymentId
from kelpie.core.memory.block_history import Change, author_of
from kelpie.core.memory.blocks import Block
from kelpie.core.paging import Page
from kelpie.core.settings.settings import Settings
from kelpie.core.tools.tools import Tool
from kelpie.storage.agents import agents as agent_rows
from kelpie.storage.agents import secrets as agent_secrets
from kelpie.storage.blocks import attachments, blocks
from kelpie.storage.conversations import fact_progress
from kelpie.storage.encryption.sealing import Sealing
from kelpie.storage.templates import agent_variables
from kelpie.storage.tools import tools as tool_rows
from kelpie.storage.views import deployments
from kelpie.tools.builtin.pause import require_heartbeats
from kelpie.world.database import Tx
from kelpie.world.world import World

PAGE = 100

# Columns of an agent that are those of the template. Its name, type and embedding stay: stored rows depend on them.
_COLUMNS = (
    "model", "tool_rules", "description", "metadata", "timezone", "compaction_settings", "response_format",
    "message_buffer_autoclear", "max_files_open", "per_file_view_window_char_limit", "budget", "facts", "permits",
    "quota",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MigrationOptions:
    """What agents keep when they are migrated."""

    keep_memory: bool = False  # the values of blocks that the template has as well
    keep_variables: bool = False  # environment variables that the template does not have
    remove_blocks: bool = False  # blocks that came from the template and are no longer in it


@dataclass(frozen=True, slots=True)
class Migrated:
    """Number of agents that were changed, and of those that the version has no counterpart for."""

    agents: int
    left: int


class Migration:
    """Migrates agents of the caller's organization."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        agents: Agents,
        imports: AgentFileImports,
        live_agents: LiveAgents,
        caller: Caller,
    ) -> None:
        self._world = world
        self._settings = settings
        self._agents = agents
        self._imports = imports
        self._live_agents = live_agents
        self._caller = caller

    async def run(self, version: Snapshot, read: ReadFile, options: MigrationOptions) -> Migrated:
        """Changes every agent of the template. Raises InvalidInput, ModelError, StorageError."""
        mark = Deployment(DeploymentId(""), version.version.id, version.template.id)
        with named("template"):
            plan = await self._imports.plan(
                read(version.document), ImportOptions(override_existing_tools=False, deployment=mark), []
            )
        after: str | None = None
        changed = left = 0
        done: set[AgentId] = set()  # a list begins anew when the agent that it should go on after was deleted
        while found := await self._page(version, after):
            for agent in found:
                after = agent.id
                if agent.id in done:
                    continue
                done.add(agent.id)
                planned = next((one for one in plan.agents if one.agent.entity_id == agent.entity_id), None)
                if planned is None or planned.agent.agent_type is not agent.agent_type:
                    left += 1
                elif await self._migrate(agent.id, plan, planned, version, options):
                    changed += 1
        return Migrated(changed, left)

    async def _page(self, version: Snapshot, after: str | None) -> list[Agent]:
        page = Page(PAGE, after, descending=False)
        query = AgentQuery(page, base_template_id=version.template.id, show_hidden=True)
        return [view.agent for view in await self._agents.page(query, Include())]

    async def _migrate(
        self, agent_id: AgentId, plan: ImportPlan, planned: PlannedAgent, version: Snapshot, options: MigrationOptions
    ) -> bool:
        sealing = Sealing(self._world.keyring, self._world.ids.secret())
        change = Change(author_of(self._caller), self._world.clock.now(), self._settings.block_rules.versions_kept)
        ids = [self._world.ids.new(BlockId) for _ in planned.blocks]
        step = partial(
            self._write, agent_id=agent_id, plan=plan, planned=planned, options=options, sealing=sealing,
            change=change, ids=ids, version=version,
        )  # fmt: skip
        try:
            affected = await self._world.database.transact(step)
        except NotFound:
            return False  # deleted meanwhile
        self._live_agents.reload(affected)
        return True

    def _write(
        self,
        tx: Tx,
        agent_id: AgentId,
        plan: ImportPlan,
        planned: PlannedAgent,
        options: MigrationOptions,
        sealing: Sealing,
        change: Change,
        ids: Sequence[BlockId],
        version: Snapshot,
    ) -> tuple[AgentId, ...]:
        """Returns the agents that must see a change."""
        agent = agent_rows.owned(tx, self._caller.organization_id, agent_id)
        values = agent_variables.read(tx, agent_id)
        _check_length(planned, values)
        caller = self._caller
        found, touched = planned_tools.write(tx, plan.tools, caller.organization_id, caller.user_id, plan.now, sealing)
        wanted = {name: getattr(planned.agent, name) for name in _COLUMNS}
        wanted |= {
            "system": templates.filled(planned.agent.system, values),
            "tags": tuple(sorted({*agent.tags, *planned.agent.tags})),
            "template_id": version.version.id,
            "last_updated_by_id": caller.user_id,
        }
        agent_rows.update_agent(tx, agent_id, wanted, change.at)
        self._give_tools(tx, agent, planned, found)
        if agent.facts != planned.agent.facts:
            fact_progress.follow(tx, agent_id, planned.agent.facts)
        if not options.keep_variables:
            agent_secrets.remove_others(tx, agent_id, sorted(planned.new.secrets))
        seen = self._blocks(tx, agent, planned, values, options, change, ids)
        return tuple(dict.fromkeys((agent_id, *touched, *seen)))

    def _give_tools(self, tx: Tx, agent: Agent, planned: PlannedAgent, found: Mapping[str, Tool]) -> None:
        mine = [found[reference] for reference in planned.tools if reference in found]
        require_heartbeats("tools", agent.agent_type, mine)
        tool_rows.replace_for_agent(tx, agent.id, [tool.id for tool in mine])

    def _blocks(
        self,
        tx: Tx,
        agent: Agent,
        planned: PlannedAgent,
        values: Mapping[str, str],
        options: MigrationOptions,
        change: Change,
        ids: Sequence[BlockId],
    ) -> list[AgentId]:
        """Brings the blocks of an agent in line with the version; returns the agents that see one of them."""
        held = {block.label: block for block in attachments.of_agent(tx, agent.id)}
        affected: list[AgentId] = []
        for block, block_id in zip(planned.blocks, ids, strict=True):
            new = replace(
                block, id=block_id, value=templates.filled(block.value, values), deployment_id=agent.deployment_id
            )
            if (there := held.pop(block.label, None)) is None:
                affected += self._add(tx, agent, new, change, options)
            elif there.deployment_id is not None and there.deployment_id == agent.deployment_id:
                affected += _update(tx, there, new, change, options)
        for gone in held.values() if options.remove_blocks else ():
            if gone.deployment_id is not None and gone.deployment_id == agent.deployment_id:
                affected += _remove(tx, agent.id, gone)
        return affected

    def _add(self, tx: Tx, agent: Agent, new: Block, change: Change, options: MigrationOptions) -> tuple[AgentId, ...]:
        """Gives the agent a block: one that its deployment has from the same place, or a new one. What no agent has is
        of an older version."""
        organization, deployment = self._caller.organization_id, agent.deployment_id or ""
        others = deployments.select(tx, organization, deployment, ("block",))
        if shared := next((BlockId(one.id) for one in others if one.entity_id == new.entity_id), None):
            is_left = not attachments.agents_with(tx, shared)
            attachments.attach(tx, agent.id, shared)
            return _update(tx, blocks.get(tx, shared), new, change, options) if is_left else ()
        blocks.insert(tx, (new,), change.by)
        attachments.attach(tx, agent.id, new.id)
        return ()


def _check_length(planned: PlannedAgent, values: Mapping[str, str]) -> None:
    """Raises InvalidInput when the texts of an agent would become too long."""
    texts = (planned.agent.system, *(block.value for block in planned.blocks))
    if sum(templates.filled_chars(text, values) for text in texts) > FILLED_CHARS_MAX:
        raise InvalidInput(
            "migrate_agents", f"the texts of an agent would have more than {FILLED_CHARS_MAX} characters"
        )


def _update(tx: Tx, there: Block, new: Block, change: Change, options: MigrationOptions) -> tuple[AgentId, ...]:
    wanted = {
        "description": new.description,
        "limit": new.limit,
        "read_only": new.read_only,
        "template_id": new.template_id,
        "entity_id": new.entity_id,
    }
    if not options.keep_memory and not there.preserve_on_migration:
        wanted["value"] = new.value
    return blocks.update(tx, there.id, wanted, change)[2]


def _remove(tx: Tx, agent_id: AgentId, block: Block) -> tuple[AgentId, ...]:
    """Deletes a block, or detaches it when others have it too."""
    if any(other != agent_id for other in attachments.agents_with(tx, block.id)):
        attachments.detach(tx, agent_id, block.id)
        return (agent_id,)
    return blocks.delete(tx, block.id)
