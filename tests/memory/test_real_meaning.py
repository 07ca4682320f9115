"""Search with the real embedding model: paraphrases are found, and both ways together lose nothing of either."""

import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from kelpie.core.search import SearchMode
from kelpie.search import items
from kelpie.search.items import Item, Wanted
from kelpie.search.nearest import Nearest, vector
from kelpie.storage import schema
from kelpie.world.minilm import MiniLm
from kelpie.world.sqlite_connection import memory_connection

MODEL = "kelpie/all-MiniLM-L6-v2"
PARAPHRASES = {
    "Her little brother is allergic to peanuts.": "Which nuts make the sibling ill?",
    "The meeting was moved to Friday afternoon.": "When do we get together instead?",
    "He drives an old electric vehicle to work.": "What car takes him to the office?",
    "Grandmother grew up on a farm in Portugal.": "Where did the old lady spend her childhood?",
    "The physician told him to sleep more.": "What was the doctor's advice about rest?",
    "We adopted a kitten from the shelter.": "Do they have any pets, like cats?",
}
_WHO = ("Anna", "Boris", "Chloe", "Dmitri", "Elena", "Farid", "Greta", "Hugo")
_SAID = (  # a fact, and a question that shares no word with it but the name
    ("{} bought a used automobile.", "Which car did {} get?"),
    ("{} fears dogs.", "Which animals is {} scared of?"),
    ("{} resigned from the bank.", "Why is {} out of a job?"),
    ("{} plays the cello in a quartet.", "Which musical instrument does {} perform on?"),
    ("{} moved to Lisbon.", "In what city does {} live now?"),
    ("{} cannot digest milk.", "Which drink is bad for {}'s stomach?"),
)


@pytest.fixture
def tx() -> Iterator[Connection]:
    connection = memory_connection()
    schema.create(connection)
    yield connection
    connection.close()


@pytest.fixture
async def model(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MiniLm]:
    found = MiniLm(None, Path(tmp_path_factory.getbasetemp()) / "models")
    if why := found.why_not():
        pytest.skip(why)
    yield found
    await found.close()


class Shelf:
    """Texts that can be looked through in every way."""

    def __init__(self, tx: Connection, model: MiniLm) -> None:
        self._tx, self._model, self._finder = tx, model, Nearest()

    async def put(self, *texts: str) -> None:
        made = zip(texts, await self._model.embed(texts), strict=True)
        items.put_many(self._tx, "passage", "shelf", [Item(text, text, (vector(MODEL, v),)) for text, v in made])

    async def find(self, query: str, mode: SearchMode, limit: int = 10) -> list[str]:
        (values,) = await self._model.embed([query])
        wanted = Wanted(query, limit, mode, {MODEL: vector(MODEL, values)})
        near = items.nearest(self._tx, self._finder, "passage", {"shelf": MODEL}, wanted, None)
        return [hit.id for hit in items.find(self._tx, "passage", "shelf", wanted, None, near)]


async def test_paraphrases_are_found_by_meaning_and_not_by_words(tx: Connection, model: MiniLm) -> None:
    shelf = Shelf(tx, model)
    await shelf.put(*PARAPHRASES)
    by_words = [await shelf.find(query, "fts", 1) == [text] for text, query in PARAPHRASES.items()]
    by_meaning = [await shelf.find(query, "vector", 1) == [text] for text, query in PARAPHRASES.items()]
    assert sum(by_meaning) >= len(PARAPHRASES) - 1
    assert sum(by_words) < sum(by_meaning)


async def test_both_together_find_what_either_finds_on_a_generated_sample(tx: Connection, model: MiniLm) -> None:
    rng = random.Random(11)
    shelf, asked = Shelf(tx, model), dict[str, str]()
    for who in _WHO:
        for fact, question in _SAID:
            asked[question.format(who)] = fact.format(who)
    codes = [f"Invoice {rng.choice('QXZ')}{rng.randrange(10_000, 99_999)} was paid in May." for _ in range(200)]
    asked |= {f"what happened to {text.split()[1]}": text for text in rng.sample(codes, 40)}
    await shelf.put(*dict.fromkeys([*asked.values(), *codes]))

    async def recall(mode: SearchMode) -> float:
        found = [right in await shelf.find(query, mode, 5) for query, right in asked.items()]
        return sum(found) / len(found)

    words, meaning, both = [await recall(mode) for mode in ("fts", "vector", "hybrid")]
    assert both > words, (words, meaning, both)
    assert both >= meaning, (words, meaning, both)


async def test_what_holds_the_very_words_stands_first(tx: Connection, model: MiniLm) -> None:
    shelf = Shelf(tx, model)
    exact = "error code 0x80070057"
    await shelf.put(exact, "an error happened while the code was running", "a parameter is wrong", "code of conduct")
    assert (await shelf.find("error code 0x80070057", "hybrid", 1)) == [exact]
