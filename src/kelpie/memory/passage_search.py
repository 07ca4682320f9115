"""Passages found by words and by meaning, in one archive or in all of an organisation.

A search by meaning that fails is made by words, and says so. What is damaged is counted and not shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from kelpie.core.errors import StorageError
from kelpie.core.ids import ArchiveId, OrganizationId
from kelpie.core.memory.passages import PassageQuery
from kelpie.core.search_hits import SearchMode
from kelpie.memory.embeddings import Embeddings
from kelpie.search.vector_rows import Vector
from kelpie.storage.archives import archives, embedding_models, passage_search
from kelpie.storage.archives.passage_search import FoundPassages
from kelpie.world.database import Database, Tx


@dataclass(frozen=True, slots=True)
class PassageResults:
    """What was found, how it was looked for in the end, and why not as asked."""

    found: list[FoundPassages]
    mode: SearchMode
    lacking: str | None = None
    lost: int = 0  # how many more there are that were damaged on the disk


async def search(
    database: Database,
    meaning: Embeddings,
    organization: OrganizationId,
    archive_id: ArchiveId | None,
    query: PassageQuery,
) -> PassageResults:
    """The best passages of one archive, or of all there are. Raises NotFound for an unknown archive."""
    place = archive_id or organization

    def models(tx: Tx) -> dict[str, str]:
        if archive_id is None:
            return embedding_models.of_organization(tx, organization)
        return embedding_models.of_archive(tx, organization, archive_id)

    if query.mode == "fts" or not query.text.strip():

        def by_words(tx: Tx) -> list[FoundPassages]:
            if archive_id is not None:
                archives.require(tx, organization, archive_id)
            return passage_search.search(tx, place, replace(query, mode="fts"))

        async with meaning.looking.place():
            return _searched(await database.read(by_words), "fts")
    used = await database.read(models)
    meant = await meaning.of_query(used.values(), query.text)
    meanings = meant.by_model(query.text)

    def read(tx: Tx, meanings: Mapping[str, Vector]) -> list[FoundPassages]:
        near = passage_search.nearest(tx, meaning.finder, place, used, query, meanings) if meanings else ()
        return passage_search.search(tx, place, query if near else replace(query, mode="fts"), near)

    lacking = meant.lacking
    async with meaning.looking.place():
        if meanings:
            try:
                found = await database.read(partial(read, meanings=meanings))
                return _searched(found, query.mode, lacking)
            except StorageError as error:
                lacking = meaning.failed(error)
        return _searched(await database.read(partial(read, meanings={})), "fts", lacking)


def _searched(found: list[FoundPassages], mode: SearchMode, lacking: str | None = None) -> PassageResults:
    whole = [each for each in found if not each.passage.lost]
    return PassageResults(whole, mode, lacking, len(found) - len(whole))
