"""What the loop bears: crowds, rushes, long pasts, noisy neighbours, and memory over many turns. Prints JSON.

    python bench/loop.py                          everything, with short windows for memory
    python bench/loop.py --only crowd rush        some of it: crowd, rush, long, neighbours, memory
    python bench/loop.py --only memory --turns 10000 --minutes 60 --per-s 17

The server, the model and this load are processes of their own. Figures that are compared were taken side by side in
one run; the load average before and after tells what else the machine did. A crowd is also sent to a bare server
(`fake_bare.py`): what it needs is what the machine and the libraries take, and no agent can be faster. With 500 turns
in one instant the last of them waits for the CPU of all others, so its wait is near 500 times `cpu_ms`.
"""

import argparse
import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import uvloop

from load.crowd import crowd, rush
from load.long import long_past
from load.memory import many_agents, one_agent
from load.neighbours import neighbours
from load.server import Server, Started

MODEL_MS = 200.0
QUICK_MS = 50.0
MODEL = "openai/gpt-4o-mini"

Part = Callable[[Server, Started], Awaitable[dict[str, Any]]]


async def measured(delay_ms: float, part: Part) -> dict[str, Any]:
    """One part against a Kelpie of its own."""
    before = os.getloadavg()[0]
    house = Started(delay_ms)
    try:
        await house.ready_s()
        server = Server(house.url, house.process.pid, MODEL)
        try:
            found = await part(server, house)
            return found | {"rss_mb": server.rss_mb(), "load_average": [before, os.getloadavg()[0]]}
        finally:
            await server.http.aclose()
    finally:
        house.stop()


async def _crowd(server: Server, house: Started) -> dict[str, Any]:
    return await crowd(server, house, MODEL_MS)


async def _rush(server: Server, _: Started) -> dict[str, Any]:
    return await rush(server, MODEL_MS)


async def _long(server: Server, house: Started) -> dict[str, Any]:
    return await long_past(server, house.database_file)


async def _neighbours(server: Server, house: Started) -> dict[str, Any]:
    return await neighbours(server, house.database_file, QUICK_MS)


async def _memory(
    server: Server, _: Started, turns: int, minutes: float, per_s: float | None
) -> dict[str, dict[str, Any]]:
    found = {"one_agent": await one_agent(server, turns)} if turns else {}
    return found | ({"many_agents": await many_agents(server, minutes * 60, per_s)} if minutes else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2_000, help="of one agent, along which memory is watched; 0: none")
    parser.add_argument("--minutes", type=float, default=1.0, help="with many agents, along which it is too; 0: none")
    parser.add_argument("--per-s", type=float, help="turns a second of the many agents; else as many as go")
    names = ["crowd", "rush", "long", "neighbours", "memory"]
    parser.add_argument("--only", nargs="*", default=names, choices=names, metavar="PART")
    options = parser.parse_args()
    parts: dict[str, tuple[float, Part]] = {
        "crowd": (MODEL_MS, _crowd),
        "rush": (MODEL_MS, _rush),
        "long": (0.0, _long),
        "neighbours": (QUICK_MS, _neighbours),
        "memory": (0.0, partial(_memory, turns=options.turns, minutes=options.minutes, per_s=options.per_s)),
    }
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = {name: runner.run(measured(*parts[name])) for name in options.only}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
