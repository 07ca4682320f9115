"""What one organization at full load costs another: messages, tool calls and searches of a quiet organization, alone
and beside each kind of load of another one, and beside all of it. Prints JSON.

    python bench/neighbours.py                       all of it, about three minutes
    python bench/neighbours.py --only sandbox all    some kinds of load: messages, sandbox, searches, callbacks, all
    python bench/neighbours.py --rounds 8            more rounds, for steadier p99
    python bench/neighbours.py --tree DIR            the server of another checkout

The rounds alternate between an idle and a busy neighbour, so that whatever else the machine does weighs on both. The
load comes from a process of its own, each client of it with one request at a time: `messages` are turns, `sandbox` are
tool calls that sleep, more of them than there are sandboxes, `searches` are searches in an archive, `callbacks` are
background runs whose callback goes to a receiver that never answers. `ratio` is the p99 beside the load divided by the
p99 beside an idle neighbour; the goal is at most 2. `server_cpu` is the share of one core that the server used.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from load.server import LeanClient, Server, Started, quantiles

DELAY_MS = 20.0  # of the model
CELLS = 8
ROUNDS = 4
MESSAGES, CALLS, SEARCHES = 40, 12, 40  # of the quiet organization in a round
PAUSE_S = 0.06  # after each of them: an organization that does little, and not a second one at full load
WARM_S = 1.5  # of the load before a round is measured
PASSAGES = 500
REFUSED_S = 0.1  # pause of a client of the load that was refused
# Clients of the load, each with one request at a time.
LOADS = {
    "messages": {"messages": 8},
    "sandbox": {"sandbox": 24},
    "searches": {"searches": 4},
    "callbacks": {"callbacks": 8},
    "all": {"messages": 8, "sandbox": 24, "searches": 4, "callbacks": 8},
}
NAP = '''
import time

def nap(seconds: float) -> str:
    """Sleeps.

    Args:
        seconds (float): how long
    """
    time.sleep(seconds)
    return "rested"
'''


@dataclass
class Tenant:
    """A user of an organization, and its agents."""

    user_id: str
    agents: list[str]
    archive_id: str


async def move_in(url: str, name: str, agents: int) -> Tenant:
    operator = LeanClient(url)
    organization = json.loads(await operator.call("POST", "/v1/admin/orgs/", {"name": name}))["id"]
    body = {"name": name, "organization_id": organization}
    user_id = json.loads(await operator.call("POST", "/v1/admin/users/", body))["id"]
    client = LeanClient(url, user_id)
    await client.call("POST", "/v1/tools/", {"source_code": NAP})
    agent = {"model": "openai/gpt-4o-mini", "memory_blocks": [{"label": "human", "value": "Bob"}], "tools": ["nap"]}
    ids = [json.loads(await client.call("POST", "/v1/agents/", agent))["id"] for _ in range(agents)]
    archive_id = json.loads(await client.call("POST", "/v1/archives/", {"name": name}))["id"]
    texts = [{"text": f"Passage {number} of {name} is about subject {number % 37}."} for number in range(PASSAGES)]
    for start in range(0, PASSAGES, 100):
        path = f"/v1/archives/{archive_id}/passages/batch"
        await client.call("POST", path, {"passages": texts[start : start + 100]})
    return Tenant(user_id, ids, archive_id)


# --- the load, in a process of its own -------------------------------------------------------------------------------


async def load(url: str, given: dict[str, Any]) -> None:
    """Never returns: each client sends its next request when the last one is answered."""
    tenant, tarpit = Tenant(**given["tenant"]), given["tarpit"]
    works: dict[str, Callable[[LeanClient, str], Awaitable[Any]]] = {
        "messages": lambda client, agent: client.send(agent),
        "sandbox": lambda client, agent: client.call("POST", f"/v1/agents/{agent}/tools/nap/run", nap(2.0)),
        "searches": lambda client, _: client.call("POST", "/v1/passages/search", search(tenant)),
        "callbacks": lambda client, agent: client.call(
            "POST", f"/v1/agents/{agent}/messages/async", {"input": "hello", "callback_url": tarpit}
        ),
    }

    async def go_on(work: Callable[[LeanClient, str], Awaitable[Any]], agent: str) -> None:
        client = LeanClient(url, tenant.user_id)
        while True:
            try:
                await work(client, agent)
            except SystemExit:  # refused: a limit was reached
                await asyncio.sleep(REFUSED_S)

    clients = [name for name, count in given["load"].items() for _ in range(count)]
    await asyncio.gather(
        *(go_on(works[name], tenant.agents[at % len(tenant.agents)]) for at, name in enumerate(clients))
    )


def nap(seconds: float) -> dict[str, Any]:
    return {"args": {"seconds": seconds}}


def search(tenant: Tenant) -> dict[str, Any]:
    return {"query": "subject 7", "archive_id": tenant.archive_id, "limit": 5}


# --- the quiet organization ------------------------------------------------------------------------------------------


async def measured(url: str, quiet: Tenant) -> dict[str, list[float]]:
    client, agent = LeanClient(url, quiet.user_id), quiet.agents[0]
    works: dict[str, tuple[int, Callable[[], Awaitable[Any]]]] = {
        "message": (MESSAGES, lambda: client.send(agent)),
        "tool_call": (CALLS, lambda: client.call("POST", f"/v1/agents/{agent}/tools/nap/run", nap(0.0))),
        "search": (SEARCHES, lambda: client.call("POST", "/v1/passages/search", search(quiet))),
    }
    found: dict[str, list[float]] = {}
    for name, (count, work) in works.items():
        for _ in range(count):
            started = time.perf_counter()
            await work()
            found.setdefault(name, []).append((time.perf_counter() - started) * 1000)
            await asyncio.sleep(PAUSE_S)
    return found


async def beside(server: Server, quiet: Tenant, given: dict[str, Any], rounds: int) -> dict[str, Any]:
    """The quiet organization's times beside an idle neighbour and beside this load, in turns."""
    times: dict[str, dict[str, list[float]]] = {"idle": {}, "busy": {}}
    used: list[float] = []
    for _ in range(rounds):
        for kind, found in times.items():
            noise = None if kind == "idle" else start_load(server.url, given)
            try:
                await asyncio.sleep(WARM_S)
                cpu, started = server.cpu_s(), time.perf_counter()
                for name, taken in (await measured(server.url, quiet)).items():
                    found.setdefault(name, []).extend(taken)
                if noise is not None:
                    used.append((server.cpu_s() - cpu) / (time.perf_counter() - started))
            finally:
                if noise is not None:
                    noise.kill()
                    noise.wait(30)
    rows: dict[str, Any] = {"server_cpu": round(sum(used) / len(used), 2)}
    for name, idle in times["idle"].items():
        row = {kind: quantiles(found[name]) for kind, found in times.items()}
        rows[name] = row | {
            "n": len(idle),
            "ratio": round(row["busy"]["p99_ms"] / row["idle"]["p99_ms"], 2),
            "ratio_p50": round(row["busy"]["p50_ms"] / row["idle"]["p50_ms"], 2),
        }
    return rows


