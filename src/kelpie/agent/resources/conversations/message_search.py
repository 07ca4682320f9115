"""Messages of all agents of an organization: listed, searched, and added from outside."""

from collections.abc import Sequence
from dataclasses import replace
from zoneinfo import ZoneInfo

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.conversations.messages import Message, MessageQuery, MessageSearch, NewMessage
from kelpie.core.dates.date_mentions import mentions
from kelpie.core.ids import AgentId, MessageId
from kelpie.memory.embeddings import Embeddings
from kelpie.memory.hybrid_search import HybridSearch, SearchResults
from kelpie.memory.search_scopes import MessageScope
from kelpie.storage.accounts import row_ownership
from kelpie.storage.conversations import message_search, messages
from kelpie.storage.conversations.message_search import Found
from kelpie.world.database import Tx
from kelpie.world.world import World

_UTC = ZoneInfo("UTC")


class MessageSearcher:
    """The messages of all agents of the caller's organization."""

    def __init__(self, world: World, embeddings: Embeddings, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._embeddings = embeddings
        self._organization = caller.organization_id

    async def search(self, wanted: MessageSearch) -> SearchResults[Found]:
        """The best messages, best first, without words the newest; damaged ones are counted and not shown."""
        mentioned = mentions(wanted.text, self._world.clock.now(), _UTC) if wanted.mode == "hybrid" else ()
        scope = MessageScope(self._organization, replace(wanted, mentions=mentioned))
        results = await HybridSearch(self._world.database, self._embeddings).search(scope)
        return results.without(lambda each: each[0].lost)

    async def add(self, agent_id: AgentId, said: Sequence[NewMessage]) -> list[Message]:
        """Adds messages from elsewhere to an agent's history; its model does not see them by itself.

        Raises NotFound.
        """
        now, ids = self._world.clock.now(), self._world.ids
        rows = [
            Message(
                ids.new(MessageId), agent_id, new.role, now, new.content, name=new.name, otid=new.otid or ids.uuid()
            )
            for new in said
        ]

        def write(tx: Tx) -> list[Message]:
            row_ownership.agent(tx, self._organization, agent_id)
            messages.append(tx, rows)
            return messages.get_many(tx, [row.id for row in rows])

        return await self._world.database.transact(write)

    async def page(self, query: MessageQuery) -> list[Message]:
        """Messages of all agents, oldest first. Raises NotFound for an unknown cursor."""
        return await self._world.database.read(lambda tx: message_search.select_all(tx, self._organization, query))
