"""Fair queue: organizations take turns, the agents of each organization take turns, and each agent keeps its order.

It holds whatever its owner lets wait, and decides only whose turn it is: no clock, no limit, no event loop. An
organization that is passed over because it may not have more at present keeps its turn.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

from kelpie.core.access.consumers import Consumer

T = TypeVar("T")

_Agents = OrderedDict[str, OrderedDict[T, None]]  # each agent's items, the next agent first


class FairQueue(Generic[T]):
    """Waiting items, each of one consumer. An item must be hashable and may be in the queue once."""

    def __init__(self) -> None:
        self._turns: OrderedDict[str, _Agents[T]] = OrderedDict()  # the next organization first
        self._counts: dict[str, int] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def count(self, organization: str) -> int:
        """Number of waiting items of an organization."""
        return self._counts.get(organization, 0)

    def add(self, consumer: Consumer, item: T) -> None:
        """Adds an item behind the others of its agent."""
        agents = self._turns.get(consumer.organization)
        if agents is None:
            agents = self._turns[consumer.organization] = OrderedDict()
        agents.setdefault(consumer.agent, OrderedDict())[item] = None
        self._counts[consumer.organization] = self.count(consumer.organization) + 1
        self._size += 1

    def next_of_each(self) -> Iterator[tuple[Consumer, T]]:
        """The next item of every organization, in the order of their turns. Meanwhile the queue must not change."""
        for organization, agents in self._turns.items():
            agent = next(iter(agents))
            yield Consumer(organization, agent), next(iter(agents[agent]))

    def serve(self, consumer: Consumer, item: T) -> None:
        """Removes an item whose turn came: its organization and its agent go to the end of their rounds."""
        self.remove(consumer, item)
        agents = self._turns.get(consumer.organization)
        if agents is None:
            return
        self._turns.move_to_end(consumer.organization)
        if consumer.agent in agents:
            agents.move_to_end(consumer.agent)

    def remove(self, consumer: Consumer, item: T) -> None:
        """Removes an item that no longer waits; nobody's turn changes."""
        organization, agent = consumer
        agents = self._turns[organization]
        items = agents[agent]
        del items[item]
        if not items:
            del agents[agent]
        if not agents:
            del self._turns[organization]
        self._size -= 1
        self._counts[organization] -= 1
        if not self._counts[organization]:
            del self._counts[organization]
