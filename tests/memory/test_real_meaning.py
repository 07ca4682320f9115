"""Search with the real embedding model: paraphrases are found, and both ways together beat each alone."""

import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from kelpie.core.search_hits import SearchMode
from kelpie.search import items
from kelpie.search.items import Item, ItemQuery
from kelpie.search.vector_search import Nearest, vector
from kelpie.world.embedding.minilm import MiniLm
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema
from tests.parts import lacks

MODEL = "kelpie/all-MiniLM-L6-v2"
PARAPHRASES = {
    "Her little brother is allergic to peanuts.": "Which nuts make the sibling ill?",
    "The meeting was moved to Friday afternoon.": "When do we get together instead?",
    "He drives an old electric vehicle to work.": "What car takes him to the office?",
    "Grandmother grew up on a farm in Portugal.": "Where did the old lady spend her childhood?",
    "The physician told him to sleep more.": "What was the doctor's advice about rest?",
    "We adopted a kitten from the shelter.": "Do they have any pets, like cats?",
}
# The weight of meaning in both together was chosen with other questions than these, which were written beforehand.
_WHO = ("Ingrid", "Jonas", "Keiko", "Luis", "Mona", "Nadia", "Omar", "Priya")
_SAID = (  # a fact, and a question that shares no word with it but the name
    ("{} is a vegetarian.", "Would {} eat a steak?"),
    ("{} broke an arm skiing.", "Which injury did {} have?"),
    ("{} was born in 1987.", "How old is {}?"),
    ("{} teaches mathematics to teenagers.", "What is {}'s profession?"),
    ("{} wakes at five every morning.", "Is {} an early riser?"),
    ("{} collects stamps.", "What is the hobby of {}?"),
    ("{} married a dentist.", "Who is the spouse of {}?"),
)


@pytest.fixture
def tx() -> Iterator[Connection]:
    connection = memory_connection()
    create_schema(connection)
    yield connection
    connection.close()


@pytest.fixture
async def model(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MiniLm]:
    found = MiniLm(None, Path(tmp_path_factory.getbasetemp()) / "models")
    if why := found.why_not():
        lacks("model", why)
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
        wanted = ItemQuery(query, limit, mode, {MODEL: vector(MODEL, values)})
        near = items.nearest(self._tx, self._finder, "passage", {"shelf": MODEL}, wanted, None)
        return [hit.id for hit in items.find(self._tx, "passage", "shelf", wanted, None, near)]


async def test_paraphrases_are_found_by_meaning_and_not_by_words(tx: Connection, model: MiniLm) -> None:
    shelf = Shelf(tx, model)
    await shelf.put(*PARAPHRASES)
    by_words = [await shelf.find(query, "fts", 1) == [text] for text, query in PARAPHRASES.items()]
    by_meaning = [await shelf.find(query, "vector", 1) == [text] for text, query in PARAPHRASES.items()]
    assert sum(by_meaning) >= len(PARAPHRASES) - 1
    assert sum(by_words) < sum(by_meaning)


async def test_both_together_beat_each_alone_on_a_generated_sample(tx: Connection, model: MiniLm) -> None:
    """Half of the questions use other words than the answer, half ask for one of 300 numbers."""
    rng = random.Random(7)
    shelf, asked = Shelf(tx, model), dict[str, str]()
    for who in _WHO:
        for fact, question in _SAID:
            asked[question.format(who)] = fact.format(who)
    numbers = rng.sample(range(10_000, 99_999), 300)
    parcels = [f"The parcel with number {n} {rng.choice(('arrived', 'was lost', 'was returned'))}." for n in numbers]
    asked |= {f"Where is {text.split()[4]}?": text for text in rng.sample(parcels, len(asked))}
    await shelf.put(*dict.fromkeys([*asked.values(), *parcels]))

    async def score(mode: SearchMode) -> float:
        """The mean of 1 / the place of the right answer."""
        places = [(await shelf.find(query, mode), right) for query, right in asked.items()]
        return sum(1 / (found.index(right) + 1) for found, right in places if right in found) / len(places)

    words, meaning, both = [await score(mode) for mode in ("fts", "vector", "hybrid")]
    assert both > words, (words, meaning, both)
    assert both > meaning, (words, meaning, both)
    assert both >= 0.8, (words, meaning, both)


async def test_what_holds_the_very_words_stands_first(tx: Connection, model: MiniLm) -> None:
    shelf = Shelf(tx, model)
    exact = "error code 0x80070057"
    await shelf.put(exact, "an error happened while the code was running", "a parameter is wrong", "code of conduct")
    assert (await shelf.find("error code 0x80070057", "hybrid", 1)) == [exact]
