"""How long a small write of another organization waits while a long write is under way.

    python bench/long_writes.py                  restore, deletion of an agent, of an archive, and of a history
    python bench/long_writes.py --rows 20000     smaller data sets
    python bench/long_writes.py --tree DIR       measures another checkout too, on the packages installed here

A whole Kelpie runs in this process on a database file. While one client makes the long request and its background work
is done, another writer updates one row again and again and measures how long each transaction took. Prints JSON:
for each operation the seconds it took, the number of its transactions, the longest of them (wall time), the number of
small writes meanwhile, and p50, p99 and the longest in ms.

The figures named cpu are processor time of the thread that writes, which other load on the machine does not change: for
each transaction, the longest transaction, the longest group (transactions and their commit), and the longest checkpoint
of the log. A small write waits at most for one of each.
"""

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa

from kelpie.app import Kelpie
from kelpie.cli.server.process import GC_THRESHOLD
from kelpie.core.conversations.messages import Message, Role, Text
from kelpie.core.ids import AgentId, ArchiveId, BlockId, MessageId, PassageId
from kelpie.core.memory import checkpoints
from kelpie.core.memory.passages import Passage
from kelpie.core.settings.settings import Settings
from kelpie.local import open_kelpie
from kelpie.server.app import create_app
from kelpie.storage.archives import passages
from kelpie.storage.conversations import messages

HERE = Path(__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000, help="messages and passages")
    parser.add_argument("--blocks", type=int, default=20_000)
    parser.add_argument("--tree", help="another checkout to compare with")
    parser.add_argument("--only", default="", help="some of: restore, archive, history, agent")
    given = parser.parse_args()
    if given.tree is None:
        print(json.dumps(asyncio.run(measure(given.rows, given.blocks, given.only)), indent=1))
        return
    found = {name: _in_tree(tree, given) for name, tree in (("here", str(HERE)), ("there", given.tree))}
    print(json.dumps(found, indent=1))


