"""How search does with 100,000 passages in one archive, beside an exact scan by numpy in the same run; prints JSON.

    python bench/search.py [--passages 100000] [--real 1500] [--archives 1000] [--searches 200]
    python bench/search.py --tree DIR [--rounds 5]      the searches alone, of this checkout and another one, in turns

With `--tree`, both run on the packages installed here, each in a process of its own; `here` and `there` are the medians
of the rounds in ms of CPU for one search, and `ratio` is here divided by there.

`--real` sentences are embedded by the model of this machine; the other vectors are mixtures of two of them, which keeps
the real ones' uneven directions and crowds around each; `--real 0` takes clusters of random directions instead. The
queries are sentences of their own. Texts are embedded beforehand, so that the times are those of storing and finding.
"""

import argparse
import asyncio
import gc
import itertools
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kelpie.agent.turn.send_request import SendRequest
from kelpie.app import Kelpie
from kelpie.cli.server.process import GC_THRESHOLD, SWITCH_S
from kelpie.core.agents.agent import NewAgent
from kelpie.core.conversations.messages import Message, NewMessage, Role, Text
from kelpie.core.ids import AgentId, ArchiveId, MessageId
from kelpie.core.memory.passages import NewArchive, NewPassage, PassageQuery
from kelpie.core.search_hits import SearchMode
from kelpie.core.settings.settings import Settings
from kelpie.local import open_kelpie
from kelpie.memory.embedding_backlog import EmbeddingBacklog
from kelpie.search.vector_search import Nearest
from kelpie.storage.conversations import messages
from kelpie.world.embedding.minilm import DIMENSIONS, MiniLm
from load.server import quantiles

QUERIES = 100
RESULTS = 10
BATCH = 1000
SINGLE = 200
IN_SMALL = 100
TURNS, ROUNDS = 480, 24
LACKING = 500
EVERYWHERE = 20
MODES: tuple[SearchMode, ...] = ("vector", "hybrid", "fts")

Vectors = NDArray[np.float32]

_WHO = [
    "Anna",
    "Boris",
    "the gardener",
    "my sister",
    "our captain",
    "the new engineer",
    "Dr Mills",
    "a stranger",
    "the twins",
    "Maria",
]
_DID = [
    "repaired",
    "forgot",
    "sold",
    "painted",
    "lost",
    "described",
    "ordered",
    "hid",
    "admired",
    "returned",
    "measured",
    "photographed",
]
_KIND = [
    "old",
    "silver",
    "broken",
    "tiny",
    "expensive",
    "borrowed",
    "wooden",
    "blue",
    "noisy",
    "Italian",
    "handmade",
    "rusty",
]
_WHAT = [
    "bicycle",
    "telescope",
    "recipe",
    "umbrella",
    "violin",
    "map",
    "engine",
    "letter",
    "greenhouse",
    "camera",
    "boat",
    "piano",
    "clock",
    "ladder",
]
_WHERE = [
    "in the harbour",
    "behind the church",
    "at the office",
    "on the night train",
    "near the lake",
    "in Lisbon",
    "at school",
]
_WHEN = [
    "last winter",
    "on Tuesday",
    "before the storm",
    "after breakfast",
    "in 1998",
    "during the concert",
    "years ago",
]
_WHY = ["because the price was right", "although nobody asked", "to please the children", "by mistake", "for a bet"]
_RARE = ["".join(each) for each in itertools.product(("ka", "lo", "mi", "ter", "su", "ven"), repeat=6)][:20_000]


def sentences(count: int, seed: int) -> list[str]:
    """Sentences of everyday words, each with three out of 20,000 that are as rare as words are (Zipf's law)."""
    rng = random.Random(seed)
    weights = list(itertools.accumulate(1 / rank for rank in range(1, len(_RARE) + 1)))
    parts = (_WHO, _DID, ["the"], _KIND, _WHAT, _WHERE, _WHEN, _WHY, ["about"])
    return [
        f"{' '.join(rng.choice(part) for part in parts)} {' '.join(rng.choices(_RARE, cum_weights=weights, k=3))}."
        for _ in range(count)
    ]


class Prepared:
    """An embedder that has every vector already, except for what nobody waits for: that is really embedded."""

    name, dimensions = "bench", DIMENSIONS

    def __init__(self, real: MiniLm) -> None:
        self.known: dict[str, bytes] = {}
        self._real = real
        self.other = np.ones(DIMENSIONS, "<f4").tobytes()  # of what agents say meanwhile

    def why_not(self) -> None:
        return None

    async def embed(self, texts: Sequence[str], *, patient: bool = False) -> list[bytes]:
        if patient and self._real.why_not() is None:
            return await self._real.embed(texts, patient=True)
        return [self.known.get(text, self.other) for text in texts]

    async def close(self) -> None:
        await self._real.close()


