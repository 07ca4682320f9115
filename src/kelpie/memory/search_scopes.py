"""Search scopes of passages, messages and facts: which rows one query may see, and the statements that find them.

`hybrid_search` runs them. A scope is limited to one caller's organization; no scope may show the rows of another.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kelpie.core.access.consumers import Consumer
from kelpie.core.conversations.messages import MessageSearch
from kelpie.core.ids import AgentId, ArchiveId, OrganizationId
from kelpie.core.memory.facts import FactSearch, FoundFact
from kelpie.core.memory.passages import PassageQuery
from kelpie.core.search_hits import SearchMode
from kelpie.core.time import Micros
from kelpie.search import vector_rows
from kelpie.search.queries import NOTHING_NEAR, NearestItems, NearItems
from kelpie.search.vector_rows import Vector
from kelpie.storage.accounts import row_ownership
from kelpie.storage.archives import archives, embedding_models, passage_search
from kelpie.storage.archives.passage_search import FoundPassages
from kelpie.storage.conversations import message_search
from kelpie.storage.conversations.message_search import Found as FoundMessage
from kelpie.storage.memory import facts
from kelpie.world.database import Tx


@dataclass(frozen=True, slots=True)
class PassageScope:
    """The passages of one archive, or of all archives of an organization."""

    organization: OrganizationId
    archive_id: ArchiveId | None
    query: PassageQuery

    @property
    def consumer(self) -> Consumer:
        return Consumer(self.organization)

    def models(self, tx: Tx) -> Mapping[str, str]:
        if self.archive_id is None:
            return embedding_models.of_organization(tx, self.organization)
        return embedding_models.of_archive(tx, self.organization, self.archive_id)

    def nearest(
        self, tx: Tx, finder: NearestItems, models: Mapping[str, str], vectors: Mapping[str, Vector]
    ) -> NearItems:
        return passage_search.nearest(tx, finder, self._owner, models, self.query, vectors)

    def ranked(self, tx: Tx, mode: SearchMode, near: NearItems) -> list[FoundPassages]:
        if self.archive_id is not None:
            archives.require(tx, self.organization, self.archive_id)
        # When no vector is near enough to be found, a search by vectors alone shows what the words find.
        by_words: SearchMode = "fts" if mode == "vector" and not near else mode
        return passage_search.search(tx, self._owner, replace(self.query, mode=by_words), near)

    @property
    def _owner(self) -> ArchiveId | OrganizationId:
        return self.archive_id or self.organization


@dataclass(frozen=True, slots=True)
class AgentPassageScope:
    """The passages of an agent's archive, which may be replaced by another one between the statements."""

    organization: OrganizationId
    agent_id: AgentId
    query: PassageQuery

    @property
    def consumer(self) -> Consumer:
        return Consumer(self.organization, self.agent_id)

    def models(self, tx: Tx) -> Mapping[str, str]:
        archive_id = archives.archive_of(tx, self.agent_id)
        return vector_rows.models_of(tx, "passage", (archive_id,)) if archive_id else {}

    def nearest(
        self, tx: Tx, finder: NearestItems, models: Mapping[str, str], vectors: Mapping[str, Vector]
    ) -> NearItems:
        archive_id = archives.archive_of(tx, self.agent_id)
        if archive_id is None or archive_id not in models:
            return NOTHING_NEAR
        return passage_search.nearest(tx, finder, archive_id, models, self.query, vectors)


@dataclass(frozen=True, slots=True)
class MessageScope:
    """The messages of an organization's agents, or of the one agent that the query names."""

    organization: OrganizationId
    query: MessageSearch

    @property
    def consumer(self) -> Consumer:
        return Consumer(self.organization, self.query.agent_id or "")

    def models(self, tx: Tx) -> Mapping[str, str]:
        return message_search.models(tx, self.organization, self.query.agent_id)

    def nearest(
        self, tx: Tx, finder: NearestItems, models: Mapping[str, str], vectors: Mapping[str, Vector]
    ) -> NearItems:
        return message_search.nearest(tx, finder, self.organization, models, self.query, vectors)

    def ranked(self, tx: Tx, mode: SearchMode, near: NearItems) -> list[FoundMessage]:
        return message_search.search(tx, self.organization, replace(self.query, mode=mode), near)


@dataclass(frozen=True, slots=True)
class FactScope:
    """The facts of one agent; `now` is the time by which they are shown as true or no longer true."""

    organization: OrganizationId
    agent_id: AgentId
    query: FactSearch
    now: Micros

    @property
    def consumer(self) -> Consumer:
        return Consumer(self.organization, self.agent_id)

    def models(self, tx: Tx) -> Mapping[str, str]:
        row_ownership.agent(tx, self.organization, self.agent_id)
        return vector_rows.models_of(tx, "fact", (self.agent_id,))

    def nearest(
        self, tx: Tx, finder: NearestItems, models: Mapping[str, str], vectors: Mapping[str, Vector]
    ) -> NearItems:
        return facts.nearest(tx, finder, self.agent_id, self.query, models, vectors)

    def ranked(self, tx: Tx, mode: SearchMode, near: NearItems) -> list[FoundFact]:
        row_ownership.agent(tx, self.organization, self.agent_id)
        return facts.search(tx, self.agent_id, replace(self.query, mode=mode), self.now, near)
