"""The machine of a scenario: it is booted, crashes, and is booted again on the same disk; and its clients.

A supervisor restarts the machine as an operator's would. Everything the product touches comes from the World that its
boot function is given; the `Machine` object itself belongs to no node and survives every crash.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from kelpie.core.settings.settings import Settings
from kelpie.sim.checks.client_history import History
from kelpie.sim.loop.errors import Broken
from kelpie.sim.loop.node import Node, outside
from kelpie.sim.network.http_client import SimClient
from kelpie.sim.network.http_server import App, Server
from kelpie.sim.ports.model_provider import ScriptedLlm
from kelpie.sim.runs.sim_world import SimWorld
from kelpie.world.world import World

NODE = "kelpie"
LLM_HOST = "llm.sim"
RESTART_S = (0.1, 5.0)
BOOTS_MAX = 200
STOP_S_MAX = 120.0


class RunningApp(Protocol):
    """The result of a boot function."""

    @property
    def asgi(self) -> App: ...

    async def stop(self) -> None:
        """Stops it in an orderly way."""
        ...


Boot = Callable[[World, Settings], Awaitable[RunningApp]]


class Machine:
    """One run of a scenario. Make it inside a running simulation."""

    def __init__(self, world: SimWorld, boot: Boot | None, settings: Settings) -> None:
        self.world = world
        self.loop = world.loop
        self.faults = world.faults
        self.disk = world.disk
        self.rng = world.loop.rng("workload")
        self.history = History(world.loop)
        self.llm = ScriptedLlm(world.loop, world.faults)
        self.node: Node | None = None
        self.boots = 0
        self.failures: list[str] = []
        self.scene: object = None  # what a scenario keeps from one of its parts to the next
        self._boot = boot
        self._settings = settings
        self._restarts = world.loop.rng("restarts")
        self._app: RunningApp | None = None
        self._server: Server | None = None
        self._changed = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None
        world.internet.host(LLM_HOST, self.llm)

    @property
    def running(self) -> RunningApp | None:
        """The result of the latest boot."""
        return self._app

    def client(self, name: str = "client", headers: Mapping[str, str] | None = None) -> SimClient:
        """A client that connects to whichever life of the node is up. `headers` go with each of its requests."""
        return SimClient(name, lambda: self._server, self.faults, headers)

    def start(self) -> None:
        """Switches the machine on and keeps it running."""
        assert self._boot is not None, "the scenario has no boot function"
        if self._supervisor is None:
            supervising = self._supervise(self._boot)
            self._supervisor = self.loop.create_task(supervising, name="supervisor", context=outside())

    async def up(self) -> Server:
        """Waits until the node listens."""
        self.start()
        while self._server is None or not self._server.node.alive:
            self._changed.clear()
            await self._changed.wait()
        return self._server

    def crash(self) -> None:
        """Cuts the power now; the supervisor boots the machine again after a while."""
        if self.node is not None:
            self.loop.note(f"power cut {self.node}")
            self.node.crash()

    async def restart(self) -> Server:
        """Cuts the power and waits until the node listens again."""
        self.crash()
        return await self.up()

    async def stop(self) -> None:
        """Stops the node in an orderly way. Raises Broken when that takes too long."""
        if self._supervisor is not None:
            self._supervisor.cancel()
        if self._app is None or self.node is None or not self.node.alive:
            return
        stopping = self.loop.create_task(_stop(self._app), name="stop", context=self.node.context())
        done, _ = await asyncio.wait((stopping,), timeout=STOP_S_MAX)
        if not done:
            raise Broken("an orderly stop ends", f"stop() did not return within {STOP_S_MAX} s")
        await stopping

    async def _supervise(self, boot: Boot) -> None:
        while self.boots < BOOTS_MAX:
            node = await self._boot_once(boot)
            await node.died.wait()
            self._server = None
            self._changed.set()
            await asyncio.sleep(self._restarts.uniform(*RESTART_S))
        self.loop.fail(Broken("the node comes up", f"booted {self.boots} times; last failures: {self.failures[-3:]}"))

    async def _boot_once(self, boot: Boot) -> Node:
        node = self.node = self.world.node(NODE)
        self.boots += 1
        self.loop.note(f"boot {node}")
        world = node.context().run(self.world.adapters, node)
        booting = self.loop.create_task(_boot(boot, world, self._settings), name="boot", context=node.context())
        dying = asyncio.ensure_future(node.died.wait())
        await asyncio.wait((booting, dying), return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if not booting.done():
            return node
        if error := booting.exception():
            self.failures.append(f"{type(error).__name__}: {error}")
            self.loop.note(f"boot of {node} failed with {type(error).__name__}")
            node.crash()
            return node
        self._app = booting.result()
        self._server = Server(self.world.network, node, self._app.asgi)
        self._changed.set()
        return node


async def _boot(boot: Boot, world: World, settings: Settings) -> RunningApp:
    return await boot(world, settings)


async def _stop(app: RunningApp) -> None:
    await app.stop()
