"""The simulated world: the parts that exist once per run, and the `World` of adapters that each life of a node gets.

The disk, the internet and the faults belong to the run; clock, ids, randomness and the open database belong to a node's
life and die with it.
"""

from collections.abc import Callable, Mapping

from kelpie.core.encryption import KEY_BYTES
from kelpie.sim.faults import Faults
from kelpie.sim.loop.loop import SimLoop, running
from kelpie.sim.loop.node import Node
from kelpie.sim.network.network import Network
from kelpie.sim.network.outgoing_http import Internet, SimHttp
from kelpie.sim.ports.cells import Code, SimCells, no_code, no_program
from kelpie.sim.ports.cells import Program as CellProgram
from kelpie.sim.ports.clock import SimClock
from kelpie.sim.ports.database import SimDatabase
from kelpie.sim.ports.disk import Disk
from kelpie.sim.ports.embedder import SimEmbedder
from kelpie.sim.ports.processes import Program, SimProcesses
from kelpie.sim.ports.uploads import SimUploads
from kelpie.sim.ports.workers import SimWorkers
from kelpie.world.ids import SeededIds
from kelpie.world.keyring import Key, Keyring
from kelpie.world.world import World


class SimWorld:
    """Everything outside the nodes. Make it inside a running simulation."""

    def __init__(
        self,
        faults: Callable[[SimLoop], Faults] = Faults,
        disk: Disk | None = None,
        programs: Mapping[str, Program] | None = None,
    ) -> None:
        self.loop = running()
        self.faults = faults(self.loop)
        self.disk = disk or Disk()
        self.network = Network(self.loop, self.faults)
        self.internet = Internet(self.network)
        self._programs = programs
        self.code: Code = no_code  # what runs in cells
        self.program: CellProgram = no_program  # what stays and talks in cells
        self.worker_s = (0.0, 0.0)  # range of the time that a worker process takes for a request
        self.ahead_s = 0.0  # time that has gone by on the wall clocks of all nodes at once, between two moments
        self._lives: dict[str, int] = {}

    def node(self, name: str) -> Node:
        """The next life of the machine of this name."""
        self._lives[name] = self._lives.get(name, 0) + 1
        return Node(name, self._lives[name])

    def adapters(self, node: Node) -> World:
        """The World of one life of a node: nothing in it is shared with an earlier life but the disk."""
        http = SimHttp(self.internet, node)
        return World(
            clock=SimClock(self.loop, self.faults, lambda: self.ahead_s),
            ids=SeededIds(self.loop.rng(f"ids/{node}")),
            random=self.loop.rng(f"random/{node}"),
            database=SimDatabase(self.disk, self.faults, node),
            http=http,
            processes=SimProcesses(self._programs),
            embedder=SimEmbedder(self.loop, self.faults, node),
            uploads=SimUploads(self.disk, self.faults),
            workers=SimWorkers(self.loop, self.faults, node, lambda: self.worker_s),
            cells=SimCells(
                self.network,
                self.faults,
                node,
                http,
                lambda inside: self.code(inside),
                lambda inside, channel: self.program(inside, channel),
            ),
            keyring=Keyring([Key(bytes(KEY_BYTES))]),  # a scenario about keys gives its own
        )
