"""Templates API: create, change, save in versions, roll back and delete them, and make agents from them.

The document of a template is an agent file without messages; whoever calls this reads and writes its text. Agents are
made as by an import, so all of a deployment or none of it is stored.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from kelpie.agent.agent_files import planned_tools
from kelpie.agent.agent_files.import_plan import ImportPlan, joined
from kelpie.agent.live.live_agents import LiveAgents
from kelpie.agent.resources.agent_file_imports import AgentFileImports
from kelpie.agent.templates import template_texts
from kelpie.core.access.callers import Caller
from kelpie.core.agents import templates as values
from kelpie.core.agents.agent_file import AgentFile, ImportOptions
from kelpie.core.agents.deployments import Deployment
from kelpie.core.agents.templates import (
    NOTE_CHARS_MAX,
    UNSAVED,
    VERSION_BYTES_MAX,
    NewVersion,
    Snapshot,
    Template,
    TemplateVersion,
    VersionName,
)
from kelpie.core.conversations.messages import NewMessage
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId, DeploymentId, GroupId, IdentityId, TemplateId, TemplateVersionId
from kelpie.core.paging import Page
from kelpie.core.tools import environment_variables
from kelpie.storage.encryption.sealing import Sealing
from kelpie.storage.templates import templates as rows
from kelpie.world.database import Tx
from kelpie.world.world import World

FILE = "file"  # how an import calls the document in its errors

T = TypeVar("T")

ReadFile = Callable[[str], AgentFile]
"""Reads the document of a template. Raises InvalidInput."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A document to store, as text and as it is understood. `field` is the field of the request that holds it."""

    document: str
    file: AgentFile
    field: str
    description: str | None = None
    update_existing_tools: bool = False


@dataclass(frozen=True, slots=True)
class NewDeployment:
    """Wishes of a client that makes agents from a template."""

    agent_name: str | None = None
    memory_variables: Mapping[str, str] = field(default_factory=dict[str, str])
    tool_variables: Mapping[str, str] = field(default_factory=dict[str, str])
    tags: tuple[str, ...] = ()
    identity_ids: tuple[IdentityId, ...] = ()
    initial_messages: tuple[NewMessage, ...] | None = None
    model: str | None = None
    embedding: str | None = None
    project_id: str | None = None


@dataclass(frozen=True, slots=True)
class Deployed:
    """The agents of a deployment, the main one first, and what was done otherwise than the template says."""

    deployment_id: DeploymentId
    agent_ids: tuple[AgentId, ...]
    group_id: GroupId | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Noted:
    """A template after a change, and what was done besides."""

    template: Template
    notes: tuple[str, ...] = ()


