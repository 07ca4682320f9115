"""Whether a turn costs more the longer the history is: turns around the 20th beside turns around the 200th.

Young and old agents take their blocks in alternation, so that whatever else the machine does weighs on both alike.
"""

import statistics
import time
from typing import Any

from load.server import Server

AGENTS = 12
YOUNG, OLD = 20, 200
HALF = 10  # a block goes from so many turns before to so many after


async def growth(server: Server) -> dict[str, Any]:
    """CPU and wall time of a turn at both ages, as medians over the agents, and their ratios."""
    young, old = [], []
    for _ in range(AGENTS):
        young.append(await _aged(server, YOUNG - HALF))
        old.append(await _aged(server, OLD - HALF))
    blocks: dict[int, list[tuple[float, float]]] = {YOUNG: [], OLD: []}
    for pair in zip(young, old, strict=True):
        for age, agent in zip((YOUNG, OLD), pair, strict=True):
            blocks[age].append(await _block(server, agent))
    cpu = {age: statistics.median(block[0] for block in found) for age, found in blocks.items()}
    wall = {age: statistics.median(block[1] for block in found) for age, found in blocks.items()}
    turns = {f"turn_{age}": {"cpu_ms": round(cpu[age], 3), "p50_ms": round(wall[age], 2)} for age in blocks}
    ratio = {
        "cpu": round(cpu[OLD] / cpu[YOUNG], 3) if cpu[YOUNG] else None,
        "wall": round(wall[OLD] / wall[YOUNG], 3),
    }
    return turns | {f"turn_{OLD}_over_turn_{YOUNG}": ratio | {"agents": AGENTS, "turns_each": 2 * HALF}}


async def _aged(server: Server, turns: int) -> str:
    agent = await server.new_agent()
    for _ in range(turns):
        await server.send(agent)
    return agent


async def _block(server: Server, agent: str) -> tuple[float, float]:
    """Milliseconds a turn: CPU as the mean of the block, wall time as its median."""
    times: list[float] = []
    cpu = server.cpu_s()
    for _ in range(2 * HALF):
        started = time.perf_counter()
        await server.send(agent)
        times.append((time.perf_counter() - started) * 1000)
    return (server.cpu_s() - cpu) * 1000 / len(times), statistics.median(times)
