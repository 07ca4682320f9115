"""Whether one agent makes another wait: the same turns of a quiet agent, alone and beside each kind of neighbour.

The rounds alternate, so that whatever else the machine does weighs on all alike. A plain neighbour is there for
comparison: what it adds is what any second conversation costs on this machine.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from load.long import PAST
from load.seeding import give_past
from load.server import LeanClient, Server, quantiles
from load.turns import request, turn

ROUNDS = 4
TURNS = 50  # of the quiet agent in a round
WARM = 10  # more before them
STUCK = 50  # turns of the stuck neighbour that hang at once, in agents of their own
STUCK_MS = 60_000

Noise = Callable[[], Awaitable[Any]]


async def neighbours(server: Server, database_file: Path, model_ms: float) -> dict[str, Any]:
    quiet, plain, huge, shown = [await server.new_agent() for _ in range(4)]
    await give_past(database_file, huge, PAST, seen=False)
    await give_past(database_file, shown, PAST, seen=True)
    server.lean = LeanClient(server.url)  # the other connection has been idle for too long by now
    stuck = [await server.new_agent() for _ in range(STUCK)]

    async def stays_stuck() -> None:
        await asyncio.gather(*(turn(server.url, a, text=f"wait_ms={STUCK_MS}") for a in stuck))

    async def reads_on() -> None:
        await request(server.url, "GET", f"/v1/agents/{huge}/messages?limit=1000")

    kinds: dict[str, Noise | None] = {
        "alone": None,
        "beside_a_plain_one": lambda: turn(server.url, plain),
        "beside_100k_in_history": lambda: turn(server.url, huge),
        "beside_100k_in_context": lambda: turn(server.url, shown),
        "beside_reads_of_1000_messages": reads_on,
        f"beside_{STUCK}_blocked": stays_stuck,
    }
    found: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, noise in kinds.items():
            found[name] += await _round(server, quiet, noise)
    rows = {name: {"turn": quantiles(times), "over_model": _over(times, model_ms)} for name, times in found.items()}
    alone = rows["alone"]["turn"]["p99_ms"]
    return {name: row | {"p99_over_alone": round(row["turn"]["p99_ms"] / alone, 2)} for name, row in rows.items()}


async def _round(server: Server, quiet: str, noise: Noise | None) -> list[float]:
    neighbour = asyncio.create_task(_again_and_again(noise)) if noise else None
    times: list[float] = []
    for _ in range(WARM):  # so that the noise has begun, and what its beginning costs is not counted
        await turn(server.url, quiet)
    for _ in range(TURNS):
        started = time.perf_counter()
        outcome = await turn(server.url, quiet)
        times.append((time.perf_counter() - started) * 1000)
        if outcome.kind != "ok":
            raise SystemExit(f"the quiet agent failed: {outcome}")
    if neighbour:
        neighbour.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await neighbour
    return times


async def _again_and_again(noise: Noise) -> None:
    while True:
        await noise()


def _over(times: list[float], model_ms: float) -> dict[str, float]:
    return quantiles([ms - model_ms for ms in times])
