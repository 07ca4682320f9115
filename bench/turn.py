"""What a turn costs: wall time and server CPU per operation, against any Letta-compatible server.

    python bench/turn.py                     starts a Kelpie and a zero-latency model of its own
    python bench/turn.py --url http://…      measures a server that runs already (give --pid for its CPU, --model)

    python bench/turn.py --only growth       measures some parts only: making, growth, talking, listing, all_at_once,
                                             slow_model

    python bench/turn.py --tree DIR          compares this checkout with another one in one run, both on the packages
                                             installed here: a server of each, which take turns part by part, so that
                                             both are as disturbed by what else the machine does; --rounds of them

Agents have two blocks and the default tools. `get_agent` and `list_50_agents` are what a client causes that gets all
relations; the rows with `_sdk` are those of an SDK 1.x, which gets none of them.

Prints JSON. The rows named `letta` are what Letta 0.16.8 cost on such a machine (2 cores). With --tree, `here` and
`there` are medians of the rounds, and `ratio` is here divided by there.
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from load.growth import growth
from load.server import LeanClient, Server, Started, measure, row
from load.streams import first_events

HERE = Path(__file__).parent.parent
LETTA: dict[str, dict[str, float]] = {
    "create_agent": {"cpu_ms": 53, "p50_ms": 69, "p99_ms": 100},
    "send_one_agent": {"cpu_ms": 300, "p50_ms": 329, "p99_ms": 1093},
    "send_64_agents": {"cpu_ms": 244, "p50_ms": 15876, "p99_ms": 24681, "per_s": 3.9},
    "send_200_agents_slow_model": {"cpu_ms": 219, "p50_ms": 41318, "p99_ms": 78216, "per_s": 4.5},
    "first_event_tokens": {"cpu_ms": 350, "p50_ms": 107},
    "first_event_steps": {"cpu_ms": 249, "p50_ms": 93},
    "get_agent": {"cpu_ms": 30, "p50_ms": 37, "p99_ms": 69},
    "list_50_agents": {"cpu_ms": 263, "p50_ms": 275, "p99_ms": 373},
    "list_100_messages": {"cpu_ms": 54, "p50_ms": 66, "p99_ms": 93},
    "list_50_blocks": {"cpu_ms": 18, "p50_ms": 22, "p99_ms": 26},
    "health": {"cpu_ms": 1.4, "p50_ms": 1.3, "p99_ms": 4.6},
    "start_to_health_s": {"wall": 26},
    "idle_rss_mb": {"rss": 472},
}


Part = Callable[[Server], Awaitable[dict[str, Any]]]


async def making(server: Server) -> dict[str, Any]:
    await measure(server, [server.new_agent] * 20)  # so that the first use of everything is not counted
    return {
        "health": await measure(server, [lambda: server.get("/v1/health/")] * 200),
        "create_agent": await measure(server, [server.new_agent] * 300),
    }


async def talking(server: Server) -> dict[str, Any]:
    """One agent, one turn after the other; then what its long history costs whoever reads it."""
    agent = await server.new_agent()
    short = f"/v1/agents/{agent}"
    out = {
        "get_agent": await measure(server, [lambda: server.get_whole(short)] * 300),
        "get_agent_sdk": await measure(server, [lambda: server.get(short)] * 300),
    }
    await server.send(agent)
    out["send_one_agent"] = await measure(server, [lambda: server.send(agent)] * 200)
    for _ in range(50):
        await server.send(agent)
    ids = len(json.loads(await server.get(short))["message_ids"])
    out["get_agent_long"] = await measure(server, [lambda: server.get(short)] * 300) | {"message_ids": ids}
    out |= await first_events(server, agent)
    path = f"/v1/agents/{agent}/messages?limit=100"
    out["list_100_messages"] = await measure(server, [lambda: server.get(path)] * 50)
    return out


async def listing(server: Server) -> dict[str, Any]:
    for _ in range(50):
        await server.new_agent()
    return {
        "list_50_agents": await measure(server, [lambda: server.get_whole("/v1/agents/?limit=50")] * 100),
        "list_50_agents_sdk": await measure(server, [lambda: server.get("/v1/agents/?limit=50")] * 100),
        "list_50_blocks": await measure(server, [lambda: server.get("/v1/blocks/?limit=50")] * 50),
    }


async def all_at_once(server: Server) -> dict[str, Any]:
    agents = [await server.new_agent() for _ in range(64)]
    for agent in agents:
        await server.send(agent)
    times: list[float] = []

    async def five_sends(client: LeanClient, agent: str) -> None:
        for _ in range(5):
            started = time.perf_counter()
            await client.send(agent)
            times.append((time.perf_counter() - started) * 1000)

    clients = [LeanClient(server.url) for _ in agents]
    cpu, started = server.cpu_s(), time.perf_counter()
    for _ in range(3):
        await asyncio.gather(*(five_sends(client, agent) for client, agent in zip(clients, agents, strict=True)))
    return {"send_64_agents": row(times, server.cpu_s() - cpu, time.perf_counter() - started)}


async def slow_model(server: Server) -> dict[str, Any]:
    agents = [await server.new_agent() for _ in range(200)]
    work: list[Callable[[], Awaitable[Any]]] = [
        partial(LeanClient(server.url).send, agent) for agent in agents for _ in range(2)
    ]
    return {"send_200_agents_slow_model": await measure(server, work, together=True)}


AT_ONCE: dict[str, Part] = {
    "making": making,
    "growth": growth,
    "talking": talking,
    "listing": listing,
    "all_at_once": all_at_once,
}
AFTER_A_WHILE: dict[str, Part] = {"slow_model": slow_model}


async def on_our_own(only: list[str]) -> dict[str, Any]:
    out: dict[str, Any] = {"load_average_before": {"1_5_15_min": os.getloadavg()}}
    for delay_ms, parts in ((0.0, AT_ONCE), (200.0, AFTER_A_WHILE)):
        chosen = [part for name, part in parts.items() if not only or name in only]
        if not chosen:
            continue
        house = Started(delay_ms)
        try:
            ready = await house.ready_s()
            server = Server(house.url, house.process.pid, "openai/gpt-4o-mini")
            out.setdefault("start_to_health_s", {"wall": ready})
            out.setdefault("idle_rss_mb", {"rss": server.rss_mb()})
            for part in chosen:
                out |= await part(server)
            out[f"rss_after_mb_{int(delay_ms)}"] = {"rss": server.rss_mb()}
            await server.http.aclose()
        finally:
            house.stop()
    return out | {"load_average_after": {"1_5_15_min": os.getloadavg()}}


async def beside(tree: Path, only: list[str], rounds: int) -> dict[str, Any]:
    """This checkout and another one, measured in turns."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for delay_ms, parts in ((0.0, AT_ONCE), (200.0, AFTER_A_WHILE)):
        chosen = [part for name, part in parts.items() if not only or name in only]
        if not chosen:
            continue
        houses = {"here": Started(delay_ms, HERE), "there": Started(delay_ms, tree)}
        try:
            servers: dict[str, Server] = {}
            for name, house in houses.items():
                await house.ready_s()
                servers[name] = Server(house.url, house.process.pid, "openai/gpt-4o-mini")
            for number in range(rounds):
                order = [*servers] if number % 2 == 0 else [*reversed(servers)]
                for part, name in product(chosen, order):
                    for operation, measured in (await part(servers[name])).items():
                        found.setdefault(operation, {"here": [], "there": []})[name].append(measured)
            for server in servers.values():
                await server.http.aclose()
        finally:
            for house in houses.values():
                house.stop()
    return {operation: compared(rows["here"], rows["there"]) for operation, rows in found.items()}


