"""Whether memory grows with use: RSS of the server along many turns, as kilobytes for each thousand of them.

The slope is a straight line through the second half of the samples: what is loaded or warmed up once is no growth.
The agents have a small window, so that their contexts are full early and are compacted from then on: a context that
fills up is no leak, and with the window of a large model it would hide one. Many agents at a modest rate get messages
long enough to fill their contexts in the first third of the time.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from load.server import Server
from load.turns import turn, whole_turn

TURNS = 10_000
AGENTS = 500
CLIENTS = 40
SAMPLES = 100
WINDOW = 6_000  # tokens: the instructions and about a hundred turns
CHARS_PER_TOKEN = 4
FILLED = 1 / 3  # of the time, at a given rate, until every context has been full once


@dataclass(frozen=True, slots=True)
class Sample:
    """Where memory was, after so many turns and seconds."""

    turns: int
    seconds: float
    rss_mb: float


async def one_agent(server: Server, turns: int = TURNS) -> dict[str, Any]:
    """One agent, one turn after the other."""
    agent = await server.new_agent(WINDOW)
    samples: list[Sample] = []
    started = time.perf_counter()
    for number in range(turns + 1):
        if number % max(1, turns // SAMPLES) == 0:
            samples.append(Sample(number, time.perf_counter() - started, server.rss_mb() or 0.0))
        await server.send(agent)
    return _grown(samples)


async def many_agents(server: Server, seconds: float, per_s: float | None = None) -> dict[str, Any]:
    """Agents in no order, half of the turns streamed; so many turns a second, or as many as go."""
    agents = [await server.new_agent(WINDOW) for _ in range(AGENTS)]
    text = _filling(seconds, per_s) if per_s else "hello there"
    samples: list[Sample] = []
    done, started, chance = 0, time.perf_counter(), random.Random(11)
    end, turns_s = started + seconds, CLIENTS / per_s if per_s else 0.0
    busy: set[str] = set()

    async def client() -> None:
        nonlocal done
        while time.perf_counter() < end:
            agent = chance.choice(agents)
            if agent in busy:
                await asyncio.sleep(0.001)
                continue
            busy.add(agent)
            ask = turn if chance.random() < 0.5 else whole_turn
            outcome, _ = await asyncio.gather(ask(server.url, agent, text=text), _pause(chance, turns_s))
            if outcome.kind != "ok":
                raise SystemExit(f"a turn failed: {outcome}")
            busy.discard(agent)
            done += 1

    async def look() -> None:
        while time.perf_counter() < end:
            samples.append(Sample(done, time.perf_counter() - started, server.rss_mb() or 0.0))
            await asyncio.sleep(seconds / SAMPLES)

    cpu = server.cpu_s()
    await asyncio.gather(look(), *(client() for _ in range(CLIENTS)))
    used = (server.cpu_s() - cpu) / (time.perf_counter() - started)
    return _grown(samples) | {"agents": AGENTS, "cores_used": round(used, 3)}


async def _pause(chance: random.Random, mean_s: float) -> None:
    await asyncio.sleep(chance.uniform(0.5, 1.5) * mean_s)


def _filling(seconds: float, per_s: float) -> str:
    """A message so long that the turns of a third of the time fill the window of every agent."""
    turns = max(1, seconds * FILLED * per_s / AGENTS)
    return "hello there " * int(WINDOW * CHARS_PER_TOKEN / turns / len("hello there ") + 1)


def _grown(samples: Sequence[Sample]) -> dict[str, Any]:
    """How memory went: at the end of each tenth, and the slopes of the second half."""
    half, last = samples[len(samples) // 2 :], samples[-1]
    tenths = [samples[(len(samples) - 1) * i // 10] for i in range(11)]
    return {
        "turns": last.turns,
        "minutes": round(last.seconds / 60, 1),
        "rss_mb_by_turn": {sample.turns: round(sample.rss_mb, 2) for sample in tenths},
        "second_half": {
            "kb_per_1000_turns": round(_slope([(s.turns, s.rss_mb) for s in half]) * 1024 * 1000, 1),
            "kb_per_minute": round(_slope([(s.seconds / 60, s.rss_mb) for s in half]) * 1024, 1),
        },
    }


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the straight line that fits best."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
