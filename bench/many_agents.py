"""What agents cost when there are many of them: the same requests to a server with a few and to one with many.

    python bench/many_agents.py                     with 1,000 and with 100,000 agents
    python bench/many_agents.py --few 1000 --many 20000
    python bench/many_agents.py --data DIR          keeps both data directories in DIR, and uses those of an earlier run

Prints JSON. Both servers run at the same time and take turns in short batches, so that both are as disturbed by what
else the machine does; each figure is the median of the batches. For each number of agents: CPU milliseconds of the
server and wall milliseconds of get, list (50), a lookup by name, a text search that finds one agent and one that finds
none, a tag filter, a count, and a cold turn (the first message to an agent that is not loaded). `ratio` is many over
few. `creation` is the rate with 32 clients while the last thousand agents are made, the CPU milliseconds of the server
for each of them, and the bytes of the database file for each agent. `start` is the time from the start of the process
to a healthy answer after `kill -9` with many agents, and its CPU until then. The model is bench/fake_model.py.
"""

import argparse
import asyncio
import json
import random
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

from load.server import LeanClient, Server, Started, cpu_s, measure

CLIENTS = 32
ROUNDS = 7
BATCH = 10
LAST = 1_000
NO_MODEL = {"KELPIE_EMBEDDING_DIR": str(Path(__file__).parent)}  # no work behind the requests


class Population:
    """The agents of a server; each has a name of its own, two blocks, the default tools and one of a hundred tags."""

    def __init__(self, server: Server, ids: dict[int, str]) -> None:
        self._server = server
        self._clients = [LeanClient(server.url) for _ in range(CLIENTS)]
        self.ids = ids

    async def grow(self, many: int) -> tuple[float, float]:
        """Makes agents until there are so many. Agents a second at the end, and CPU milliseconds of each."""
        missing = iter(range(len(self.ids), many))
        rate_from, started, cpu_s = many - LAST, time.perf_counter(), self._server.cpu_s()

        async def work(client: LeanClient) -> None:
            nonlocal started, cpu_s
            for number in missing:
                if number == rate_from:
                    started, cpu_s = time.perf_counter(), self._server.cpu_s()
                self.ids[number] = json.loads(await client.call("POST", "/v1/agents/", self._body(number)))["id"]

        await asyncio.gather(*(work(client) for client in self._clients))
        return LAST / (time.perf_counter() - started), (self._server.cpu_s() - cpu_s) * 1000 / LAST

    def _body(self, number: int) -> dict[str, Any]:
        blocks = [{"label": "human", "value": "Name: Bob"}, {"label": "persona", "value": "I help."}]
        tags = [f"tag{number % 100}"]
        return {"name": name(number), "model": self._server.model, "memory_blocks": blocks, "tags": tags}


def name(number: int) -> str:
    return f"agent {number * 7919 % 1_000_003:07d} of {number % 37}"


def stored_ids(database: Path) -> dict[int, str]:
    """The agents of an earlier run, by number."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as db:
        found = {str(named): str(agent) for agent, named in db.execute("SELECT id, name FROM agents")}
    return {number: found[name(number)] for number in range(len(found))}


class Subject:
    """A server and its agents."""

    def __init__(self, tree: Path | None, data: Path | None) -> None:
        if data is not None:
            data.mkdir(parents=True, exist_ok=True)
        self.house = Started(0, tree, NO_MODEL, data)

    async def prepare(self, many: int, seed: int, more: int = 0) -> tuple[float, float]:
        """Fills it up; those of an earlier run get so many more. Rate and CPU milliseconds of creation."""
        await self.house.ready_s()
        self.server = Server(self.house.url, self.house.process.pid, "openai/gpt-4o-mini")
        self.population = Population(self.server, stored_ids(self.house.database_file))
        made = await self.population.grow(max(many, len(self.population.ids) + more))
        self.bytes = database_bytes(self.house.database_file)
        numbers = random.Random(seed).sample(sorted(self.population.ids), 2 * ROUNDS * BATCH)
        self._known, self._cold = numbers[: ROUNDS * BATCH], numbers[ROUNDS * BATCH :]
        return made

    def batches(self, at: int) -> dict[str, list[Callable[[], Awaitable[Any]]]]:
        """The requests of one round."""
        known, cold = (numbers[at * BATCH : (at + 1) * BATCH] for numbers in (self._known, self._cold))
        ids, server = self.population.ids, self.server
        paths: dict[str, Callable[[int], str]] = {
            "get": lambda number: f"/v1/agents/{ids[number]}",
            "list_50": lambda _: "/v1/agents/?limit=50",
            "by_name": lambda number: f"/v1/agents/?name={name(number).replace(' ', '%20')}&limit=50",
            "text_search": lambda number: f"/v1/agents/?query_text={name(number)[6:13]}&limit=50",
            "text_search_nothing": lambda number: f"/v1/agents/?query_text=zebra{number}&limit=50",
            "tag_10": lambda number: f"/v1/agents/?tags=tag{number % 100}&limit=10",
            "count": lambda _: "/v1/agents/count",
        }
        asked: dict[str, list[Callable[[], Awaitable[Any]]]] = {
            what: [lambda path=path, number=number: server.get(path(number)) for number in known]
            for what, path in paths.items()
        }
        return asked | {"cold_turn": [lambda number=number: server.send(ids[number]) for number in cold]}


def database_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in (path, path.with_name(f"{path.name}-wal")) if file.exists())


async def run(few: int, many: int, tree: Path | None, data: Path | None) -> dict[str, Any]:
    subjects: dict[str, Subject] = {}
    try:
        for each in ("few", "many"):
            subjects[each] = Subject(tree, data and data / each)
        small, large = subjects["few"], subjects["many"]
        await small.prepare(few, 1)
        rate, creation_ms = await large.prepare(many, 2, LAST)
        found: dict[str, dict[str, list[dict[str, float]]]] = {each: {} for each in subjects}
        for number in range(ROUNDS):
            order = list(subjects) if number % 2 else list(reversed(subjects))
            for each in order:
                for what, asked in subjects[each].batches(number).items():
                    found[each].setdefault(what, []).append(await measure(subjects[each].server, asked))
        large.house.kill_and_restart()
        start_s, start_cpu_s = await large.house.ready_s(), cpu_s(large.house.process.pid)
    finally:
        for subject in subjects.values():
            subject.house.stop()
    rows = {
        each: {what: _medians(batches) for what, batches in operations.items()} for each, operations in found.items()
    }
    agents = {each: len(subject.population.ids) for each, subject in subjects.items()}
    return {
        **{each: {"agents": agents[each]} | rows[each] for each in rows},
        "ratio": {
            what: {of: round(row[of] / rows["few"][what][of], 2) for of in row} for what, row in rows["many"].items()
        },
        "creation": {
            "per_s": round(rate),
            "cpu_ms": round(creation_ms, 2),
            "bytes_each": round((large.bytes - small.bytes) / (agents["many"] - agents["few"])),
        },
        "start": {"wall_s": start_s, "cpu_s": round(start_cpu_s, 2)},
    }


def _medians(batches: list[dict[str, float]]) -> dict[str, float]:
    return {of: round(median(batch[of] for batch in batches), 3) for of in ("cpu_ms", "p50_ms")}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--few", type=int, default=1_000)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--tree", type=Path, help="another checkout whose server is measured")
    parser.add_argument("--data", type=Path, metavar="DIR", help="keeps the data directories here")
    args = parser.parse_args()
    json.dump(asyncio.run(run(args.few, args.many, args.tree, args.data)), sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
