"""The simulated network: connections whose packets arrive in order, later, or not at all.

Two connections never promise each other an order; within one direction of one connection packets never overtake. A lost
packet resets its connection, as TCP ends up doing; a partition holds packets back until it heals. Both ends have a
bounded window, so a slow reader holds up its sender. Packets in flight belong to no node and survive the sender's
death.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any

from kelpie.sim.faults import Fault, Faults
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.loop.node import Node, outside

LATENCY_S = (0.0001, 0.002)
WINDOW = 16  # packets under way or unread, per direction


class ConnectionLost(Exception):
    """The connection was reset, or its other end is gone."""


@dataclass(frozen=True, slots=True)
class End:
    """The last packet of a direction. `clean` is False when the sender stopped in the middle."""

    clean: bool = True


@dataclass(frozen=True, slots=True)
class Hangup(End):
    """The sender has disconnected: what it sent before is still read, what is sent to it is lost."""

    clean: bool = False


class Network:
    """All links of a run, and the partitions between them."""

    def __init__(self, loop: SimLoop, faults: Faults) -> None:
        self.loop = loop
        self.faults = faults
        self._rng = loop.rng("network")
        self._heals_at: dict[str, float] = {}
        self._held: list[Pipe] = []
        self._connections: dict[Node, dict[int, Connection]] = {}
        self._count = 0
        faults.at_quiet(self.heal)

    def connect(self, node: Node, link: str, place: str) -> "Connection":
        """A connection between a node and a peer outside; it is reset when the node dies."""
        self._count += 1
        connection = Connection(self, self._count, node, link, place)
        if node not in self._connections:
            self._connections[node] = {}
            node.at_death(lambda: self._reset_all(node))
        self._connections[node][self._count] = connection
        return connection

    def forget(self, connection: "Connection") -> None:
        self._connections.get(connection.node, {}).pop(connection.number, None)

    def partition(self, link: str, seconds: float) -> None:
        """Stops all packets of this link for the given number of seconds."""
        self._heals_at[link] = max(self._heals_at.get(link, 0.0), self.loop.time() + seconds)

    def heal(self) -> None:
        """Ends every partition."""
        self._heals_at.clear()

    def heals_at(self, link: str) -> float:
        return self._heals_at.get(link, 0.0)

    def latency_s(self) -> float:
        return self._rng.uniform(*LATENCY_S)

    def hold(self, pipe: "Pipe") -> None:
        """Keeps a pipe's packet back until packets of other connections have overtaken it."""
        self._held.append(pipe)

    def arrived(self, pipe: "Pipe") -> None:
        """Called when a packet arrived: the packets it overtook may go on now, or after a few more."""
        held, self._held = self._held, []
        for other in held:
            if other is pipe:
                continue  # it was not overtaken in time
            if other.connection is pipe.connection or self.faults.choose(
                Fault.network_message_reorder, (True, True, True, False)
            ):
                self._held.append(other)
            else:
                other.hurry()

    def _reset_all(self, node: Node) -> None:
        for connection in list(self._connections.pop(node, {}).values()):
            connection.reset()


class Connection:
    """Two pipes: `up` towards the server, `down` towards the client. `link` is what a partition cuts."""

    def __init__(self, network: Network, number: int, node: Node, link: str, place: str) -> None:
        self.network = network
        self.number = number
        self.node = node
        self.link = link
        self.place = place
        self.up = Pipe(self)
        self.down = Pipe(self)

    def leave(self) -> None:
        """Disconnects the client. The server notices once everything sent before has arrived."""
        if self.down.finished:
            self.network.forget(self)
        else:
            self.up.append(Hangup(), self.network.latency_s())

    def reset(self) -> None:
        """Ends both directions at once; a waiting reader or sender gets ConnectionLost."""
        self.network.forget(self)
        self.up.reset()
        self.down.reset()


class Pipe:
    """One direction of a connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._network = connection.network
        self._loop = connection.network.loop
        self.finished = False  # the receiver has seen the end
        self._under_way: deque[tuple[float, Any]] = deque()
        self._unread: deque[Any] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._lost = False
        self._doomed = False

    async def send(self, packet: Any) -> None:
        """Hands a packet to the network, waiting while the window is full. Raises ConnectionLost."""
        while not self._lost and len(self._under_way) + len(self._unread) >= WINDOW:
            await self._change()
        if self._lost:
            raise ConnectionLost("The connection was reset.")
        self.put(packet)

    def put(self, packet: Any) -> None:
        """Hands a packet to the network without waiting; for the last one."""
        if self._lost or self._doomed:
            return
        network, connection, faults = self._network, self.connection, self._network.faults
        delay_s = network.latency_s()
        if faults.fires(Fault.network_packet_loss, connection.place, connection.link):
            self._doomed = True  # what comes after the hole must not be read as if nothing were missing
            self._loop.call_later(delay_s, connection.reset, context=outside())
            return
        if faults.fires(Fault.network_partition, connection.place, connection.link):
            network.partition(connection.link, faults.size(Fault.network_partition))
        if faults.fires(Fault.network_delay, connection.place, connection.link):
            delay_s += faults.size(Fault.network_delay)
        if faults.fires(Fault.network_message_reorder, connection.place, connection.link):
            delay_s += faults.size(Fault.network_message_reorder)
            network.hold(self)
        self.append(packet, delay_s)

    def append(self, packet: Any, delay_s: float) -> None:
        """Puts a packet behind the others, out of the reach of faults."""
        if self._lost or self._doomed or self._loop.is_closed():  # what is left of a run may still try to hang up
            return
        self._under_way.append((self._loop.time() + delay_s, packet))
        if len(self._under_way) == 1:
            self._schedule()

    async def receive(self) -> Any:
        """The next packet; an End stays the last one for ever. Raises ConnectionLost."""
        while not self._unread:
            if self._lost:
                raise ConnectionLost("The connection was reset.")
            await self._change()
        if isinstance(self._unread[0], End):
            self.finished = True
            return self._unread[0]
        packet = self._unread.popleft()
        self._wake()
        return packet

    def reset(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._lost = True
        self._under_way.clear()
        self._unread.clear()
        self._wake()

    def end_here(self) -> None:
        """Ends the receiver, which is on the same side: nothing more will come."""
        self._unread.append(End())
        self._wake()

    def hurry(self) -> None:
        """Lets the packet that is held back arrive now."""
        if self._under_way:
            self._under_way[0] = (self._loop.time(), self._under_way[0][1])
            self._schedule()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = max(self._under_way[0][0], self._network.heals_at(self.connection.link))
        self._timer = self._loop.call_at(due, self._arrive, context=outside())

    def _arrive(self) -> None:
        self._timer = None
        if self._network.heals_at(self.connection.link) > self._loop.time():
            self._schedule()
            return
        packet = self._under_way.popleft()[1]
        self._unread.append(packet)
        self._wake()
        if isinstance(packet, Hangup):
            self._network.forget(self.connection)
            self.connection.down.reset()
        if self._under_way:
            self._schedule()
        self._network.arrived(self)

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
