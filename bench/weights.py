"""The weights of the ranking, chosen by leaving one conversation out: for each conversation, those that are best on all
others, and how well it is searched with them. Prints JSON.

    python bench/weights.py FILE                      about five minutes; FILE is that of bench/recall.py
    python bench/weights.py FILE --wordllama DIR      vectors of the package wordllama in DIR instead of our model's

It uses the search engine itself, in memory, without a server. Three steps, each with the choices of those before: the
weight of words against meaning (`words`, `power`) on passages without neighbours, then the neighbours (`before`,
`after`) on passages of one batch, then the date on the same with the times of their sessions. The best are those with
the highest mean of R@10 and nDCG@10. `chosen` are the weights of the product, `left_out` those that were chosen without
the conversation, `dates` the questions that mention a date, with and without counting it.
"""

import argparse
import asyncio
import importlib
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from sqlalchemy import Connection

from kelpie.core.dates.date_mentions import mentions
from kelpie.core.time import from_datetime
from kelpie.search import items, ranking
from kelpie.search.items import Item
from kelpie.search.queries import ItemQuery
from kelpie.search.vector_rows import Vector
from kelpie.search.vector_search import Nearest, vector
from kelpie.storage import schema
from kelpie.world.embedding.minilm import MiniLm
from kelpie.world.sqlite.connections import memory_connection
from recall import LIMIT, Conversation, Found, Question, read, scored

MODEL = "kelpie/all-MiniLM-L6-v2"
NOW = from_datetime(datetime(2026, 1, 1, tzinfo=UTC))


@dataclass(frozen=True)
class Weights:
    words: float = ranking.WORDS
    power: float = ranking.WORDS_POWER
    before: float = ranking.BEFORE
    after: float = ranking.AFTER
    date: float = ranking.DATE

    def use(self) -> None:
        ranking.WORDS, ranking.WORDS_POWER = self.words, self.power
        ranking.BEFORE, ranking.AFTER, ranking.DATE = self.before, self.after, self.date


CHOSEN = Weights()
# The weight and the power of words with which the third set (tests/memory/test_other_texts.py) is not worse than with
# the engine before.
ADMITTED = (
    (1.2, 1.75), (1.4, 1.75), (1.6, 1.75), (1.2, 2.0), (1.6, 2.0), (1.8, 2.0), (2.0, 2.0), (2.0, 2.25), (2.4, 2.25),
    (2.8, 2.25),
)  # fmt: skip
STEPS: Sequence[tuple[str, Sequence[Mapping[str, float]]]] = (
    ("passages", [{"words": words, "power": power} for words, power in ADMITTED]),
    (
        "batch",
        [
            {"before": before, "after": after}
            for before, after in itertools.product((0.0, 0.3, 0.4, 0.5, 0.6, 0.7), (0.0, 0.2, 0.3, 0.4, 0.5))
        ],
    ),
    ("dated", [{"date": date} for date in (0.0, 0.15, 0.3, 0.45, 0.6, 0.8, 1.0)]),
)


class Library:
    """The turns of all conversations, twice: by themselves, and one after the other."""

    def __init__(self, tx: Connection, conversations: Sequence[Conversation], vectors: Mapping[str, Vector]) -> None:
        self._tx, self._vectors, self._finder = tx, vectors, Nearest()
        self.conversations = {each.name: each for each in conversations}
        self._times: dict[str, int] = {}
        self._known: dict[tuple[str, str, Weights], list[Found]] = {}
        for each in conversations:
            for scope, thread in ((f"{each.name} passages", None), (f"{each.name} batch", "batch")):
                items.put_many(tx, "passage", scope, list(self._items(each, scope, thread)))

    def _items(self, conversation: Conversation, scope: str, thread: str | None) -> Iterator[Item]:
        for place, turn in enumerate(conversation.turns):
            item_id = f"{scope} {turn.id}"
            self._times[item_id] = from_datetime(datetime.fromisoformat(turn.at))
            yield Item(item_id, turn.text, (self._vectors[turn.text],), thread, place if thread else None)

    def found(self, name: str, place: str, weights: Weights) -> list[Found]:
        """What is found for every question of a conversation."""
        key = (name, place, weights)
        if key not in self._known:
            weights.use()
            questions = self.conversations[name].questions
            self._known[key] = [scored(self._search(name, place, each), each.evidence) for each in questions]
        return self._known[key]

    def _search(self, name: str, place: str, question: Question) -> list[str]:
        scope = f"{name} {'passages' if place == 'passages' else 'batch'}"
        dated = () if place == "undated" else mentions(question.text, NOW, ZoneInfo("UTC"))
        times = self._times_of if place == "dated" else None
        wanted = ItemQuery(question.text, LIMIT, "hybrid", {MODEL: self._vectors[question.text]}, dated, times)
        near = items.nearest(self._tx, self._finder, "passage", {scope: MODEL}, wanted, None)
        return [hit.id.removeprefix(f"{scope} ") for hit in items.find(self._tx, "passage", scope, wanted, None, near)]

    def _times_of(self, _: Connection, asked: Sequence[str]) -> dict[str, tuple[int, int]]:
        return {each: (self._times[each], self._times[each]) for each in asked}


