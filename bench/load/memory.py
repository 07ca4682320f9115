"""Whether memory grows with use: RSS of the server along many turns, as kilobytes for each thousand of them.

The slope is a straight line through the second half of the samples: what is loaded or warmed up once is no growth.
The agents have a small window, so that their contexts are full early and are compacted from then on: a context that
fills up is no leak, and with the window of a large model it would hide one.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any

from load.server import Server
from load.turns import turn, whole_turn

TURNS = 10_000
AGENTS = 500
CLIENTS = 40
SAMPLES = 100
WINDOW = 6_000  # tokens: the instructions and about a hundred turns


async def one_agent(server: Server, turns: int = TURNS) -> dict[str, Any]:
    """One agent, one turn after the other."""
    agent = await server.new_agent(WINDOW)
    samples: list[tuple[int, float]] = []
    started = time.perf_counter()
    for number in range(turns):
        if number % max(1, turns // SAMPLES) == 0:
            samples.append((number, server.rss_mb() or 0.0))
        await server.send(agent)
    return _grown(samples, turns, time.perf_counter() - started)


async def many_agents(server: Server, seconds: float) -> dict[str, Any]:
    """Agents in no order, half of the turns streamed."""
    agents = [await server.new_agent(WINDOW) for _ in range(AGENTS)]
    samples: list[tuple[int, float]] = []
    done, end, chance = 0, time.perf_counter() + seconds, random.Random(11)
    busy: set[str] = set()

    async def client() -> None:
        nonlocal done
        while time.perf_counter() < end:
            agent = chance.choice(agents)
            if agent in busy:
                await asyncio.sleep(0.001)
                continue
            busy.add(agent)
            outcome = await (turn(server.url, agent) if chance.random() < 0.5 else whole_turn(server.url, agent))
            if outcome.kind != "ok":
                raise SystemExit(f"a turn failed: {outcome}")
            busy.discard(agent)
            done += 1

    async def look() -> None:
        while time.perf_counter() < end:
            samples.append((done, server.rss_mb() or 0.0))
            await asyncio.sleep(seconds / SAMPLES)

    started = time.perf_counter()
    await asyncio.gather(look(), *(client() for _ in range(CLIENTS)))
    return _grown(samples, done, time.perf_counter() - started) | {"agents": AGENTS}


def _grown(samples: Sequence[tuple[int, float]], turns: int, seconds: float) -> dict[str, Any]:
    half = samples[len(samples) // 2 :]
    return {
        "turns": turns,
        "minutes": round(seconds / 60, 1),
        "rss_mb": {"start": round(samples[0][1], 1), "middle": round(half[0][1], 1), "end": round(samples[-1][1], 1)},
        "kb_per_1000_turns": round(_slope(half) * 1024 * 1000, 1),
    }


def _slope(samples: Sequence[tuple[int, float]]) -> float:
    """Of the straight line that fits best, in megabytes a turn."""
    mean_x = sum(x for x, _ in samples) / len(samples)
    mean_y = sum(y for _, y in samples) / len(samples)
    spread = sum((x - mean_x) ** 2 for x, _ in samples)
    return sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread if spread else 0.0