def compared(here: list[dict[str, Any]], there: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The median of every figure on both sides, and their ratio."""
    ours, theirs = _medians(here), _medians(there)
    return {
        "here": ours,
        "there": theirs,
        "ratio": {name: round(ours[name] / theirs[name], 3) for name in ours if name in theirs},
    }


def _medians(rows: list[dict[str, Any]]) -> dict[str, float]:
    flat = [dict(_figures(row)) for row in rows]
    return {name: round(median(row[name] for row in flat), 3) for name in flat[0] if all(row[name] for row in flat)}


def _figures(row: dict[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    """The figures of a row; those of a row within it have its name before theirs."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _figures(value, f"{before}{name}.")
        else:
            yield before + name, value


async def elsewhere(options: argparse.Namespace) -> dict[str, Any]:
    server = Server(options.url, options.pid, options.model)
    out: dict[str, Any] = {}
    for name, part in AT_ONCE.items():
        if not options.only or name in options.only:
            out |= await part(server)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--pid", type=int)
    parser.add_argument("--model", default="openai/gpt-4o-mini")
    parser.add_argument("--only", nargs="*", default=[], choices=[*AT_ONCE, *AFTER_A_WHILE], metavar="PART")
    parser.add_argument("--tree", type=Path, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.tree is not None:
        print(json.dumps(asyncio.run(beside(options.tree.resolve(), options.only, options.rounds)), indent=1))
        return
    found = asyncio.run(elsewhere(options) if options.url else on_our_own(options.only))
    print(json.dumps({name: {"here": row, "letta": LETTA.get(name)} for name, row in found.items()}, indent=1))


if __name__ == "__main__":
    main()