def quality(found: Iterable[Found]) -> float:
    return statistics.fmean((recall + gain) / 2 for recall, _, gain in found)


def best(library: Library, names: Sequence[str]) -> Weights:
    """The best weights on these conversations."""
    weights = CHOSEN
    for place, grid in STEPS:
        weights = max(
            (replace(weights, **each) for each in grid),
            key=lambda each: quality(found for name in names for found in library.found(name, place, each)),
        )
    return weights


def row(found: Sequence[Found]) -> dict[str, float]:
    names = ("R@10", "R@20", "nDCG@10")
    means = zip(names, zip(*found, strict=True), strict=True)
    return {"questions": len(found), **{name: round(statistics.fmean(column), 3) for name, column in means}}


def measured(library: Library) -> dict[str, Any]:
    names = list(library.conversations)
    without: dict[str, Weights] = {}
    for name in names:
        without[name] = best(library, [each for each in names if each != name])
        print(f"{name} was left out: {without[name]}", file=sys.stderr)
    places = ("passages", "batch", "dated")
    rows = {
        place: {
            how: {name: row(library.found(name, place, weights[name])) for name in names}
            | {"all": row([found for name in names for found in library.found(name, place, weights[name])])}
            for how, weights in (("chosen", dict.fromkeys(names, CHOSEN)), ("left_out", without))
        }
        for place in places
    }
    all_of_them = best(library, names)
    return {
        "chosen": asdict(CHOSEN),
        "best_on_all": asdict(all_of_them),
        "weights_left_out": {name: asdict(weights) for name, weights in without.items()},
        **rows,
        "dates": dates(library),
    }


def dates(library: Library) -> dict[str, Any]:
    """Of the questions that mention a date: with the date, and as if none was recognised; and how many got worse."""
    pairs = [
        (with_date, without)
        for name, conversation in library.conversations.items()
        for question, with_date, without in zip(
            conversation.questions,
            library.found(name, "dated", CHOSEN),
            library.found(name, "undated", CHOSEN),
            strict=True,
        )
        if mentions(question.text, NOW, ZoneInfo("UTC"))
    ]
    return {
        "with": row([first for first, _ in pairs]),
        "without": row([second for _, second in pairs]),
        "better": sum(quality([first]) > quality([second]) for first, second in pairs),
        "worse": sum(quality([first]) < quality([second]) for first, second in pairs),
    }


async def embedded(texts: Sequence[str]) -> list[bytes]:
    with tempfile.TemporaryDirectory() as cache:
        model = MiniLm(None, Path(cache))
        try:
            return [each for at in range(0, len(texts), 500) for each in await model.embed(texts[at : at + 500])]
        finally:
            await model.close()


def by_wordllama(folder: Path, texts: Sequence[str]) -> list[bytes]:
    sys.path.append(str(folder))
    # Its own folder as the cache: otherwise it looks for its tokenizer elsewhere and downloads it.
    own = str(folder / "wordllama")
    model: Any = importlib.import_module("wordllama").WordLlama.load(cache_dir=own, disable_download=True)
    started = time.process_time()
    found = [np.asarray(model.embed(text), "<f4").reshape(-1).tobytes() for text in texts]
    print(f"{(time.process_time() - started) / len(texts) * 1000:.3f} ms of CPU for each text", file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--wordllama", type=Path, metavar="DIR")
    options = parser.parse_args()
    conversations = read(options.file)
    said = [turn.text for each in conversations for turn in each.turns]
    texts = list(dict.fromkeys([*said, *(question.text for each in conversations for question in each.questions)]))
    values = by_wordllama(options.wordllama, texts) if options.wordllama else asyncio.run(embedded(texts))
    tx = memory_connection()
    schema.create(tx)
    made = {text: vector(MODEL, each) for text, each in zip(texts, values, strict=True)}
    print(json.dumps(measured(Library(tx, conversations, made)), indent=1))


if __name__ == "__main__":
    main()
