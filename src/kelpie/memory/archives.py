"""The door to archives and their passages: archival memory as people see it from outside an agent.

Nothing is embedded yet: an archive keeps the embedding model it is meant for, and every search is by words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kelpie.core.accounts import DEFAULT_CALLER, Caller
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId, ArchiveId, PassageId
from kelpie.core.paging import Page
from kelpie.core.passages import (
    PASSAGE_CHARS_MAX,
    Archive,
    ArchiveQuery,
    NewArchive,
    NewPassage,
    Passage,
    PassageQuery,
)
from kelpie.llm.models import Models
from kelpie.memory.edits import cleaned
from kelpie.storage import archives as rows
from kelpie.storage import passages, scope
from kelpie.storage.passages import Found
from kelpie.world.database import Tx
from kelpie.world.world import World


class Archives:
    """Archives and passages of the caller's organisation."""

    def __init__(self, world: World, models: Models, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._models = models
        self._user = caller.user_id
        self._organization = caller.organization_id

    async def create(self, new: NewArchive) -> Archive:
        """Makes an archive that no agent uses yet. Raises InvalidInput or NotFound for its embedding model."""
        if new.embedding is not None:
            await self._models.resolve_embedding(new.embedding)
        now = self._world.clock.now()
        archive = Archive(
            id=self._world.ids.new(ArchiveId),
            name=cleaned(new.name),
            created_at=now,
            updated_at=now,
            description=new.description,
            embedding=new.embedding,
            embedding_chunk_size=new.embedding_chunk_size,
            organization_id=self._organization,
            created_by_id=self._user,
            last_updated_by_id=self._user,
        )
        await self._world.database.transact(lambda tx: rows.insert(tx, archive))
        return archive

    async def get(self, archive_id: ArchiveId) -> Archive:
        """Raises NotFound."""
        return await self._world.database.read(lambda tx: rows.get(tx, self._organization, archive_id))

    async def update(self, archive_id: ArchiveId, changes: Mapping[str, Any]) -> Archive:
        """Changes the name or the description. Raises NotFound."""
        now = self._world.clock.now()
        return await self._world.database.transact(
            lambda tx: rows.update(tx, self._organization, archive_id, changes, now, self._user)
        )

    async def delete(self, archive_id: ArchiveId) -> None:
        """Removes the archive with all its passages; of a large one the rest is swept up later. Raises NotFound."""
        await self._world.database.transact(lambda tx: rows.delete(tx, self._organization, archive_id))

    # --- which agent uses which ----------------------------------------------------------------------------------

    async def agents_of(self, archive_id: ArchiveId, page: Page) -> list[AgentId]:
        """The agents that use the archive. Raises NotFound."""

        def read(tx: Tx) -> list[AgentId]:
            rows.require(tx, self._organization, archive_id)
            return rows.agents_page(tx, self._organization, archive_id, page)

        return await self._world.database.read(read)

    async def attach(self, agent_id: AgentId, archive_id: ArchiveId) -> None:
        """Makes it the agent's archive. Raises NotFound, or Conflict when the agent has another one."""

        def write(tx: Tx) -> None:
            self._require_both(tx, agent_id, archive_id)
            rows.attach(tx, agent_id, archive_id)

        await self._world.database.transact(write)

    async def detach(self, agent_id: AgentId, archive_id: ArchiveId) -> None:
        """Takes the archive from the agent, if it uses it. Raises NotFound when there is no such agent or archive."""

        def write(tx: Tx) -> None:
            self._require_both(tx, agent_id, archive_id)
            rows.detach(tx, agent_id, archive_id)

        await self._world.database.transact(write)

    def _require_both(self, tx: Tx, agent_id: AgentId, archive_id: ArchiveId) -> None:
        scope.agent(tx, self._organization, agent_id)
        rows.require(tx, self._organization, archive_id)

    # --- passages ------------------------------------------------------------------------------------------------

    async def store(self, archive_id: ArchiveId, new: Sequence[NewPassage]) -> tuple[Archive, list[Passage]]:
        """Stores passages, all or none; gives the archive and them, oldest first. Raises NotFound, InvalidInput."""
        made = self._made(archive_id, new)

        def write(tx: Tx) -> Archive:
            archive = rows.get(tx, self._organization, archive_id)
            passages.insert_many(tx, made)
            return archive

        archive = await self._world.database.transact(write)
        return archive, sorted(made, key=lambda passage: passage.created_at)

    async def remember(self, agent_id: AgentId, new: NewPassage) -> tuple[Archive, Passage]:
        """Stores a passage in the agent's archive, which is made when it has none. Raises NotFound, InvalidInput."""
        fresh, now = self._world.ids.new(ArchiveId), self._world.clock.now()
        (made,) = self._made(fresh, (new,))

        def write(tx: Tx) -> tuple[Archive, Passage]:
            scope.agent(tx, self._organization, agent_id)
            archive = rows.get(tx, self._organization, rows.ensure(tx, agent_id, fresh, now))
            stored = replace(made, archive_id=archive.id)
            passages.insert(tx, stored)
            return archive, stored

        return await self._world.database.transact(write)

    def _made(self, archive_id: ArchiveId, new: Sequence[NewPassage]) -> list[Passage]:
        now = self._world.clock.now()
        return [
            Passage(
                id=self._world.ids.new(PassageId),
                archive_id=archive_id,
                text=_checked(each.text),
                created_at=now if each.created_at is None else each.created_at,
                updated_at=now,
                tags=tuple(sorted({cleaned(tag) for tag in each.tags})),
                metadata=each.metadata,
                organization_id=self._organization,
                created_by_id=self._user,
                last_updated_by_id=self._user,
            )
            for each in new
        ]

    async def forget(self, archive_id: ArchiveId, passage_id: PassageId) -> None:
        """Removes a passage of an archive. Raises NotFound."""

        def write(tx: Tx) -> None:
            rows.require(tx, self._organization, archive_id)
            passages.delete(tx, archive_id, passage_id)

        await self._world.database.transact(write)

    async def forget_of_agent(self, agent_id: AgentId, passage_id: PassageId) -> None:
        """Removes a passage of the agent's archive. Raises NotFound."""

        def write(tx: Tx) -> None:
            scope.agent(tx, self._organization, agent_id)
            passages.delete(tx, rows.archive_of(tx, agent_id), passage_id)

        await self._world.database.transact(write)

    async def of_agent(self, agent_id: AgentId, page: Page, containing: str | None = None) -> list[Passage]:
        """A page of the agent's passages; none for an unknown agent. Raises InvalidInput for a page that cannot be."""

        def read(tx: Tx) -> list[Passage]:
            archive_id = rows.archive_of(tx, agent_id, self._organization)
            return passages.select(tx, archive_id, page, containing) if archive_id else []

        return await self._world.database.read(read)

    async def search_of_agent(self, agent_id: AgentId, query: PassageQuery) -> list[Found]:
        """The best passages of the agent's archive, with their scores. Raises NotFound for an unknown agent."""

        def read(tx: Tx) -> list[Found]:
            scope.agent(tx, self._organization, agent_id)
            archive_id = rows.archive_of(tx, agent_id)
            return passages.search(tx, archive_id, query) if archive_id else []

        return await self._world.database.read(read)

    async def search(self, archive_id: ArchiveId | None, query: PassageQuery) -> list[Found]:
        """The best passages of one archive, or of all there are. Raises NotFound for an unknown archive."""

        def read(tx: Tx) -> list[Found]:
            if archive_id is None:
                return passages.search_organization(tx, self._organization, query)
            rows.require(tx, self._organization, archive_id)
            return passages.search(tx, archive_id, query)

        return await self._world.database.read(read)

    async def get_many(self, ids: Sequence[ArchiveId]) -> dict[ArchiveId, Archive]:
        """The archives with these ids; those that do not exist are left out."""
        return await self._world.database.read(lambda tx: rows.get_many(tx, self._organization, ids))

    # Stands last: after it, `list` in this class means the method.
    async def list(self, query: ArchiveQuery) -> list[Archive]:
        """Raises NotFound for an unknown cursor, and InvalidInput for a page that cannot be."""
        return await self._world.database.read(lambda tx: rows.select(tx, self._organization, query))


def _checked(text: str) -> str:
    if len(text) > PASSAGE_CHARS_MAX:
        raise InvalidInput(
            "text", f"has {len(text)} characters, and a passage at most {PASSAGE_CHARS_MAX}; store it in parts"
        )
    return cleaned(text)
