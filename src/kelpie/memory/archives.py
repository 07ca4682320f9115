"""Archives API: archives and their passages, as clients see archival memory.

A passage is embedded before it is stored, and then row, words and vectors are one commit. When no model
answers, its words alone are stored, and `embedding_backlog` adds the vectors later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.access.consumers import Consumer
from kelpie.core.dates.date_mentions import mentions
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId, ArchiveId, PassageId
from kelpie.core.memory.passages import (
    PASSAGE_CHARS_MAX,
    Archive,
    ArchiveQuery,
    NewArchive,
    NewPassage,
    Passage,
    PassageQuery,
)
from kelpie.core.paging import Page
from kelpie.llm.routing.models import Models
from kelpie.memory.archive_embedding import ArchiveEmbedding, Progress, with_progress
from kelpie.memory.embeddings import Embeddings, QueryVectors
from kelpie.memory.hybrid_search import HybridSearch, SearchResults
from kelpie.memory.search_scopes import PassageScope
from kelpie.memory.text_edits import cleaned
from kelpie.search import vector_rows
from kelpie.storage.accounts import row_ownership
from kelpie.storage.archives import archives as rows
from kelpie.storage.archives import embedding_models, passages
from kelpie.storage.archives import removal as archive_removal
from kelpie.storage.archives.passage_search import FoundPassages
from kelpie.storage.rows.piece_size import PieceSize
from kelpie.world.database import Tx
from kelpie.world.world import World

_UTC = ZoneInfo("UTC")
VECTORS_MAX = 200  # per answer: a long list of large vectors would not fit into memory


class Archives:
    """Archives and passages of the caller's organization."""

    def __init__(
        self,
        world: World,
        models: Models,
        embeddings: Embeddings,
        piece_size: PieceSize,
        caller: Caller = DEFAULT_CALLER,
    ) -> None:
        self._piece_size = piece_size
        self._world = world
        self._models = models
        self._embeddings = embeddings
        self._user = caller.user_id
        self._organization = caller.organization_id

    async def create(self, new: NewArchive) -> tuple[Archive, Progress]:
        """Makes an archive that no agent uses yet. Raises InvalidInput, NotFound or ModelError for its embedding
        model."""
        embedding = new.embedding and (await self._models.resolve_embedding(new.embedding)).handle
        now = self._world.clock.now()
        archive = Archive(
            id=self._world.ids.new(ArchiveId),
            name=cleaned(new.name),
            created_at=now,
            updated_at=now,
            description=new.description,
            embedding=embedding,
            embedding_chunk_size=new.embedding_chunk_size,
            organization_id=self._organization,
            created_by_id=self._user,
            last_updated_by_id=self._user,
        )
        default = await self._embeddings.default()
        await self._world.database.transact(lambda tx: rows.insert(tx, archive))
        return archive, Progress(archive.embedding or default, None, 0, 0)

    async def get(self, archive_id: ArchiveId) -> tuple[Archive, Progress]:
        """The archive, and how far it is on its way to the embedding model that is meant for it. Raises NotFound."""
        default = await self._embeddings.default()
        return await self._world.database.read(
            lambda tx: with_progress(tx, rows.get(tx, self._organization, archive_id), default)
        )

    async def update(self, archive_id: ArchiveId, changes: Mapping[str, Any]) -> tuple[Archive, Progress]:
        """Changes name, description or embedding model; new vectors are made in the background, and the old ones serve
        until all are there. Raises NotFound, InvalidInput."""
        if changes.get("embedding") is not None:
            changes = {**changes, "embedding": (await self._models.resolve_embedding(changes["embedding"])).handle}
        now, default = self._world.clock.now(), await self._embeddings.default()

        changes = {name: cleaned(value) if isinstance(value, str) else value for name, value in changes.items()}

        def write(tx: Tx) -> tuple[Archive, Progress]:
            return with_progress(tx, rows.update(tx, self._organization, archive_id, changes, now, self._user), default)

        return await self._world.database.transact(write)

    async def embedding(self) -> ArchiveEmbedding:
        """The embedding model of archives and agents that name none, or what is missing to have one."""
        return ArchiveEmbedding(await self._embeddings.default(), await self._embeddings.why_not())

    async def delete(self, archive_id: ArchiveId) -> None:
        """Removes the archive with all its passages; of a large one the rest is swept up later. Raises NotFound."""
        await self._world.database.transact(
            lambda tx: archive_removal.delete(tx, self._organization, archive_id, self._piece_size.rows)
        )

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
        row_ownership.agent(tx, self._organization, agent_id)
        rows.require(tx, self._organization, archive_id)

    # --- passages ------------------------------------------------------------------------------------------------

    async def store(
        self, archive_id: ArchiveId, new: Sequence[NewPassage], within: str = ""
    ) -> tuple[Archive, list[Passage]]:
        """Stores passages, all or none; returns the archive and them, oldest first. Several are a batch, in which each
        is the context of the next one. `within` is the list they came in,
        so that an error can name the wrong one. Raises NotFound, InvalidInput."""
        batch_id = f"batch-{self._world.ids.uuid()}" if len(new) > 1 else None
        made = self._made(archive_id, new, within, batch_id)
        before = await self._world.database.read(lambda tx: rows.get(tx, self._organization, archive_id))
        meant = await self._vectors_of(before, [passage.text for passage in made])

        def write(tx: Tx) -> Archive:
            archive = rows.get(tx, self._organization, archive_id)
            passages.insert_many(tx, made, meant.vectors)
            return archive

        archive = await self._world.database.transact(write)
        embedded = [_embedded(passage, meant) if at < VECTORS_MAX else passage for at, passage in enumerate(made)]
        return archive, sorted(embedded, key=lambda passage: passage.created_at)

    async def remember(self, agent_id: AgentId, new: NewPassage) -> tuple[Archive, Passage]:
        """Stores a passage in the agent's archive, which is made when it has none. Raises NotFound, InvalidInput."""
        fresh, now = self._world.ids.new(ArchiveId), self._world.clock.now()
        (made,) = self._made(fresh, (new,))
        default = await self._embeddings.default()

        def models(tx: Tx) -> tuple[str | None, ...]:
            row_ownership.agent(tx, self._organization, agent_id)
            return embedding_models.of_new(tx, agent_id, default)

        meant = await self._embeddings.of_stored(
            await self._world.database.read(models), [made.text], Consumer(self._organization, agent_id)
        )

        def write(tx: Tx) -> tuple[Archive, Passage]:
            row_ownership.agent(tx, self._organization, agent_id)
            archive = rows.get(tx, self._organization, rows.ensure(tx, agent_id, fresh, now))
            stored = replace(made, archive_id=archive.id)
            passages.insert(tx, stored, meant.vectors.get(stored.text, ()))
            return archive, _embedded(stored, meant)

        return await self._world.database.transact(write)

    async def vectors(self, ids: Sequence[PassageId]) -> Mapping[str, bytes]:
        """The vectors of passages as 32-bit floats, by passage; of a limited number of them."""
        some = ids[:VECTORS_MAX]
        return await self._world.database.read(lambda tx: vector_rows.values_of(tx, "passage", some))

    async def _vectors_of(self, archive: Archive, texts: Sequence[str]) -> QueryVectors:
        """The vectors of new texts: of the model the archive is searched by, and of the one that is meant for it."""
        used = await self._world.database.read(lambda tx: vector_rows.models_of(tx, "passage", (archive.id,)))
        wanted = archive.embedding or await self._embeddings.default()
        return await self._embeddings.of_stored((used.get(archive.id), wanted), texts, Consumer(self._organization))

    def _made(
        self, archive_id: ArchiveId, new: Sequence[NewPassage], within: str = "", batch_id: str | None = None
    ) -> list[Passage]:
        now = self._world.clock.now()
        return [
            Passage(
                id=self._world.ids.new(PassageId),
                archive_id=archive_id,
                text=_checked(f"{within}[{at}].text" if within else "text", each.text),
                # A microsecond apart, so that they are listed in their order.
                created_at=now + at if each.created_at is None else each.created_at,
                updated_at=now,
                tags=tuple(sorted({cleaned(tag) for tag in each.tags})),
                metadata=each.metadata,
                organization_id=self._organization,
                created_by_id=self._user,
                last_updated_by_id=self._user,
                batch_id=batch_id,
                position=at if batch_id else None,
            )
            for at, each in enumerate(new)
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
            row_ownership.agent(tx, self._organization, agent_id)
            passages.delete(tx, rows.archive_of(tx, agent_id), passage_id)

        await self._world.database.transact(write)

    async def of_agent(self, agent_id: AgentId, page: Page, containing: str | None = None) -> list[Passage]:
        """A page of the agent's passages; none for an unknown agent. Raises InvalidInput for a page that cannot be."""

        def read(tx: Tx) -> list[Passage]:
            archive_id = rows.archive_of(tx, agent_id, self._organization)
            return passages.select(tx, archive_id, page, containing) if archive_id else []

        return await self._world.database.read(read)

    async def search_of_agent(self, agent_id: AgentId, query: PassageQuery) -> SearchResults[FoundPassages]:
        """The best passages of the agent's archive. Raises NotFound for an unknown agent."""

        def read(tx: Tx) -> ArchiveId | None:
            row_ownership.agent(tx, self._organization, agent_id)
            return rows.archive_of(tx, agent_id)

        archive_id = await self._world.database.read(read)
        return SearchResults([], "fts") if archive_id is None else await self.search(archive_id, query)

    async def search(self, archive_id: ArchiveId | None, query: PassageQuery) -> SearchResults[FoundPassages]:
        """The best passages of one archive, or of all archives; damaged ones are counted and not shown.

        Raises NotFound for an unknown archive.
        """
        mentioned = mentions(query.text, self._world.clock.now(), _UTC) if query.mode == "hybrid" else ()
        scope = PassageScope(self._organization, archive_id, replace(query, mentions=mentioned))
        results = await HybridSearch(self._world.database, self._embeddings).search(scope)
        return results.without(lambda each: each.passage.lost)

    async def vector_bytes(self) -> int:
        """The number of bytes of all vectors of passages."""
        return await self._world.database.read(lambda tx: embedding_models.vector_bytes(tx, self._organization))

    async def get_many(self, ids: Sequence[ArchiveId]) -> dict[ArchiveId, Archive]:
        """The archives with these ids; those that do not exist are left out."""
        return await self._world.database.read(lambda tx: rows.get_many(tx, self._organization, ids))

    async def page(self, query: ArchiveQuery) -> list[Archive]:
        """Raises NotFound for an unknown cursor, and InvalidInput for a page that cannot be."""
        return await self._world.database.read(lambda tx: rows.select(tx, self._organization, query))


def _embedded(passage: Passage, meant: QueryVectors) -> Passage:
    """The passage with its vector, of the model that is meant for its archive."""
    vectors = meant.vectors.get(passage.text)
    return replace(passage, vector=vectors[-1].values) if vectors else passage


def _checked(field: str, text: str) -> str:
    if len(text) > PASSAGE_CHARS_MAX:
        raise InvalidInput(
            field, f"has {len(text)} characters; a passage may have at most {PASSAGE_CHARS_MAX}. Store it in parts"
        )
    return cleaned(text)
