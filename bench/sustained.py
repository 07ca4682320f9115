"""Whether a server holds its pace: many agents that get messages without a pause, in windows of equal length.

    python bench/sustained.py                           64 agents for four minutes
    python bench/sustained.py --seconds 90 --agents 64
    python bench/sustained.py --tree DIR                the server of another checkout

Prints JSON. Each window has the turns a second, the CPU milliseconds of the server for a turn, the megabytes of the
server and of its embedding process at its end, and the messages that an agent has in its context. On a busy machine
the turns a second say little, and the CPU of a turn says most. The model is bench/fake_model.py.
"""

import argparse
import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from embedding import child_of, rss_mb
from load.server import LeanClient, Server, Started, cpu_s

WINDOWS = 6
MODEL = "openai/gpt-4o-mini"


class Load:
    """Clients that talk without a pause, one for each agent."""

    def __init__(self, url: str, agents: list[str]) -> None:
        self._clients = [(LeanClient(url), agent) for agent in agents]
        self.turns = 0
        self._over = False

    async def run(self, seconds: float) -> None:
        self._over = False
        talking = [asyncio.create_task(self._talk(client, agent)) for client, agent in self._clients]
        await asyncio.sleep(seconds)
        self._over = True
        await asyncio.gather(*talking)

    async def _talk(self, client: LeanClient, agent: str) -> None:
        while not self._over:
            await client.send(agent)
            self.turns += 1


async def windows(house: Started, agents: int, seconds: float) -> list[dict[str, Any]]:
    pid = house.process.pid
    server = Server(house.url, pid, MODEL)
    load = Load(house.url, [await server.new_agent() for _ in range(agents)])
    found: list[dict[str, Any]] = []
    for _ in range(WINDOWS):
        turns, cpu, started = load.turns, cpu_s(pid), time.perf_counter()
        await load.run(seconds / WINDOWS)
        made, took = load.turns - turns, time.perf_counter() - started
        child = child_of(pid)
        found.append(
            {
                "turns_per_s": round(made / took, 1),
                "cpu_ms": round((cpu_s(pid) - cpu) * 1000 / made, 3),
                "server_mb": rss_mb(pid),
                "process_mb": rss_mb(child) if child else 0.0,
                "messages_in_context": 2 * load.turns // agents,
                "load_average": round(os.getloadavg()[0], 1),
            }
        )
    return found


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    house = Started(0, options.tree)
    try:
        await house.ready_s()
        found = await windows(house, options.agents, options.seconds)
    finally:
        house.stop()
    last_over_second = round(found[-1]["cpu_ms"] / found[1]["cpu_ms"], 3)  # in the first, agents are loaded
    return {"agents": options.agents, "windows": found, "cpu_of_last_over_second": last_over_second}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agents", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--tree", type=Path)
    print(json.dumps(asyncio.run(measure(parser.parse_args())), indent=1))


if __name__ == "__main__":
    main()
