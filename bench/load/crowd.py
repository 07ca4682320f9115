"""Many at once: streamed turns of many agents together, and more requests than the bounds allow.

A burst is what one moment can bring: all connections open in the same instant, so the last of them waits for the CPU
that the others need; `cpu_ms` tells how much that is for each. A steady crowd keeps as many conversations open, each
with a pause between its turns, as people do; it shows what a turn costs when the server is busy but not overrun.

A bare server (`fake_bare.py`) takes the same bursts in alternation: what it needs is what this machine and this stack
need for so many connections, before anything of an agent is done. The load and the model take CPU of the same machine,
which is told beside that of the server.
"""

import asyncio
import os
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from load.server import Server, Started, StartedBare, cpu_s
from load.turns import Outcome, tally, turn

CROWD = 500
STEADY_S = 30.0
PAUSE_S = 10.0  # on average, between two turns of a conversation
RUSH = 1000
ROUNDS = 5  # of bursts, bare and Kelpie in turn
BATCH = 64  # agents that are made, or woken, at once


async def agents_of(server: Server, many: int) -> list[str]:
    return [await server.new_agent() for _ in range(many)]


async def woken(server: Server, agents: list[str]) -> list[str]:
    """The agents after a turn each."""
    for start in range(0, len(agents), BATCH):
        await asyncio.gather(*(turn(server.url, agent) for agent in agents[start : start + BATCH]))
    return agents


async def burst(server: Server, agents: list[str], model_ms: float, model_pid: int | None = None) -> dict[str, Any]:
    """One turn of each agent, all in the same instant; CPU as milliseconds a turn."""
    pids = {"load_cpu_ms": os.getpid()} | ({"model_cpu_ms": model_pid} if model_pid else {})
    cpu, others = server.cpu_s(), {name: cpu_s(pid) for name, pid in pids.items()}
    outcomes = await asyncio.gather(*(turn(server.url, agent) for agent in agents))
    used = {"cpu_ms": server.cpu_s() - cpu} | {name: cpu_s(pid) - others[name] for name, pid in pids.items()}
    return tally(outcomes, model_ms) | {name: round(s * 1000 / len(agents), 2) for name, s in used.items()}


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


async def crowd(server: Server, house: Started, model_ms: float) -> dict[str, Any]:
    agents = await agents_of(server, CROWD)
    cold = await burst(server, agents, model_ms, house.model.pid)
    hot = await beside_bare(server, house, agents, model_ms)
    calm = await steady(server, agents, model_ms)
    return {f"burst_{CROWD}_cold_agents": cold, **hot, f"steady_{CROWD}": calm}


async def beside_bare(server: Server, house: Started, agents: list[str], model_ms: float) -> dict[str, Any]:
    """Bursts on the bare server and on this one in alternation; the median round of each, and the ratios."""
    bare = StartedBare(house)
    other = Server(bare.url, bare.process.pid, server.model)
    rounds: dict[str, list[dict[str, Any]]] = {"bare": [], "kelpie": []}
    try:
        await burst(other, agents, model_ms)  # so that the first use of everything is not counted
        for _ in range(ROUNDS):
            rounds["bare"].append(await burst(other, agents, model_ms, house.model.pid))
            rounds["kelpie"].append(await burst(server, agents, model_ms, house.model.pid))
    finally:
        await other.http.aclose()
        bare.stop()
    found = {name: sorted(rows, key=lambda row: row["cpu_ms"])[ROUNDS // 2] for name, rows in rounds.items()}
    ratio = {
        "cpu": _ratio(rounds, lambda row: row["cpu_ms"]),
        "p50": _ratio(rounds, lambda row: row["overhead"]["p50_ms"]),
        "p99": _ratio(rounds, lambda row: row["overhead"]["p99_ms"]),
    }
    return {f"burst_{CROWD}": found["kelpie"], f"burst_{CROWD}_bare": found["bare"], "over_bare": ratio}


def _ratio(rounds: dict[str, list[dict[str, Any]]], of: Callable[[dict[str, Any]], float]) -> float:
    pairs = zip(rounds["kelpie"], rounds["bare"], strict=True)
    return round(statistics.median(of(ours) / of(bare) for ours, bare in pairs), 2)


async def rush(server: Server, model_ms: float) -> dict[str, Any]:
    """1,000 requests at once to 1,000 agents, then to one; afterwards that one answers as before."""
    many = await burst(server, await agents_of(server, RUSH), model_ms)
    [agent] = await agents_of(server, 1)
    one = tally(await asyncio.gather(*(turn(server.url, agent) for _ in range(RUSH))), model_ms)
    after = tally([await turn(server.url, agent)], model_ms)
    return {f"rush_{RUSH}_agents": many, "rush_one_agent": one, "rush_one_agent_afterwards": after}
