"""A simulated machine: the context its callbacks carry, and the power cut that ends them all.

A crash is not a cancellation. The callbacks of a dead node are skipped by the loop, so no `finally` runs and no other
part is notified; uncommitted work of the node is lost. A restart is a new Node on the same disk.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar


class Node:
    """One life of a machine, from boot to power cut."""

    def __init__(self, name: str, incarnation: int = 1) -> None:
        self.name = name
        self.incarnation = incarnation
        self.alive = True
        self.died = asyncio.Event()
        self._at_death: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"{self.name}.{self.incarnation}"

    def context(self) -> Context:
        """A fresh context; everything started in it belongs to this node."""
        context = Context()
        context.run(current_node.set, self)
        return context

    def at_death(self, call: Callable[[], None]) -> None:
        """Registers a function to call when this node dies, such as one that resets its connections."""
        self._at_death.append(call)

    def crash(self) -> None:
        """Cuts the power. Every callback of this node is skipped from now on."""
        if not self.alive:
            return
        self.alive = False
        callbacks, self._at_death = self._at_death, []
        outside().run(self._run_at_death, callbacks)

    def _run_at_death(self, callbacks: list[Callable[[], None]]) -> None:
        for call in callbacks:
            call()
        self.died.set()


current_node: ContextVar[Node | None] = ContextVar("kelpie_sim_node", default=None)


def outside() -> Context:
    """A fresh context that belongs to no node: the network, external servers, clients."""
    return Context()
