"""Finding tools: by the words of their names, tags, descriptions and parameters, by meaning, or both."""

from dataclasses import dataclass, replace

from kelpie.core.errors import StorageError
from kelpie.core.ids import OrganizationId
from kelpie.core.search_hits import SearchMode
from kelpie.core.tools.tools import ToolHit, ToolSearch
from kelpie.memory.embeddings import Embeddings, QueryVectors
from kelpie.search import vector_rows
from kelpie.storage.tools import search as rows
from kelpie.world.database import Database, Tx


@dataclass(frozen=True, slots=True)
class FoundTools:
    """What was found, how it was looked for in the end, and why not as asked."""

    found: list[ToolHit]
    mode: SearchMode
    lacking: str | None = None


async def search(
    database: Database, meaning: Embeddings, organization: OrganizationId, wanted: ToolSearch
) -> FoundTools:
    """The best tools of an organisation, best first; without words the newest first."""
    meant, model = QueryVectors(), None
    if wanted.mode != "fts" and wanted.words.strip():
        model = (await database.read(lambda tx: vector_rows.models_of(tx, "tool", (organization,)))).get(organization)
        meant = await meaning.of_query((model,), wanted.words)
    meanings = meant.by_model(wanted.words)

    def read(tx: Tx) -> list[ToolHit]:
        assert model is not None
        near = rows.nearest(tx, meaning.finder, organization, model, wanted, meanings)
        return rows.search(tx, organization, wanted, near)

    lacking = meant.lacking
    if meanings:
        try:
            async with meaning.looking.place():
                return FoundTools(await database.read(read), wanted.mode, lacking)
        except StorageError as error:
            lacking = meaning.failed(error)
    by_words = replace(wanted, mode="fts")
    return FoundTools(await database.read(lambda tx: rows.search(tx, organization, by_words)), "fts", lacking)
