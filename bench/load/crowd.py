"""Many at once: streamed turns of many agents together, and more requests than the bounds allow.

A burst is what one moment can bring: all connections open in the same instant, so the last of them waits for the CPU
that the others need; `cpu_ms` tells how much that is for each. A steady crowd keeps as many conversations open, each
with a pause between its turns, as people do; it shows what a turn costs when the server is busy but not overrun.
"""

import asyncio
import random
import time
from typing import Any

from load.server import Server
from load.turns import Outcome, tally, turn

CROWD = 500
STEADY_S = 30.0
PAUSE_S = 10.0  # on average, between two turns of a conversation
RUSH = 1000
BATCH = 64  # agents that are made, or woken, at once


async def agents_of(server: Server, many: int) -> list[str]:
    return [await server.new_agent() for _ in range(many)]


async def woken(server: Server, agents: list[str]) -> list[str]:
    """The agents after a turn each."""
    for start in range(0, len(agents), BATCH):
        await asyncio.gather(*(turn(server.url, agent) for agent in agents[start : start + BATCH]))
    return agents


async def burst(server: Server, agents: list[str], model_ms: float) -> dict[str, Any]:
    """One turn of each agent, all in the same instant."""
    cpu = server.cpu_s()
    outcomes = await asyncio.gather(*(turn(server.url, agent) for agent in agents))
    return tally(outcomes, model_ms) | {"cpu_ms": round((server.cpu_s() - cpu) * 1000 / len(agents), 2)}


async def steady(server: Server, agents: list[str], model_ms: float, seconds: float = STEADY_S) -> dict[str, Any]:
    """Every agent in a conversation of its own, with pauses."""
    outcomes: list[Outcome] = []
    pauses, end = random.Random(7), time.perf_counter() + seconds

    async def talk(agent: str) -> None:
        await asyncio.sleep(pauses.uniform(0, PAUSE_S))
        while time.perf_counter() < end:
            outcomes.append(await turn(server.url, agent))
            await asyncio.sleep(pauses.uniform(0.5, 1.5) * PAUSE_S)

    cpu, started = server.cpu_s(), time.perf_counter()
    await asyncio.gather(*(talk(agent) for agent in agents))
    took = time.perf_counter() - started
    used = server.cpu_s() - cpu
    row = tally(outcomes, model_ms)
    return row | {"per_s": round(len(outcomes) / took, 1), "cpu_ms": round(used * 1000 / len(outcomes), 2)}


async def crowd(server: Server, model_ms: float) -> dict[str, Any]:
    agents = await agents_of(server, CROWD)
    cold = await burst(server, agents, model_ms)
    hot = await burst(server, agents, model_ms)
    calm = await steady(server, agents, model_ms)
    return {f"burst_{CROWD}_cold_agents": cold, f"burst_{CROWD}": hot, f"steady_{CROWD}": calm}


async def rush(server: Server, model_ms: float) -> dict[str, Any]:
    """1,000 requests at once to 1,000 agents, then to one; afterwards that one answers as before."""
    many = await burst(server, await agents_of(server, RUSH), model_ms)
    [agent] = await agents_of(server, 1)
    one = tally(await asyncio.gather(*(turn(server.url, agent) for _ in range(RUSH))), model_ms)
    after = tally([await turn(server.url, agent)], model_ms)
    return {f"rush_{RUSH}_agents": many, "rush_one_agent": one, "rush_one_agent_afterwards": after}