def start_load(url: str, given: dict[str, Any]) -> subprocess.Popen[bytes]:
    """In the background: the load must take no processor from the server that a remote client would not."""
    arguments = [sys.executable, __file__, "--load", json.dumps(given), "--url", url]
    return subprocess.Popen(arguments, preexec_fn=lambda: os.nice(5))


async def tarpit() -> tuple[asyncio.Server, str]:
    """A receiver that takes connections and never answers."""

    async def swallow(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def main(kinds: list[str], rounds: int, tree: Path | None) -> None:
    settings = {
        "KELPIE_SANDBOX_CELLS_MAX": str(CELLS),
        "KELPIE_CALLBACK_PRIVATE": "true",
        "KELPIE_LOG_LEVEL": "error",
    }
    house = Started(DELAY_MS, tree, settings)
    try:
        await house.ready_s()
        server = Server(house.url, house.process.pid, "openai/gpt-4o-mini")
        busy, quiet = [await move_in(house.url, name, agents) for name, agents in (("busy", 16), ("quiet", 1))]
        receiver, url = await tarpit()
        async with receiver:
            await measured(house.url, quiet)  # so that the first use of everything is not counted
            told = {}
            for kind in kinds:
                given = {"tenant": vars(busy), "tarpit": url, "load": LOADS[kind]}
                told[kind] = await beside(server, quiet, given, rounds)
        print(json.dumps({"delay_ms": DELAY_MS, "sandboxes": CELLS, "rounds": rounds, "beside": told}, indent=2))
    finally:
        house.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(LOADS), default=list(LOADS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--tree", type=Path)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.load:
        asyncio.run(load(asked.url, json.loads(asked.load)))
    else:
        asyncio.run(main(asked.only, asked.rounds, asked.tree))
