"""Search in texts of other kinds than conversations, with the real embedding model: it must not get worse."""

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
from sqlalchemy import Connection

from kelpie.core.search_hits import SearchMode
from kelpie.search import items
from kelpie.search.items import Item
from kelpie.search.queries import ItemQuery
from kelpie.search.vector_search import Nearest, vector
from kelpie.world.embedding.minilm import MiniLm
from kelpie.world.sqlite.connections import memory_connection
from tests.memory.other_texts import DOCUMENTATION, LANGUAGES, TOOLS
from tests.new_database import create_schema
from tests.parts import lacks

MODEL = "kelpie/all-MiniLM-L6-v2"
# The mean of 1 / the place of the right text before words, vectors, neighbours and dates were ranked together.
BEFORE = {"documentation": 0.795, "tools": 0.917, "languages": 1.0}
SETS = {"documentation": DOCUMENTATION, "tools": TOOLS, "languages": LANGUAGES}


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


async def score(
    tx: Connection, model: MiniLm, scope: str, texts: Mapping[str, tuple[str, ...]], mode: SearchMode
) -> float:
    stored = zip(texts, await model.embed(list(texts)), strict=True)
    items.put_many(tx, "passage", scope, [Item(text, text, (vector(MODEL, each),)) for text, each in stored])
    asked = [(question, text) for text, questions in texts.items() for question in questions]
    finder, total = Nearest(), 0.0
    vectors = await model.embed([question for question, _ in asked])
    for (question, right), values in zip(asked, vectors, strict=True):
        wanted = ItemQuery(question, 10, mode, {MODEL: vector(MODEL, values)})
        near = items.nearest(tx, finder, "passage", {scope: MODEL}, wanted, None)
        found = [hit.id for hit in items.find(tx, "passage", scope, wanted, None, near)]
        total += 1 / (found.index(right) + 1) if right in found else 0.0
    return total / len(asked)


async def test_other_kinds_of_texts_are_found_as_well_as_before(tx: Connection, model: MiniLm) -> None:
    found = {name: await score(tx, model, name, texts, "hybrid") for name, texts in SETS.items()}
    assert all(found[name] >= BEFORE[name] for name in SETS), found
