"""Tools found by meaning: embedded in the background once somebody asks, and anew when they change."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kelpie.core.access.callers import Caller
from kelpie.core.ids import OrganizationId, UserId
from kelpie.core.tools.tools import NewTool, ToolHit, ToolSearch, ToolType
from kelpie.memory.hybrid_search import SearchResults
from kelpie.storage.integrity import search_index_checks
from kelpie.world.database import Tx
from tests.agent.embedding_rig import EmbeddingRig

OTHERS = Caller(
    UserId("user-00000000-0000-4000-8000-000000000001"), OrganizationId("org-00000000-0000-4000-8000-0000000000aa")
)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[EmbeddingRig]:
    made = EmbeddingRig(tmp_path / "kelpie.db")
    await made.start()
    yield made
    await made.stop()


def tool(name: str, said: str, *tags: str) -> NewTool:
    return NewTool("pass", {"name": name, "description": said, "parameters": {}}, tags=tags)


def names(searched: SearchResults[ToolHit]) -> list[str]:
    return [hit.tool.name for hit in searched.found]


def whole(tx: Tx) -> None:
    assert search_index_checks.wrongs(lambda sql: [tuple(row) for row in tx.exec_driver_sql(sql)]) == {}


async def test_a_tool_is_found_by_meaning_once_somebody_asked(rig: EmbeddingRig) -> None:
    tools = rig.kelpie.api().tools
    await tools.create(tool("pet", "kitten", "home"))
    await tools.create(tool("drive", "vehicle"))
    await rig.embed_all()
    assert rig.model.embedded == [], "no model is loaded for tools that nobody looks for"
    first = await tools.search(ToolSearch("cat", mode="vector"))
    assert (names(first), first.mode, "embedded" in (first.lacking or "")) == ([], "fts", True)
    await rig.embed_all()
    found = await tools.search(ToolSearch("cat", tool_types=(ToolType.custom,), mode="vector"))
    assert (names(found), found.mode, found.lacking) == (["pet", "drive"], "vector", None)
    assert [hit.hit.meaning_rank for hit in found.found if hit.hit] == [1, 2]
    assert found.found[0].text == "pet\nkitten\nhome"
    both = await tools.search(ToolSearch("vehicle cat", tags=("home",)))
    assert (names(both), both.mode) == (["pet"], "hybrid")
    assert names(await tools.search(ToolSearch("cat", mode="fts"))) == []
    await rig.kelpie.world.database.read(whole)


async def test_a_tool_that_changed_is_embedded_anew(rig: EmbeddingRig) -> None:
    tools, custom = rig.kelpie.api().tools, (ToolType.custom,)
    made = await tools.create(tool("one", "kitten"))
    await tools.create(tool("two", "physician"))
    await tools.search(ToolSearch("x"))
    await rig.embed_all()
    await tools.update(made.id, {"description": "vehicle"})
    found = await tools.search(ToolSearch("cat", custom, mode="vector"))
    assert names(found) == ["two"], "what it meant before is forgotten at once"
    await rig.embed_all()
    assert names(await tools.search(ToolSearch("auto", custom, mode="vector"))) == ["one", "two"]
    embedded = len(rig.model.embedded)
    await tools.update(made.id, {"return_char_limit": 7})
    await rig.embed_all()
    assert len(rig.model.embedded) == embedded, "what says the same keeps its vector"
    await tools.delete(made.id)
    assert names(await tools.search(ToolSearch("auto", custom, mode="vector"))) == ["two"]
    await rig.kelpie.world.database.read(whole)


@pytest.mark.parametrize("mode", ["fts", "vector", "hybrid"])
async def test_another_organisation_finds_its_own_only(rig: EmbeddingRig, mode: str) -> None:
    theirs = rig.kelpie.api(OTHERS).tools
    await rig.kelpie.api().tools.create(tool("ours", "kitten"))
    await theirs.create(tool("theirs", "kitten moggy"))
    await theirs.search(ToolSearch("cat"))
    await rig.embed_all()
    wanted = ToolSearch("kitten", mode=mode)  # type: ignore[arg-type]
    assert names(await theirs.search(wanted)) == ["theirs"]
    assert "ours" in names(await rig.kelpie.api().tools.search(wanted))
    assert "theirs" not in names(await rig.kelpie.api().tools.search(wanted))


async def test_a_model_that_fails_leaves_the_words(rig: EmbeddingRig) -> None:
    tools = rig.kelpie.api().tools
    await tools.create(tool("pet", "kitten"))
    await tools.search(ToolSearch("x"))
    await rig.embed_all()
    rig.model.broken = True
    found = await tools.search(ToolSearch("kitten"))
    assert (names(found), found.mode) == (["pet"], "fts") and "broken" in (found.lacking or "")