def unit(rows: NDArray[Any]) -> Vectors:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


async def vectors(count: int, real: int, texts: list[str], queries: list[str], cache: Path) -> tuple[Vectors, Vectors]:
    rng = np.random.default_rng(7)
    if not real:
        middles = unit(rng.standard_normal((count // 50, DIMENSIONS)))
        made = unit(middles[rng.integers(0, len(middles), count)] + unit(rng.standard_normal((count, DIMENSIONS))))
        near = made[rng.integers(0, count, len(queries))]
        return made, unit(near + 0.8 * unit(rng.standard_normal(near.shape)))
    model = MiniLm(None, cache)
    found = await model.embed([*texts[:real], *queries])
    await model.close()
    rows = np.frombuffer(b"".join(found), "<f4").reshape(-1, DIMENSIONS)
    whole, asked = rows[:real], rows[real:]
    left, right = rng.integers(0, real, (2, count - real))
    share = rng.uniform(0.15, 0.6, (count - real, 1))
    return unit(np.concatenate([whole, (1 - share) * whole[left] + share * whole[right]])), asked


async def timed(work: Callable[[int], Awaitable[Any]], count: int) -> dict[str, float]:
    times: list[float] = []
    cpu = time.process_time()
    for number in range(count):
        started = time.perf_counter()
        await work(number)
        times.append((time.perf_counter() - started) * 1000)
    return quantiles(times) | {"cpu_ms": round((time.process_time() - cpu) / count * 1000, 2)}


async def store(kelpie: Kelpie, archive: ArchiveId, texts: Sequence[str]) -> None:
    for start in range(0, len(texts), BATCH):
        await kelpie.api().archives.store(archive, [NewPassage(text) for text in texts[start : start + BATCH]])


class Bench:
    def __init__(self, kelpie: Kelpie, prepared: Prepared, options: argparse.Namespace) -> None:
        self.kelpie, self.prepared, self.options = kelpie, prepared, options
        self.archives = kelpie.api().archives
        self.queries = sentences(QUERIES, seed=2)

    async def large(self, cache: Path, database_file: Path) -> tuple[ArchiveId, dict[str, Any]]:
        texts, rows, asked = await self._texts(cache)
        count, archive = len(texts), (await self.archives.create(NewArchive("large")))[0].id
        started, cpu = time.perf_counter(), time.process_time()
        await store(self.kelpie, archive, texts)
        took, spent = time.perf_counter() - started, time.process_time() - cpu
        out: dict[str, Any] = {
            "insert_many": {
                "per_s": round(count / took),
                "cpu_ms_each": round(spent / count * 1000, 3),
            },
            "disk_mb": round(sum(each.stat().st_size for each in database_file.parent.glob("kelpie.db*")) / 1e6, 1),
        }
        out["cold_open"] = await self._cold(archive)
        out["search"] = {
            mode: await timed(lambda number, mode=mode: self.search(archive, number, mode), self.options.searches)
            for mode in MODES
        }
        out["exact_numpy_scan"] = await timed(lambda number: self._scan(rows, asked[number % QUERIES]), 50)
        out["recall_at_10"] = await self._recall(archive, texts, rows, asked)
        out["insert_one"] = await self._one_by_one(archive)
        return archive, out

    async def _texts(self, cache: Path) -> tuple[list[str], Vectors, Vectors]:
        count = self.options.passages
        texts = list(dict.fromkeys(sentences(count + count // 10, seed=1)))[:count]
        rows, asked = await vectors(count, self.options.real, texts, self.queries, cache)
        self.prepared.known |= {text: row.tobytes() for text, row in zip(texts, rows, strict=True)}
        self.prepared.known |= {text: row.tobytes() for text, row in zip(self.queries, asked, strict=True)}
        return texts, rows, asked

    async def in_rounds(self, cache: Path) -> None:
        """A round of searches for every line that is read, and a line with what they took."""
        texts, *_ = await self._texts(cache)
        large = (await self.archives.create(NewArchive("large")))[0].id
        await store(self.kelpie, large, texts)
        small, rng = await self.small_archives(), random.Random(4)
        print(json.dumps({}), flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            found: dict[str, float] = {}
            for mode in MODES:
                in_large = await timed(lambda number, mode=mode: self.search(large, number, mode), QUERIES)
                in_small = await timed(
                    lambda number, mode=mode: self.search(rng.choice(small), number, mode), self.options.searches
                )
                found |= {f"{mode}_in_large": in_large["cpu_ms"], f"{mode}_in_small": in_small["cpu_ms"]}
            print(json.dumps(found), flush=True)

    async def search(self, archive: ArchiveId | None, number: int, mode: SearchMode) -> list[str]:
        text = self.queries[number % QUERIES]
        found = await self.archives.search(archive, PassageQuery(text, RESULTS, mode=mode))
        assert found.mode == mode, found
        return [each.passage.text for each in found.found]

    async def _scan(self, rows: Vectors, query: Vectors) -> list[int]:
        scores = rows @ query
        best = np.argpartition(-scores, RESULTS)[:RESULTS]
        return best[np.argsort(-scores[best])].tolist()

    async def _recall(self, archive: ArchiveId, texts: list[str], rows: Vectors, asked: Vectors) -> float:
        hits = 0
        for number in range(QUERIES):
            exact = {texts[at] for at in await self._scan(rows, asked[number])}
            hits += len(exact & set(await self.search(archive, number, "vector")))
        return round(hits / (RESULTS * QUERIES), 4)

    async def _cold(self, archive: ArchiveId) -> dict[str, float]:
        """The first search of a server: the signs are read into memory."""
        gc.collect()
        before, self.kelpie.runtime.embeddings._finder = _rss_mb(), Nearest()  # pyright: ignore[reportPrivateUsage]
        found = await timed(lambda number: self.search(archive, number, "vector"), 1)
        return {"first_search_ms": found["p50_ms"], "cpu_ms": found["cpu_ms"], "ram_mb": round(_rss_mb() - before, 1)}

    async def _one_by_one(self, archive: ArchiveId) -> dict[str, float]:
        some = [f"{text} again" for text in sentences(SINGLE, seed=3)]
        any_vector = next(iter(self.prepared.known.values()))
        self.prepared.known |= dict.fromkeys(some, any_vector)
        return await timed(lambda number: self.archives.store(archive, [NewPassage(some[number])]), SINGLE)

    async def small(self) -> dict[str, Any]:
        """Many archives of which any may be asked: what one search costs does not grow with the number of them."""
        made, rng = await self.small_archives(), random.Random(4)
        return {
            mode: await timed(
                lambda number, mode=mode: self.search(rng.choice(made), number, mode), self.options.searches
            )
            for mode in MODES
        }

    async def small_archives(self) -> list[ArchiveId]:
        known = list(self.prepared.known)[: self.options.passages]
        rng, made = random.Random(5), list[ArchiveId]()
        for number in range(self.options.archives):
            made.append((await self.archives.create(NewArchive(f"small {number}")))[0].id)
            await store(self.kelpie, made[-1], rng.sample(known, IN_SMALL))
        return made

    async def everywhere(self) -> dict[str, Any]:
        """Through all archives of the organisation at once, the first time and then."""
        out: dict[str, Any] = {}
        for mode in MODES:
            first = await timed(lambda number, mode=mode: self.search(None, number, mode), 1)
            out[mode] = {"first_ms": first["p50_ms"]} | await timed(
                lambda number, mode=mode: self.search(None, number, mode), EVERYWHERE
            )
        return out


def _rss_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


async def neighbour(bench: Bench, archive: ArchiveId) -> dict[str, Any]:
    """An agent's turns alone, beside a process that only computes, beside others' turns, beside searches one after the
    other without a pause, and beside vectors that are made up for without any pause either, which the server never
    does. Many short rounds in turn, so that whatever else the machine does weighs on all alike; what they cost beside
    the process is what a machine with so few cores makes of any work at all."""
    kelpie = bench.kelpie
    embedding = EmbeddingBacklog(kelpie.world, kelpie.runtime.embeddings)
    if kelpie._embedding_task:  # pyright: ignore[reportPrivateUsage] - the server's own would work in the rounds of others
        kelpie._embedding_task.cancel()  # pyright: ignore[reportPrivateUsage]
    quiet, other = [(await kelpie.api().agents.create(NewAgent(model="kelpie/demo"))).agent.id for _ in range(2)]

    async def embed() -> None:
        if not await embedding.work():
            await _lacking(kelpie, other)

    numbers = itertools.count()
    noises: dict[str, Callable[[], Awaitable[Any]] | None] = {
        "alone": None,
        "beside_a_busy_core": None,
        "beside_turns": lambda: _turn(kelpie, other),
        "beside_vector_searches": lambda: bench.search(archive, next(numbers), "vector"),
        "beside_hybrid_searches": lambda: bench.search(archive, next(numbers), "hybrid"),
        "beside_embedding": embed,
        "beside_both": lambda: asyncio.gather(bench.search(archive, next(numbers), "hybrid"), embed()),
    }
    found: dict[str, list[float]] = {name: [] for name in noises}
    for _ in range(ROUNDS):
        for name, noise in noises.items():
            over = asyncio.Event()
            busy = await _computing() if name == "beside_a_busy_core" else None
            beside = asyncio.create_task(_until(over, noise)) if noise else None
            for _ in range(TURNS // ROUNDS):
                started = time.perf_counter()
                await _turn(kelpie, quiet)
                found[name].append((time.perf_counter() - started) * 1000)
            over.set()
            if beside:
                await beside  # what it began is not to weigh on the next round; and if it failed, there was silence
            if busy:
                busy.kill()
                await busy.wait()
    alone = _spread(found["alone"])
    rows = {name: _spread(times) for name, times in found.items()}
    return {
        name: {f"{at}_ms": round(ms, 2) for at, ms in row.items()}
        | {f"{at}_over_alone": round(ms / alone[at], 2) for at, ms in row.items()}
        for name, row in rows.items()
    }


def _spread(times: Sequence[float]) -> dict[str, float]:
    return {f"p{at}": float(np.percentile(times, at)) for at in (50, 95, 99)}


async def _computing() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", "while True: pass")


async def _lacking(kelpie: Kelpie, agent: AgentId) -> None:
    """Gives an agent messages that have no vectors yet."""
    said = [
        Message(
            kelpie.world.ids.new(MessageId),
            agent,
            Role.user,
            1,
            (Text(f"a message of the usual length about this and that, {n}"),),
        )
        for n in range(LACKING)
    ]
    await kelpie.world.database.transact(lambda tx: messages.append(tx, said))


async def _until(over: asyncio.Event, noise: Callable[[], Awaitable[Any]]) -> None:
    while not over.is_set():
        await noise()


async def _turn(kelpie: Kelpie, agent: AgentId) -> None:
    turn = await kelpie.api().sending.send(agent, SendRequest((NewMessage(Role.user, (Text("hello there"),)),)))
    async for _ in turn.events():
        pass


async def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    settings = Settings(data_dir=str(folder))
    opened, prepared = open_kelpie(settings), Prepared(MiniLm(None, folder / "models"))
    kelpie = Kelpie(replace(opened.world, embedder=prepared), settings, data_dir=opened.data_dir)
    await kelpie.start()
    gc.freeze()  # the interpreter is set up as the server's: else it is the collector that a neighbour feels
    gc.set_threshold(*GC_THRESHOLD)
    sys.setswitchinterval(SWITCH_S)
    try:
        bench = Bench(kelpie, prepared, options)
        if options.in_rounds:
            await bench.in_rounds(folder / "models")
            return {}
        archive, large = await bench.large(folder / "models", folder / "kelpie.db")
        return {
            "passages": options.passages,
            "vectors": f"{options.real} real, the rest mixtures of them" if options.real else "random clusters",
            "one_archive": large,
            f"{options.archives}_archives_of_{IN_SMALL}": await bench.small(),
            "all_archives_together": await bench.everywhere(),
            "turn_of_a_neighbour": await neighbour(bench, archive),
        }
    finally:
        await kelpie.stop(5.0)


class Checkout:
    """The searches of one checkout, in a process of its own."""

    def __init__(self, tree: Path, options: argparse.Namespace) -> None:
        given = [f"--{name}={getattr(options, name)}" for name in ("passages", "real", "archives", "searches")]
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--in-rounds", *given],
            env=os.environ | {"PYTHONPATH": str(tree / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()

    def _line(self) -> dict[str, float]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline() or sys.exit("a checkout could not be measured"))

    def round(self) -> dict[str, float]:
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        return self._line()

    def end(self) -> None:
        self._process.communicate()


def beside(options: argparse.Namespace) -> dict[str, Any]:
    """This checkout and another one, round by round."""
    trees = {"here": Path(__file__).parent.parent, "there": options.tree.resolve()}
    checkouts = {name: Checkout(tree, options) for name, tree in trees.items()}
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    for number in range(options.rounds + 1):
        for name in (list(checkouts), list(reversed(checkouts)))[number % 2]:
            found = checkouts[name].round()
            if number:  # the first round fills the caches
                rows[name].append(found)
    for each in checkouts.values():
        each.end()
    medians = {name: {key: median(row[key] for row in some) for key in some[0]} for name, some in rows.items()}
    ratio = {key: round(value / medians["there"][key], 3) for key, value in medians["here"].items()}
    return medians | {"ratio": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--real", type=int, default=1500)
    parser.add_argument("--archives", type=int, default=1000)
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--tree", type=Path, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--in-rounds", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    before = os.getloadavg()[0]
    if options.tree is not None:
        print(json.dumps(beside(options) | {"load_average": [before, os.getloadavg()[0]]}, indent=1))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(options, Path(folder)))
    if not options.in_rounds:
        print(json.dumps(found | {"load_average": [before, os.getloadavg()[0]]}, indent=1))


if __name__ == "__main__":
    main()
