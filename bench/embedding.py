"""What the local embedding model costs: processor time for each text, memory, and the time to start its process.

    python bench/embedding.py                       with sentences of its own
    python bench/embedding.py --texts FILE          with the lines of a file
    python bench/embedding.py --turns 300           also memory and CPU of a server during and after so many turns
    python bench/embedding.py --turns 300 --tree D  the same for another checkout (only the part with the turns)

Prints JSON. CPU is that of all threads of the embedding process. `published` is the least and the mean cosine between
vectors with 8 bits and the published ones. With turns, `server` and `process` are megabytes of resident memory: idle,
at most while messages are embedded, before the process ends for want of texts, and after it; `background_cpu_s` is the
CPU of both from the last turn until every message has its vector. The model of the turns is bench/fake_model.py.
"""

import argparse
import asyncio
import json
import os
import random
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from kelpie.world.embedding import minilm
from kelpie.world.embedding.minilm import MiniLm
from load.server import Server, Started, cpu_s

IDLE_S = 15
EMBEDDED_S = 600.0
WORDS = (
    "the",
    "river",
    "harbour",
    "night",
    "agent",
    "reads",
    "letters",
    "about",
    "ships",
    "and",
    "maps",
    "of",
    "coasts",
)


def sentences(number: int) -> list[str]:
    chance = random.Random(1)
    return [" ".join(chance.choices(WORDS, k=chance.randint(4, 50))) for _ in range(number)]


def rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return round(int(status.split("VmRSS:")[1].split()[0]) / 1024, 1)


async def embedded(precision: str, texts: list[str], piece: int) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """Embeds the texts in pieces, as the background work does, with a new cache and then with a stored graph."""
    with tempfile.TemporaryDirectory() as cache:
        first = MiniLm(None, Path(cache), precision=precision)
        await first.embed(["first"])
        built_s = cpu_s(first.process_id or 0)
        await first.close()
        model = MiniLm(None, Path(cache), precision=precision)
        await model.embed(["first"])
        pid = model.process_id or 0
        started_s, loaded_mb, before = cpu_s(pid), rss_mb(pid), cpu_s(pid)
        vectors = [
            v for at in range(0, len(texts), piece) for v in await model.embed(texts[at : at + piece], patient=True)
        ]
        used, full_mb = cpu_s(pid) - before, rss_mb(pid)
        await model.close()
    found = {
        "cpu_ms_per_text": round(used * 1000 / len(texts), 2),
        "start_cpu_s": round(started_s, 2),
        "first_start_cpu_s": round(built_s, 2),
        "rss_mb": {"loaded": loaded_mb, "after": full_mb},
    }
    return found, np.array([np.frombuffer(vector, "<f4") for vector in vectors])


async def models(texts: list[str], piece: int) -> dict[str, Any]:
    minilm.KNOWN_MAX = 0  # every text is embedded
    small, a = await embedded("int8", texts, piece)
    exact, b = await embedded("float32", texts, piece)
    cosines = (a * b).sum(axis=1)
    published = {"cosine_mean": round(float(cosines.mean()), 5), "cosine_min": round(float(cosines.min()), 5)}
    return {"texts": len(texts), "piece": piece, "int8": small, "float32": exact, "published": published}


def child_of(pid: int) -> int | None:
    """The embedding process of a server, if it has one."""
    found = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and _parent(each) == pid]
    return next((each for each in found if b"process_loop" in Path(f"/proc/{each}/cmdline").read_bytes()), None)


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def waiting(database: Path) -> int:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as db:
        asked = "SELECT count(*) FROM search_items WHERE kind = 'message' AND model IS NULL"
        return int(db.execute(asked).fetchone()[0])


async def turns(number: int, tree: Path | None) -> dict[str, Any]:
    house = Started(0, tree, {"KELPIE_EMBEDDING_IDLE_SECONDS": str(IDLE_S)})
    try:
        await house.ready_s()
        pid = house.process.pid
        server = Server(house.url, pid, "openai/gpt-4o-mini")
        agent = await server.new_agent()
        idle = rss_mb(pid)
        for at in range(number):
            body = {"messages": [{"role": "user", "content": f"{at}: {sentences(at % 97 + 1)[-1]}"}]}
            await server.lean.call("POST", f"/v1/agents/{agent}/messages", body)
        before, deadline = cpu_s(pid) + _cpu_of_child(pid), time.monotonic() + EMBEDDED_S
        left = waiting(house.database_file)
        largest = (0.0, 0.0)
        used = 0.0
        while time.monotonic() < deadline and waiting(house.database_file):
            await asyncio.sleep(0.5)
            child = child_of(pid)
            now = (rss_mb(pid), rss_mb(child) if child else 0.0)
            largest = max(largest, now, key=sum)
            used = max(used, cpu_s(pid) + _cpu_of_child(pid) - before)
        resting = (0.0, 0.0)
        for _ in range(int(EMBEDDED_S)):  # tools are embedded after the messages, and then it is idle
            child = child_of(pid)
            if child is None:
                break
            resting = (rss_mb(pid), rss_mb(child))
            await asyncio.sleep(1.0)
        child = child_of(pid)
        return {
            "turns": number,
            "idle_mb": {"server": idle},
            "embedding_mb": {"server": largest[0], "process": largest[1]},
            "resting_mb": {"server": resting[0], "process": resting[1]},
            "after_mb": {"server": rss_mb(pid), "process": rss_mb(child) if child else 0.0},
            "texts_after_the_turns": left,
            "background_cpu_s": round(used, 2),
            "background_cpu_ms_per_text": round(used * 1000 / max(1, left), 2),
        }
    finally:
        house.stop()


def _cpu_of_child(pid: int) -> float:
    child = child_of(pid)
    return cpu_s(child) if child else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--texts", type=Path, help="a file with one text per line")
    parser.add_argument("--number", type=int, default=400, help="of texts")
    parser.add_argument("--piece", type=int, default=8, help="texts that are embedded in one go")
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--tree", type=Path, help="another checkout whose server is measured")
    args = parser.parse_args()
    found: dict[str, Any] = {"cores": os.cpu_count()}
    if args.tree is None:
        lines = args.texts.read_text().splitlines() if args.texts else sentences(args.number)
        found |= asyncio.run(models([line for line in lines if line.strip()][: args.number], args.piece))
    if args.turns:
        found |= {"server": asyncio.run(turns(args.turns, args.tree))}
    json.dump(found, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
