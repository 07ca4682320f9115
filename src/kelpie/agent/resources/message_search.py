"""The door to what was ever said, to whichever agent: read through, searched, and added to from outside."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.conversations.messages import Message, MessageQuery, MessageSearch, NewMessage
from kelpie.core.errors import StorageError
from kelpie.core.ids import AgentId, MessageId
from kelpie.core.search_hits import SearchMode
from kelpie.memory.embeddings import Embeddings, QueryVectors
from kelpie.storage.accounts import row_ownership
from kelpie.storage.conversations import message_search, messages
from kelpie.storage.conversations.message_search import Found
from kelpie.world.database import Tx
from kelpie.world.world import World


@dataclass(frozen=True, slots=True)
class MessageResults:
    """What was found, how it was looked for in the end, and why not as asked."""

    found: list[Found]
    mode: SearchMode
    lacking: str | None = None
    lost: int = 0  # how many more there are that were damaged on the disk


class MessageSearcher:
    """The messages of all agents of the caller's organisation."""

    def __init__(self, world: World, meaning: Embeddings, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._meaning = meaning
        self._organization = caller.organization_id

    async def search(self, wanted: MessageSearch) -> MessageResults:
        """The best messages, best first; without words the newest first."""
        database, organization, agent_id = self._world.database, self._organization, wanted.agent_id
        meant, used = QueryVectors(), dict[str, str]()
        if wanted.mode != "fts" and wanted.text.strip():
            used = await database.read(lambda tx: message_search.models(tx, organization, agent_id))
            meant = await self._meaning.of_query(used.values(), wanted.text)
        meanings = meant.by_model(wanted.text)

        def read(tx: Tx) -> list[Found]:
            near = message_search.nearest(tx, self._meaning.finder, organization, used, wanted, meanings)
            return message_search.search(tx, organization, wanted, near)

        lacking = meant.lacking
        async with self._meaning.looking.place():
            if meanings:
                try:
                    return _recalled(await database.read(read), wanted.mode, lacking)
                except StorageError as error:
                    lacking = self._meaning.failed(error)
            by_words = replace(wanted, mode="fts")
            found = await database.read(lambda tx: message_search.search(tx, organization, by_words))
            return _recalled(found, "fts", lacking)

    async def add(self, agent_id: AgentId, said: Sequence[NewMessage]) -> list[Message]:
        """Puts messages that came about elsewhere into an agent's history; its model does not see them by itself.

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

    # Stands last: after it, `list` in this class means the method.
    async def list(self, query: MessageQuery) -> list[Message]:
        """Messages of all agents, oldest first. Raises NotFound for an unknown cursor."""
        return await self._world.database.read(lambda tx: message_search.select_all(tx, self._organization, query))


def _recalled(found: list[Found], mode: SearchMode, lacking: str | None) -> MessageResults:
    whole = [each for each in found if not each[0].lost]
    return MessageResults(whole, mode, lacking, len(found) - len(whole))
