"""Whether a long past costs: an agent with 100,000 messages beside a new one, turn by turn in alternation.

One has them in its history only, as an agent whose context was compacted; one has them all before its model, of which
the newest fill the window. Pages of the history are read at its end, in its middle and at its beginning.
"""

import json
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from load.seeding import give_past
from load.server import LeanClient, Server

PAST = 100_000
TURNS = 60
PAGES = 30
PAGE = 100


async def long_past(server: Server, database_file: Path) -> dict[str, Any]:
    new, old, full = [await server.new_agent() for _ in range(3)]
    await give_past(database_file, old, PAST, seen=False)
    await give_past(database_file, full, PAST, seen=True)
    server.lean = LeanClient(server.url)  # the other connection has been idle for too long by now
    agents = {"new": new, "in_history": old, "in_context": full}
    first = {name: await _wall_ms(lambda a=agent: server.send(a)) for name, agent in agents.items()}
    turns = await _turns(server, agents)
    ratio = {name: round(turns[name]["p50_ms"] / turns["new"]["p50_ms"], 2) for name in agents}
    return {
        "first_turn_ms": {name: round(ms, 1) for name, ms in first.items()},
        "turns": turns,
        "turn_over_new": ratio,
        "pages": await _pages(server, new, old),
    }


async def _turns(server: Server, agents: dict[str, str]) -> dict[str, dict[str, float]]:
    wall: dict[str, list[float]] = {name: [] for name in agents}
    cpu = dict.fromkeys(agents, 0.0)
    for _ in range(TURNS):
        for name, agent in agents.items():
            used = server.cpu_s()
            wall[name].append(await _wall_ms(lambda a=agent: server.send(a)))
            cpu[name] += server.cpu_s() - used
    return {
        name: {"p50_ms": round(statistics.median(wall[name]), 2), "cpu_ms": round(cpu[name] * 1000 / TURNS, 2)}
        for name in agents
    }


async def _pages(server: Server, new: str, old: str) -> dict[str, Any]:
    """Milliseconds a page; the new agent has one page, full, by now."""
    middle, start = await _cursors(server, old)
    asked = {
        "new_agent": f"/v1/agents/{new}/messages?limit={PAGE}",
        "newest": f"/v1/agents/{old}/messages?limit={PAGE}",
        "oldest": f"/v1/agents/{old}/messages?limit={PAGE}&order=asc",
        "before_the_middle": f"/v1/agents/{old}/messages?limit={PAGE}&before={middle}",
        "after_the_middle": f"/v1/agents/{old}/messages?limit={PAGE}&order=asc&after={middle}",
        "after_the_start": f"/v1/agents/{old}/messages?limit={PAGE}&order=asc&after={start}",
    }
    found: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(PAGES):
        for name, path in asked.items():
            found[name].append(await _wall_ms(lambda p=path: server.get(p)))
    took = {name: round(statistics.median(times), 2) for name, times in found.items()}
    slowest = max(took[name] for name in asked if name != "new_agent")
    return {"ms": took, "slowest_over_newest": round(slowest / took["newest"], 2)}


async def _cursors(server: Server, agent: str) -> tuple[str, str]:
    """A message in the middle, walked to in large pages, and one near the beginning."""
    page = json.loads(await server.get(f"/v1/agents/{agent}/messages?limit=1000&order=asc"))
    start = page[10]["id"]
    for _ in range(PAST // 2000):
        page = json.loads(await server.get(f"/v1/agents/{agent}/messages?limit=1000&order=asc&after={page[-1]['id']}"))
    return page[-1]["id"], start


async def _wall_ms(work: Callable[[], Awaitable[Any]]) -> float:
    started = time.perf_counter()
    await work()
    return (time.perf_counter() - started) * 1000
