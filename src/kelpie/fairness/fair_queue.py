"""Fair queue: of the organizations that wait, the one that was served longest ago is next; so it is with the agents of
an organization, and each agent keeps its order.

Whoever waits sees every other organization served at most once before it, and one that was not served for a while sees
none. The queue holds whatever its owner lets wait, and decides only whose turn it is: no clock, no limit, no event
loop. An organization that is passed over because it may not have more at present keeps its turn.
"""

from bisect import insort
from collections import OrderedDict
from collections.abc import Iterator
from itertools import count
from typing import Generic, TypeVar

from kelpie.core.access.consumers import Consumer

REMEMBERED_MAX = 10_000  # organizations and agents whose last turn is remembered; others count as never served

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Waiting items, each of one consumer. An item must be hashable and may be in the queue once."""

    def __init__(self) -> None:
        self._served: OrderedDict[str | Consumer, int] = OrderedDict()  # the number of each one's last turn
        self._numbers = count(1)
        self._organizations = _Round[str]()
        self._agents: dict[str, _Round[Consumer]] = {}
        self._items: dict[Consumer, OrderedDict[T, None]] = {}
        self._counts: dict[str, int] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def count(self, organization: str) -> int:
        """Number of waiting items of an organization."""
        return self._counts.get(organization, 0)

    def add(self, consumer: Consumer, item: T) -> None:
        """Adds an item behind the others of its agent."""
        organization = consumer.organization
        if organization not in self._agents:
            self._agents[organization] = _Round()
            self._organizations.enter(organization, self._served.get(organization, 0), next(self._numbers))
        if consumer not in self._items:
            self._items[consumer] = OrderedDict()
            self._agents[organization].enter(consumer, self._served.get(consumer, 0), next(self._numbers))
        self._items[consumer][item] = None
        self._counts[organization] = self.count(organization) + 1
        self._size += 1

    def next_of_each(self) -> Iterator[tuple[Consumer, T]]:
        """The next item of every organization, in the order of their turns. Meanwhile the queue must not change."""
        for organization in self._organizations:
            consumer = next(iter(self._agents[organization]))
            yield consumer, next(iter(self._items[consumer]))

    def serve(self, consumer: Consumer, item: T) -> None:
        """Removes an item whose turn came."""
        self.remove(consumer, item)
        self.record_turn(consumer)

    def record_turn(self, consumer: Consumer) -> None:
        """Records that an organization and its agent were served, now: all others that wait go before them."""
        for each in (consumer.organization, consumer):
            self._served[each] = next(self._numbers)
            self._served.move_to_end(each)
        if consumer.organization in self._agents:
            self._organizations.put_last(consumer.organization, self._served[consumer.organization])
        if consumer in self._items:
            self._agents[consumer.organization].put_last(consumer, self._served[consumer])
        while len(self._served) > REMEMBERED_MAX:
            self._served.popitem(last=False)

    def remove(self, consumer: Consumer, item: T) -> None:
        """Removes an item that no longer waits; nobody's turn changes."""
        organization = consumer.organization
        del self._items[consumer][item]
        if not self._items[consumer]:
            del self._items[consumer]
            self._agents[organization].leave(consumer)
        self._size -= 1
        self._counts[organization] -= 1
        if not self._counts[organization]:
            del self._counts[organization], self._agents[organization]
            self._organizations.leave(organization)


K = TypeVar("K", str, Consumer)


class _Round(Generic[K]):
    """Those that wait, by their last turn; who never had one is in the order of arrival. There are not many at once."""

    def __init__(self) -> None:
        self._order: list[tuple[int, int, K]] = []
        self._places: dict[K, tuple[int, int, K]] = {}

    def __iter__(self) -> Iterator[K]:
        return (place[2] for place in self._order)

    def enter(self, key: K, last_turn: int, arrival: int) -> None:
        self._places[key] = place = (last_turn, arrival, key)
        insort(self._order, place)

    def leave(self, key: K) -> None:
        self._order.remove(self._places.pop(key))

    def put_last(self, key: K, turn: int) -> None:
        self.leave(key)
        self.enter(key, turn, turn)
