"""`semantic_search_files`: the passages of an agent's files that answer a query best, by words and by meaning."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kelpie.core.access.consumers import Consumer
from kelpie.core.errors import Overloaded, ToolError
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.search_hits import SearchMode
from kelpie.core.tools.tools import Tool
from kelpie.memory.embeddings import Embeddings
from kelpie.memory.hybrid_search import HybridSearch
from kelpie.search.queries import NearestItems, NearItems
from kelpie.search.vector_rows import Vector
from kelpie.storage.accounts import row_ownership
from kelpie.storage.files import file_search, views
from kelpie.storage.files.file_search import FileQuery, FoundFilePassage
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.world.database import Tx
from kelpie.world.world import World

LIMIT_DEFAULT, LIMIT_MAX = 5, 50
QUERY_CHARS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class FileScope:
    """The passages of the files that one agent can read."""

    organization: OrganizationId
    agent_id: AgentId
    query: FileQuery

    @property
    def consumer(self) -> Consumer:
        return Consumer(self.organization, self.agent_id)

    def models(self, tx: Tx) -> Mapping[str, str]:
        row_ownership.agent(tx, self.organization, self.agent_id)
        return file_search.models(tx, self.agent_id)

    def nearest(
        self, tx: Tx, finder: NearestItems, models: Mapping[str, str], vectors: Mapping[str, Vector]
    ) -> NearItems:
        return file_search.nearest(tx, finder, self.agent_id, models, self.query, vectors)

    def ranked(self, tx: Tx, mode: SearchMode, near: NearItems) -> list[FoundFilePassage]:
        row_ownership.agent(tx, self.organization, self.agent_id)
        return file_search.search(tx, self.agent_id, replace(self.query, mode=mode), near)


class SemanticSearchFiles:
    """The tool `semantic_search_files` of one server."""

    def __init__(self, world: World, embeddings: Embeddings) -> None:
        self._world = world
        self._search = HybridSearch(world.database, embeddings)

    async def __call__(self, tool: Tool, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
        """The best passages. Raises ToolError."""
        text = str(arguments.get("query") or "").strip()
        limit = arguments.get("limit")
        number = LIMIT_DEFAULT if limit is None else int(limit)
        if not text or len(text) > QUERY_CHARS_MAX:
            raise ToolError(f"'query' must have 1 to {QUERY_CHARS_MAX} characters.")
        if not 1 <= number <= LIMIT_MAX:
            raise ToolError(f"'limit' must be 1 to {LIMIT_MAX}.")
        agent = call.agent
        if not await self._world.database.read(lambda tx: views.every(tx, agent.id, 1)):
            raise ToolError("You have no files to search. Ask the user to attach a folder with files.")
        try:
            results = await self._search.search(FileScope(agent.organization_id, agent.id, FileQuery(text, number)))
        except Overloaded as error:
            raise ToolError(f"The files were not searched: {error}") from None
        used = list(dict.fromkeys(each.file_id for each in results.found))
        if used:
            await self._world.database.transact(lambda tx: views.use(tx, agent.id, used, call.now))
        note = f"\n\nNote: the files were searched by words only: {results.lacking}." if results.lacking else ""
        return Outcome(_told(text, results.found) + note)


def _told(query: str, found: list[FoundFilePassage]) -> str:
    if not found:
        return f"No semantic matches found in files for query: '{query}'"
    names = {each.file_name for each in found}
    head = f"Found {len(found)} semantic matches in {len(names)} files for query: '{query}'"
    parts = [head, "=" * len(head)]
    for number, each in enumerate(found, 1):
        lines = "\n".join(f"  {line}" for line in each.passage.text.strip().split("\n"))
        parts += ["", f"=== {each.file_name} (passage #{number}) ===", lines]
    return "\n".join(parts)
