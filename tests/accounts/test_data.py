"""The state of what is stored: damage is counted by kind and named, nothing is told as sound that was not looked at."""

import sqlite3
from pathlib import Path

import pytest

from kelpie.accounts.stored_data import SHOWN, StoredData
from kelpie.core.access.callers import Caller
from kelpie.core.errors import Forbidden
from kelpie.core.ids import OrganizationId, UserId
from kelpie.core.memory.blocks import NewBlock
from kelpie.core.memory.passages import NewArchive, NewPassage
from kelpie.storage.integrity import row_checks
from tests.server.rig import open_rig

OTHERS = Caller(
    UserId("user-00000000-0000-4000-8000-000000000001"), OrganizationId("org-00000000-0000-4000-8000-0000000000aa")
)


async def test_damage_is_counted_by_kind_and_named(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as (kelpie, _):
        doors = kelpie.api()
        archive, _ = await doors.archives.create(NewArchive("shelf"))
        await doors.archives.store(archive.id, [NewPassage(f"passage {n}") for n in range(row_checks.PAGE + 20)])
        block = await doors.blocks.create(NewBlock("human", "Likes tea."))
        with sqlite3.connect(tmp_path / "kelpie.db") as beside:
            (entries,) = beside.execute("SELECT count(*) FROM search_items").fetchone()
            (postings,) = beside.execute("SELECT count(*) FROM search_postings").fetchone()
        before = await doors.stored_data.look()
        assert before.sound and not before.unlooked
        assert {each.kind: each.looked_at for each in before.rows} == {
            "message": 0, "passage": row_checks.PAGE + 20, "passage of a file": 0, "block": 1, "version of a block": 1,
            "version of a template": 0, "vector": 0, "text index entry": entries, "text index segment": 1,
            "text index postings": postings,
        }  # fmt: skip
        with sqlite3.connect(tmp_path / "kelpie.db") as beside:
            beside.execute("UPDATE passages SET text = 'another' WHERE text LIKE 'passage 1_'")
            beside.execute("UPDATE passages SET text = 'another' WHERE text = 'passage 519'")
            beside.execute(
                "DELETE FROM search_items WHERE item_id = (SELECT id FROM passages WHERE text = 'passage 5')"
            )
            beside.execute("UPDATE blocks SET value = 'Likes sea.'")
            beside.execute("UPDATE block_history SET fields = '{'")
        after = await doors.stored_data.look()
        assert not after.sound
        found = {each.kind: (each.damaged, len(each.ids)) for each in after.rows if each.damaged}
        assert found == {"passage": (11, SHOWN), "block": (1, 1), "version of a block": (1, 1)}
        assert [each.ids for each in after.rows if each.kind == "block"] == [[block.id]]
        assert [each.ids for each in after.rows if each.kind == "version of a block"] == [[f"{block.id} 1"]]
        assert after.wrongs["a passage without a search entry"] == 1


@pytest.mark.parametrize(
    ("table", "column", "key", "kind"),
    [
        ("search_segments", "members", "id", "text index segment"),
        ("search_postings", "postings", "place", "text index postings"),
        ("search_items", "words", "id", "text index entry"),
    ],
)
async def test_a_damaged_part_of_the_text_index_is_reported(
    tmp_path: Path, table: str, column: str, key: str, kind: str
) -> None:
    async with open_rig(tmp_path) as (kelpie, _):
        doors = kelpie.api()
        archive, _ = await doors.archives.create(NewArchive("shelf"))
        await doors.archives.store(archive.id, [NewPassage(f"passage {n}") for n in range(300)])
        await doors.archives.store(archive.id, [NewPassage("one that is loose")])
        assert (await doors.stored_data.look()).sound
    with sqlite3.connect(tmp_path / "kelpie.db") as beside:
        (number, stored) = beside.execute(
            f"SELECT {key}, {column} FROM {table} WHERE length({column}) > 0 ORDER BY {key} DESC LIMIT 1"
        ).fetchone()
        rotten = stored[:-1] + bytes([stored[-1] ^ 1])
        beside.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (rotten, number))
    # Nothing runs in the background now that could write the row anew.
    async with open_rig(tmp_path, lifecycle=False) as (kelpie, _):
        state = await StoredData(kelpie.world).look()
        await kelpie.world.database.close()
        assert not state.sound
        assert {each.kind: each.ids for each in state.rows if each.damaged} == {kind: [str(number)]}


async def test_what_there_was_no_time_for_is_told(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as (kelpie, _):
        state = await StoredData(kelpie.world).look(seconds=0)
        assert [each.looked_at for each in state.rows] == [0] * len(row_checks.KINDS)
        assert len(state.unlooked) == len(row_checks.KINDS) + len(row_checks.WRONGS) + 1, "and the counters of usage"


async def test_only_the_operator_may_look(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as (kelpie, _):
        with pytest.raises(Forbidden):
            await kelpie.api(OTHERS).stored_data.look()
