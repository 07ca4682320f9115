"""What the actor room itself costs, as JSON: `python bench/actors.py [--keys N] [--jobs N] [--loop uvloop|asyncio]`.

Every part is a coroutine function from options to plain figures, listed in PARTS. The handlers do nothing, so the
figures are the room's own, except in `agents`, which loads real ones from a disk.
"""

import argparse
import asyncio
import gc
import json
import random
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

import uvloop

from kelpie.actors.dispatcher import Dispatcher
from kelpie.actors.limits import ActorLimits
from kelpie.core.agents.agent import NewAgent
from kelpie.core.memory.blocks import NewBlock
from kelpie.core.settings.settings import Settings
from kelpie.local import open_kelpie
from kelpie.world.clock import SystemClock

COLD_KEYS = 1_000_000
AGENTS = 500
CLIENTS = 64


@dataclass(frozen=True, slots=True)
class Options:
    keys: int
    jobs: int
    loop: str


class Nothing:
    """A handler that holds nothing."""

    __slots__ = ()


async def activate(_: str) -> Nothing:
    return Nothing()


async def deactivate(_: Nothing) -> None:
    return


async def no_op(_: object) -> None:
    return


def dispatcher_for(keys: int) -> Dispatcher[Nothing]:
    return Dispatcher[Nothing](
        activate=activate,
        deactivate=deactivate,
        clock=SystemClock(),
        rng=random.Random(1),
        limits=ActorLimits(hot_max=keys, pending_max=keys),
        observe=lambda _: None,
    )


def spread(times_ns: list[int]) -> dict[str, float]:
    """The usual percentiles, in microseconds."""
    ordered = sorted(times_ns)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1000, 1)

    return {"p50_us": at(0.5), "p99_us": at(0.99), "p999_us": at(0.999), "max_us": at(1.0)}


async def timed(dispatcher: Dispatcher[Any], key: str, times_ns: list[int]) -> None:
    began = time.perf_counter_ns()
    await dispatcher.submit(key, "default", no_op)
    times_ns.append(time.perf_counter_ns() - began)


async def hot(options: Options) -> dict[str, Any]:
    """No-op jobs to random hot keys, one after another."""
    dispatcher, rng, times_ns = dispatcher_for(options.keys), random.Random(2), []
    keys = [f"agent-{n}" for n in range(options.keys)]
    for key in keys:
        await dispatcher.submit(key, "default", no_op)
    for _ in range(options.jobs):
        await timed(dispatcher, rng.choice(keys), times_ns)
    await dispatcher.close(1)
    return {"hot_keys": options.keys, "jobs": options.jobs, **spread(times_ns)}


async def throughput(options: Options) -> dict[str, Any]:
    """No-op jobs to random hot keys from many clients at once; the times hold the wait for the other clients' turns."""
    dispatcher, rng, times_ns = dispatcher_for(options.keys), random.Random(3), []
    keys = [f"agent-{n}" for n in range(options.keys)]
    for key in keys:
        await dispatcher.submit(key, "default", no_op)

    async def client() -> None:
        for _ in range(options.jobs // CLIENTS):
            await timed(dispatcher, rng.choice(keys), times_ns)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    took_s = time.perf_counter() - began
    await dispatcher.close(1)
    return {"clients": CLIENTS, "jobs_per_s": round(len(times_ns) / took_s), **spread(times_ns)}


async def cold(options: Options) -> dict[str, Any]:
    """First uses of keys, one after another: activation by a trivial handler and a no-op."""
    dispatcher, times_ns = dispatcher_for(options.keys), []
    for n in range(options.keys):
        await timed(dispatcher, f"agent-{n}", times_ns)
    await dispatcher.close(1)
    return {"activations": options.keys, **spread(times_ns)}


async def churn(options: Options) -> dict[str, Any]:
    """Uses of more keys than may be hot: each evicts another first."""
    dispatcher, times_ns = dispatcher_for(100), []
    for n in range(options.keys):
        await timed(dispatcher, f"agent-{n % 1000}", times_ns)
    await dispatcher.close(1)
    return {"hot_max": 100, "keys": min(options.keys, 1000), **spread(times_ns)}


async def memory(options: Options) -> dict[str, Any]:
    """What a hot idle actor takes, its handler and key left out, and what a million cold ones take."""
    dispatcher = dispatcher_for(options.keys)
    keys = [f"agent-{n}" for n in range(options.keys)]
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for key in keys:
        await dispatcher.submit(key, "default", no_op)
    gc.collect()
    hot_bytes = tracemalloc.get_traced_memory()[0] - before
    for key in keys:
        await dispatcher.release(key)
    for n in range(COLD_KEYS):
        dispatcher.status(f"agent-{n}")
        dispatcher.handler(f"agent-{n}")
    gc.collect()
    cold_bytes = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    objects = sum(asdict(dispatcher.counts()).values())
    await dispatcher.close(1)
    return {
        "bytes_per_hot_actor": round(hot_bytes / options.keys),
        "cold_keys": COLD_KEYS,
        "objects_for_cold_keys": objects,
        "bytes_per_cold_key": round(cold_bytes / COLD_KEYS, 3),
    }


async def agents(_: Options) -> dict[str, Any]:
    """Real agents on a real disk: loading one claims it and reads it; a no-op on a hot one only waits its turn."""
    with tempfile.TemporaryDirectory() as place:
        kelpie = open_kelpie(Settings(data_dir=place, hot_agents_max=AGENTS))
        await kelpie.start()
        new = NewAgent(memory_blocks=(NewBlock("human", "Name: Bob"), NewBlock("persona", "I help.")))
        ids = [(await kelpie.api().agents.create(new)).agent.id for _ in range(AGENTS)]
        cold_ns: list[int] = []
        hot_ns: list[int] = []
        for agent_id in ids:
            await timed(kelpie.runtime.dispatcher, agent_id, cold_ns)
        for agent_id in ids * 20:
            await timed(kelpie.runtime.dispatcher, agent_id, hot_ns)
        await kelpie.stop(1)
    return {"agents": AGENTS, "cold": spread(cold_ns), "hot_no_op": spread(hot_ns)}


PARTS: dict[str, Callable[[Options], Awaitable[dict[str, Any]]]] = {
    "hot_no_op": hot,
    "throughput": throughput,
    "cold_activation": cold,
    "eviction": churn,
    "memory": memory,
    "agents": agents,
}


async def run(options: Options) -> dict[str, Any]:
    report: dict[str, Any] = {"python": sys.version.split()[0], "loop": options.loop}
    for name, part in PARTS.items():
        report[name] = await part(options)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    options = Options(**vars(parser.parse_args()))
    factory = uvloop.new_event_loop if options.loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        print(json.dumps(runner.run(run(options)), indent=2))


if __name__ == "__main__":
    main()