class Templates:
    """Templates of the caller's organization."""

    def __init__(self, world: World, imports: AgentFileImports, live_agents: LiveAgents, caller: Caller) -> None:
        self._world = world
        self._imports = imports
        self._live_agents = live_agents
        self._caller = caller
        self._organization = caller.organization_id

    # --- reading -------------------------------------------------------------------------------------------------

    async def page(self, page: Page) -> tuple[list[Template], bool]:
        """A page of templates, and whether others follow where it ends. Raises InvalidInput for a page that cannot
        be."""
        return await self._world.database.read(lambda tx: rows.select(tx, self._organization, page))

    async def get(self, name: str) -> tuple[Template, list[TemplateVersion]]:
        """A template and its versions, the newest first, an unsaved one last. Raises NotFound."""

        def read(tx: Tx) -> tuple[Template, list[TemplateVersion]]:
            found = rows.get(tx, self._organization, name)
            return found, rows.versions(tx, found)

        return await self._world.database.read(read)

    async def snapshot(self, wanted: VersionName) -> Snapshot:
        """Raises NotFound, Damaged."""
        return await self._world.database.read(
            lambda tx: rows.snapshot(tx, rows.get(tx, self._organization, wanted.template), wanted.number)
        )

    # --- changing ------------------------------------------------------------------------------------------------

    async def create(self, name: str | None, draft: Draft) -> Noted:
        """Makes a template with version 1, and registers the tools that it brings.

        Raises InvalidInput, Conflict for a name that is taken, ModelError, StorageError.
        """
        ids, now, user = self._world.ids, self._world.clock.now(), self._caller.user_id
        new = Template(
            id=ids.new(TemplateId),
            name=f"template-{ids.uuid()[:8]}" if name is None else values.check_name(name),
            latest=1,
            base=1,
            created_at=now,
            updated_at=now,
            description=draft.description,
            created_by_id=user,
            last_updated_by_id=user,
        )
        version, version_id = self._checked(draft), ids.new(TemplateVersionId)

        def write(tx: Tx) -> Template:
            rows.create(tx, self._organization, new, version, version_id)
            return new

        return Noted(*await self._with_tools(draft, write))

    async def update(self, name: str, draft: Draft, *, save_existing: bool) -> tuple[Noted, int | None]:
        """Makes the document the current version; also returns the number under which unsaved changes were saved
        before. Raises NotFound, InvalidInput, Conflict, ModelError."""
        ids, now, user = self._world.ids, self._world.clock.now(), self._caller.user_id
        version, version_id, saved_id = self._checked(draft), ids.new(TemplateVersionId), ids.new(TemplateVersionId)
        await self._world.database.read(lambda tx: rows.get(tx, self._organization, name))

        def write(tx: Tx) -> tuple[Template, int | None]:
            found, saved = rows.get(tx, self._organization, name, lock=True), None
            if save_existing and found.changed:
                found = rows.save(tx, self._organization, found, saved_id, None, now, user)
                saved = found.latest
            return rows.put(tx, self._organization, found, version, version_id, now, user), saved

        (template, saved), notes = await self._with_tools(draft, write)
        return Noted(template, notes), saved

    async def save(self, name: str, message: str | None) -> Template:
        """Stores the current version under the next number. Raises NotFound, Conflict, InvalidInput."""
        if message is not None and len(message) > NOTE_CHARS_MAX:
            raise InvalidInput("message", f"has {len(message)} characters; use at most {NOTE_CHARS_MAX}")
        now, version_id = self._world.clock.now(), self._world.ids.new(TemplateVersionId)

        def write(tx: Tx) -> Template:
            found = rows.get(tx, self._organization, name, lock=True)
            return rows.save(tx, self._organization, found, version_id, message, now, self._caller.user_id)

        return await self._world.database.transact(write)

    async def roll_back(self, name: str, version: str) -> tuple[Template, int | None]:
        """Makes a saved version the current one; unsaved changes are saved before, and the number of that version is
        returned. Raises NotFound, InvalidInput, Conflict."""
        number = values.version_number(version, "version")
        if number == UNSAVED:
            raise InvalidInput("version", "must be a saved version, such as 1, 2 or latest")
        now, version_id, user = self._world.clock.now(), self._world.ids.new(TemplateVersionId), self._caller.user_id

        def write(tx: Tx) -> tuple[Template, int | None]:
            found = rows.get(tx, self._organization, name, lock=True)
            target, saved = found.latest if number is None else number, None
            rows.snapshot(tx, found, target)  # before anything is written for it
            if found.changed:
                found = rows.save(tx, self._organization, found, version_id, None, now, user)
                saved = found.latest
            return rows.roll_back(tx, found, target, now, user), saved

        return await self._world.database.transact(write)

    async def delete(self, name: str) -> None:
        """Deletes all versions of a template; its agents stay. Raises NotFound."""

        def write(tx: Tx) -> None:
            rows.delete(tx, rows.get(tx, self._organization, name, lock=True))

        await self._world.database.transact(write)

    def _checked(self, draft: Draft) -> NewVersion:
        """Raises InvalidInput for a document that is too large."""
        size = len(draft.document.encode())
        if size > VERSION_BYTES_MAX:
            raise InvalidInput(
                draft.field, f"has {size} bytes without its messages; a template has at most {VERSION_BYTES_MAX}"
            )
        with named(draft.field):
            return NewVersion(draft.document, template_texts.variables(draft.file))

    async def _with_tools(self, draft: Draft, write: Callable[[Tx], T]) -> tuple[T, tuple[str, ...]]:
        """Stores something and registers the tools of the file in the same transaction, after the whole file was
        checked as for an import. Also returns what was done besides."""
        notes: list[str] = []
        options = ImportOptions(override_existing_tools=draft.update_existing_tools, append_copy_suffix=False)
        with named(draft.field):
            plan = await self._imports.plan(draft.file, options, notes)
        sealing = Sealing(self._world.keyring, self._world.ids.secret())

        def both(tx: Tx) -> tuple[T, tuple[AgentId, ...]]:
            return write(tx), self._register(tx, plan, sealing)

        written, affected = await self._world.database.transact(both)
        self._live_agents.reload(affected)
        return written, tuple(dict.fromkeys(notes))

    def _register(self, tx: Tx, plan: ImportPlan, sealing: Sealing) -> tuple[AgentId, ...]:
        caller = self._caller
        return planned_tools.write(tx, plan.tools, caller.organization_id, caller.user_id, plan.now, sealing)[1]

    # --- agents --------------------------------------------------------------------------------------------------

    async def deploy(self, wanted: VersionName, read: ReadFile, new: NewDeployment) -> Deployed:
        """Makes the agents of a version, all of them or none.

        Raises NotFound, InvalidInput, Conflict, ModelError, QuotaExceeded, StorageError.
        """
        environment_variables.check_all("tool_variables", new.tool_variables)
        found = await self.snapshot(wanted)
        values.check_values(new.memory_variables, found.version.variables)
        with named("template"):
            file = template_texts.filled(read(found.document), new.memory_variables)
            deployment = Deployment(
                self._world.ids.new(DeploymentId),
                found.version.id,
                found.template.id,
                new.memory_variables,
                new.tags,
                new.identity_ids,
                new.initial_messages,
            )
            options = ImportOptions(
                override_existing_tools=False,
                append_copy_suffix=False,
                name=new.agent_name,
                model=new.model,
                embedding=new.embedding,
                project_id=new.project_id,
                secrets=new.tool_variables,
                deployment=deployment,
            )
            made = await self._imports.load(file, options)
        missing = [name for name in found.version.variables if name not in new.memory_variables]
        note = (f"No values were given for the variables {joined(missing)}; they are empty.",) if missing else ()
        group = made.group_ids[0] if made.group_ids else None
        return Deployed(deployment.id, made.agent_ids, group, (*note, *made.notes))


@contextmanager
def named(field: str) -> Generator[None]:
    """Errors about the file name the field of the request that it came from."""
    try:
        yield
    except InvalidInput as error:
        if error.field != FILE and not error.field.startswith((f"{FILE}.", f"{FILE}[")):
            raise
        raise InvalidInput(field + error.field.removeprefix(FILE), error.remedy) from None