def _in_tree(tree: str, given: argparse.Namespace) -> Any:
    command = [sys.executable, str(Path(__file__)), "--rows", str(given.rows), "--blocks", str(given.blocks)]
    env = {**os.environ, "PYTHONPATH": str(Path(tree) / "src")}
    done = subprocess.run([*command, "--only", given.only], env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


async def measure(rows: int, blocks: int, only: str) -> dict[str, Any]:
    """Every operation, each on its own agent or archive."""
    with tempfile.TemporaryDirectory() as folder:
        kelpie = open_kelpie(Settings(data_dir=folder, port=0, body_bytes_max=256 * 1024 * 1024))
        await kelpie.start()
        transport = httpx.ASGITransport(create_app(kelpie))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8283", timeout=600.0) as client:
            found: dict[str, Any] = {}
            for name, operation in OPERATIONS.items():
                if not only or name in only.split(","):
                    found[name] = await operation(kelpie, client, blocks if name == "restore" else rows)
        await kelpie.stop(5.0)
    return found


class Longest:
    """Times of calls of one kind, made on the thread that writes."""

    def __init__(self) -> None:
        self.calls, self.wall, self.cpu, self.cpu_sum = 0, 0.0, 0.0, 0.0

    def of(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*arguments: Any, **named: Any) -> Any:
            began, cpu = time.perf_counter(), time.thread_time()
            try:
                return call(*arguments, **named)
            finally:
                used = time.thread_time() - cpu
                self.calls, self.cpu_sum = self.calls + 1, self.cpu_sum + used
                self.wall, self.cpu = max(self.wall, time.perf_counter() - began), max(self.cpu, used)

        return measured


async def _watched(kelpie: Kelpie, work: Awaitable[object]) -> dict[str, float]:
    """Runs the work, and its cleanup, beside small writes."""
    waits, transactions, groups, checkpoints_made = list[float](), Longest(), Longest(), Longest()
    database: Any = kelpie.world.database
    plain = database.transact
    over = asyncio.Event()

    async def timed(fn: Callable[[Any], Any]) -> Any:
        return await plain(transactions.of(fn))

    async def write() -> None:
        while not over.is_set():
            began = time.perf_counter()
            await plain(lambda tx: tx.execute(TOUCH, {"now": time.time_ns()}) and None)
            waits.append(time.perf_counter() - began)
            await asyncio.sleep(0.002)

    thread = database._writer
    measured = {"_commit": groups.of(thread._commit), "_move_log": checkpoints_made.of(thread._move_log)}
    database.transact = timed  # for the time of this measurement
    vars(thread).update(measured)
    gc.collect()
    gc.freeze()  # as a server does at its start: what this script made before is not the server's to walk
    gc.set_threshold(*GC_THRESHOLD)
    writer = asyncio.create_task(write())
    began = time.perf_counter()
    await work
    answered = time.perf_counter() - began
    await kelpie._cleanup.clean_up()  # pyright: ignore[reportPrivateUsage]
    took = time.perf_counter() - began
    over.set()
    await writer
    del database.transact, thread._commit, thread._move_log
    waits.sort()
    return {
        "answer_s": round(answered, 2),
        "all_s": round(took, 2),
        "transactions": transactions.calls,
        "longest_transaction_ms": round(transactions.wall * 1000, 1),
        "transaction_cpu_ms": round(transactions.cpu_sum / max(1, transactions.calls) * 1000, 2),
        "longest_transaction_cpu_ms": round(transactions.cpu * 1000, 1),
        "longest_group_cpu_ms": round(groups.cpu * 1000, 1),
        "longest_checkpoint_cpu_ms": round(checkpoints_made.cpu * 1000, 1),
        "small_writes": len(waits),
        "wait_p50_ms": round(waits[len(waits) // 2] * 1000, 1),
        "wait_p99_ms": round(waits[int(len(waits) * 0.99)] * 1000, 1),
        "wait_max_ms": round(waits[-1] * 1000, 1),
    }


async def _asked(client: httpx.AsyncClient, method: str, path: str, body: Any = None) -> Any:
    answer = await client.request(method, path, json=body)
    if answer.status_code != 200:
        raise SystemExit(f"{method} {path}: {answer.status_code} {answer.text[:500]}")
    return answer.json()


async def _agent(client: httpx.AsyncClient) -> dict[str, Any]:
    return await _asked(client, "POST", "/v1/agents/", {"name": "large", "model": "kelpie/demo"})


async def _say(kelpie: Kelpie, agent_id: AgentId, count: int) -> None:
    """Writes messages directly; a turn for each would take long."""
    ids, now = kelpie.world.ids, kelpie.world.clock.now()
    for start in range(0, count, 1000):
        new = [
            Message(ids.new(MessageId), agent_id, Role.user, now, (Text(f"message {start + n} about the weather"),))
            for n in range(min(1000, count - start))
        ]
        await kelpie.world.database.transact(lambda tx, new=new: messages.append(tx, new))


async def restore(kelpie: Kelpie, client: httpx.AsyncClient, count: int) -> dict[str, float]:
    agent = await _agent(client)
    agent_id = AgentId(agent["id"])
    document = await _asked(client, "GET", f"/v1/agents/{agent_id}/memory/checkpoint")
    block = await _asked(client, "POST", "/v1/blocks/", {"label": "pattern", "value": "x" * 600})
    await _asked(client, "PATCH", f"/v1/agents/{agent_id}/core-memory/blocks/attach/{block['id']}")
    pattern = (await _asked(client, "GET", f"/v1/agents/{agent_id}/memory/checkpoint"))["memory"]["blocks"][-1]
    memory = document["memory"]
    memory["blocks"] = [{**pattern, "id": kelpie.world.ids.new(BlockId), "label": f"block {n}"} for n in range(count)]
    sealed = checkpoints.seal(agent_id, "large", 1, memory)
    del document, memory, pattern  # a client is another process
    path = f"/v1/agents/{agent_id}/memory/restore"
    return await _watched(kelpie, client.post(path, content=sealed, headers={"content-type": "application/json"}))


async def archive(kelpie: Kelpie, client: httpx.AsyncClient, count: int) -> dict[str, float]:
    made = await _asked(client, "POST", "/v1/archives/", {"name": "large"})
    ids, archive_id, now = kelpie.world.ids, ArchiveId(made["id"]), kelpie.world.clock.now()
    for start in range(0, count, 1000):
        new = [
            Passage(ids.new(PassageId), archive_id, f"passage {start + n} about the weather", now, now)
            for n in range(min(1000, count - start))
        ]
        await kelpie.world.database.transact(lambda tx, new=new: passages.insert_many(tx, new))
    return await _watched(kelpie, client.delete(f"/v1/archives/{archive_id}"))


async def history(kelpie: Kelpie, client: httpx.AsyncClient, count: int) -> dict[str, float]:
    agent = await _agent(client)
    await _say(kelpie, AgentId(agent["id"]), count)
    return await _watched(kelpie, _asked(client, "PATCH", f"/v1/agents/{agent['id']}/reset-messages", {}))


async def agent(kelpie: Kelpie, client: httpx.AsyncClient, count: int) -> dict[str, float]:
    made = await _agent(client)
    await _say(kelpie, AgentId(made["id"]), count)
    return await _watched(kelpie, _asked(client, "DELETE", f"/v1/agents/{made['id']}"))


TOUCH = sa.text("UPDATE users SET updated_at = :now")
OPERATIONS = {"restore": restore, "archive": archive, "history": history, "agent": agent}

if __name__ == "__main__":
    main()
