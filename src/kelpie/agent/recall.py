"""The door to what was ever said, to whichever agent: read through, searched, and added to from outside."""

from collections.abc import Sequence

from kelpie.core.accounts import DEFAULT_CALLER, Caller
from kelpie.core.ids import AgentId, MessageId
from kelpie.core.messages import Message, MessageQuery, MessageSearch, NewMessage
from kelpie.storage import messages, recall, scope
from kelpie.world.database import Tx
from kelpie.world.world import World


class Recall:
    """The messages of all agents of the caller's organisation."""

    def __init__(self, world: World, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._organization = caller.organization_id

    async def search(self, wanted: MessageSearch) -> list[tuple[Message, float]]:
        """Messages with the words, best first, each with its score; without words the newest first."""
        return await self._world.database.read(lambda tx: recall.search(tx, self._organization, wanted))

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
            scope.agent(tx, self._organization, agent_id)
            messages.append(tx, rows)
            return messages.get_many(tx, [row.id for row in rows])

        return await self._world.database.transact(write)

    # Stands last: after it, `list` in this class means the method.
    async def list(self, query: MessageQuery) -> list[Message]:
        """Messages of all agents, oldest first. Raises NotFound for an unknown cursor."""
        return await self._world.database.read(lambda tx: recall.select_all(tx, self._organization, query))
