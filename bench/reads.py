"""What single requests cost the server: CPU of all its threads, beside a bare JSON answer of the same size.

    python bench/reads.py                    this checkout
    python bench/reads.py --tree DIR         and another one, on the packages installed here, in the same run

Agents have two blocks and the default tools, and the client gets all relations. The servers take turns in short
batches, so that all are as disturbed by what else the machine does; every figure is the median of `--rounds` batches.
`turn_N` is a turn of an agent whose context has about N messages. The bare server (`fake_json.py`) parses the body of a
request and encodes an answer, on the same ASGI server and event loop; `ratio` is the CPU of a request to that of a bare
one. Prints JSON.
"""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

from load.server import OTHER, LeanClient, Server, Started, cpu_s, telling

HERE = Path(__file__).parent.parent
FAKE_JSON = Path(__file__).parent / "fake_json.py"
AGENTS = 60
BATCH = {"list_50_agents": 6, "list_100_messages": 12, "list_50_blocks": 12}
BATCH_DEFAULT = 30
CONTEXTS = (10, 500, 1500)
TEXT = "A message of a conversation, about as long as those that people write in a chat."
BLOCKS = [{"label": "human", "value": "Name: Bob"}, {"label": "persona", "value": "I help."}]

Ask = Callable[[], Awaitable[bytes]]


class Subject:
    """One server under test with its agents."""

    def __init__(self, tree: Path) -> None:
        self.house = Started(0.0, tree, {"KELPIE_EMBEDDING_DIR": str(HERE / "bench")})  # no model: no work behind

    async def prepare(self) -> None:
        await self.house.ready_s()
        self.server = Server(self.house.url, self.house.process.pid, "openai/gpt-4o-mini")
        self.client = self.server.plain
        self.ids = [await self._made() for _ in range(AGENTS)]
        self.long = {size: await self._made(size) for size in CONTEXTS}
        for agent in (*self.ids, *self.long.values()):
            await self._turn(agent)
        for _ in range(60):
            await self._turn(self.ids[0])

    async def _made(self, messages: int = 0) -> str:
        roles = cycle(("user", "assistant"))
        first = [{"role": next(roles), "content": f"{number}. {TEXT}"} for number in range(messages)]
        body = {"model": self.server.model, "memory_blocks": BLOCKS, "context_window_limit": 200_000}
        return json.loads(
            await self.client.call("POST", "/v1/agents/", body | ({"initial_message_sequence": first} if first else {}))
        )["id"]

    async def _turn(self, agent: str) -> bytes:
        return await self.client.call("POST", f"/v1/agents/{agent}/messages", {"input": "hello there"})

    def operations(self) -> dict[str, Ask]:
        near, body = cycle(self.ids), {"model": self.server.model, "memory_blocks": BLOCKS}
        return {
            "create_agent": lambda: self.client.call("POST", "/v1/agents/", body),
            "get_agent": lambda: self.client.call("GET", f"/v1/agents/{next(near)}"),
            "list_50_agents": lambda: self.client.call("GET", "/v1/agents/?limit=50"),
            "list_100_messages": lambda: self.client.call("GET", f"/v1/agents/{self.ids[0]}/messages?limit=100"),
            "list_50_blocks": lambda: self.client.call("GET", "/v1/blocks/?limit=50"),
            "turn": lambda: self._turn(next(near)),
            **{f"turn_{size}": lambda agent=agent: self._turn(agent) for size, agent in self.long.items()},
        }

    def cpu_s(self) -> float:
        return self.server.cpu_s()

    async def stop(self) -> None:
        await self.server.http.aclose()
        self.house.stop()


class Bare:
    """The bare server, with a document of the size of each answer."""

    def __init__(self) -> None:
        self.process, port = telling([str(FAKE_JSON)])
        self.client = LeanClient(f"http://127.0.0.1:{port}", agent=OTHER)

    async def learn(self, name: str, document: bytes) -> None:
        await self.client.call("PUT", f"/{name}", json.loads(document))

    def ask(self, name: str) -> Ask:
        writes = name.startswith(("create", "turn"))
        body = {"input": "hello there"} if writes else None
        return lambda: self.client.call("POST" if writes else "GET", f"/{name}", body)

    def cpu_s(self) -> float:
        return cpu_s(self.process.pid)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


async def batch(ask: Ask, times: int, used_s: Callable[[], float]) -> float:
    """Milliseconds of CPU of one request."""
    await ask()
    before = used_s()
    for _ in range(times):
        await ask()
    return (used_s() - before) * 1000 / times


async def main(trees: dict[str, Path], rounds: int, only: list[str]) -> dict[str, Any]:
    subjects = {name: Subject(tree) for name, tree in trees.items()}
    bare = Bare()
    try:
        for subject in subjects.values():
            await subject.prepare()
        asks = {name: subject.operations() for name, subject in subjects.items()}
        names = [name for name in asks["here"] if not only or name in only]
        sizes: dict[str, int] = {}
        for name in names:
            answer = await asks["here"][name]()
            sizes[name] = len(answer)
            await bare.learn(name, answer)
        found: dict[str, dict[str, list[float]]] = {name: {each: [] for each in (*subjects, "bare")} for name in names}
        for number in range(rounds):
            for name in names:
                times = BATCH.get(name, BATCH_DEFAULT)
                order = list(subjects) if number % 2 else list(reversed(subjects))
                for each in order:
                    found[name][each].append(await batch(asks[each][name], times, subjects[each].cpu_s))
                found[name]["bare"].append(await batch(bare.ask(name), times, bare.cpu_s))
        return {name: _row(sizes[name], rows) for name, rows in found.items()}
    finally:
        bare.stop()
        for subject in subjects.values():
            await subject.stop()


def _row(size: int, rows: dict[str, list[float]]) -> dict[str, Any]:
    cpu = {each: median(times) for each, times in rows.items()}
    out: dict[str, Any] = {"bytes": size} | {f"{each}_cpu_ms": round(value, 3) for each, value in cpu.items()}
    out["ratio"] = round(cpu["here"] / cpu["bare"], 2)
    if "there" in cpu:
        out["here_over_there"] = round(cpu["here"] / cpu["there"], 3)
        out["lowest"] = {each: round(min(times), 3) for each, times in rows.items()}
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", nargs="*", default=[], metavar="OPERATION")
    options = parser.parse_args()
    trees = {"here": HERE} | ({"there": options.tree.resolve()} if options.tree else {})
    print(json.dumps(asyncio.run(main(trees, options.rounds, options.only)), indent=1))
