"""Rows that a disk has changed behind our back: reported, left out or marked, and never told as truth."""

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import Row

from kelpie.core.conversations.messages import Message, Role, Text
from kelpie.core.ids import AgentId, ArchiveId, MessageId, PassageId
from kelpie.core.memory.passages import Archive, Passage, PassageQuery
from kelpie.core.paging import Page
from kelpie.storage.archives import archives, passage_search, passages
from kelpie.storage.conversations.message_rows import from_row, to_row
from kelpie.storage.schema import create
from kelpie.storage.tables import messages as message_table
from kelpie.world.sqlite.database import SqliteDatabase

ARCHIVE = ArchiveId("archive-00000000-0000-4000-8000-000000000001")
ROTTEN = {
    "another letter": b"the pearl is in the kitchen",
    "no UTF-8": b"the pearl is in the k\xe9tchen",
}


def passage(number: int, text: str) -> Passage:
    return Passage(PassageId(f"passage-00000000-0000-4000-8000-00000000000{number}"), ARCHIVE, text, number, number)


@pytest.mark.parametrize("rotten", ROTTEN.values(), ids=ROTTEN.keys())
def test_a_damaged_passage_is_left_out_of_searches_and_marked_in_lists(tmp_path: Path, rotten: bytes) -> None:
    path = tmp_path / "kelpie.db"

    async def main() -> None:
        database = SqliteDatabase.open(path)
        await database.transact(create)
        await database.transact(lambda tx: archives.insert(tx, Archive(ARCHIVE, "shelf", 0, 0)))
        made = (passage(1, "the pearl is in the kelpie"), passage(2, "the pearl is in the oyster"))
        await database.transact(lambda tx: passages.insert_many(tx, made))
        _write(path, "UPDATE passages SET text = CAST(? AS TEXT) WHERE id = ?", rotten, made[0].id)

        found = await database.read(
            lambda tx: passage_search.search(tx, ARCHIVE, PassageQuery("pearl", 10, mode="fts"))
        )
        assert [each.passage.text for each in found if not each.passage.lost] == [made[1].text]
        assert [each.passage.id for each in found if each.passage.lost] == [made[0].id]
        listed = await database.read(lambda tx: passages.select(tx, ARCHIVE, Page()))
        assert {each.id: each.lost for each in listed} == {made[0].id: True, made[1].id: False}
        assert all("kitchen" not in each.text and "tchen" not in each.text for each in listed)
        assert await database.read(lambda tx: passages.texts(tx, [one.id for one in made])) == {
            made[1].id: made[1].text
        }
        # A transaction that reads it goes on as well.
        assert len(await database.transact(lambda tx: passages.select(tx, ARCHIVE, Page()))) == 2
        await database.close()

    asyncio.run(main())


def _write(path: Path, sql: str, *parameters: object) -> None:
    with sqlite3.connect(path) as beside:
        beside.execute(sql, parameters)


SAID = Message(
    MessageId("message-00000000-0000-4000-8000-000000000001"),
    AgentId("agent-00000000-0000-4000-8000-000000000001"),
    Role.user,
    1,
    (Text("the pearl is in the oyster"),),
    seq=1,
)


def _row(**columns: object) -> Row[Any]:
    """A row as a statement on messages returns it."""
    return cast("Row[Any]", tuple(columns.get(column.name) for column in message_table.c))


@pytest.mark.parametrize(
    "damage",
    [
        {"content": [{"type": "text", "text": "the pearl is in the kitchen"}]},
        {"content": None},
        {"tool_calls": None},
        {"role": "usfr"},
        {"checksum": 1},
    ],
    ids=str,
)
def test_a_damaged_message_says_so_and_nothing_else(damage: dict[str, object]) -> None:
    row = to_row(SAID, 1)
    whole = from_row(_row(**row))
    assert not whole.lost and whole.content == SAID.content
    found = from_row(_row(**{**row, **damage}))
    assert found.lost
    assert (found.id, found.agent_id, found.seq) == (SAID.id, SAID.agent_id, 1)
    assert "pearl" not in found.said and "damaged" in found.said


def test_who_says_the_same_as_a_lost_message_is_not_lost() -> None:
    lost = from_row(_row(**{**to_row(SAID, 1), "checksum": 1}))
    again = replace(SAID, content=(Text(lost.said),))
    assert not from_row(_row(**to_row(again, 1))).lost
