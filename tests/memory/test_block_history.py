"""The door to the history of blocks: differences and the way back, heard by who sees the block, refused when it is not
the version that was expected."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kelpie.core.access.callers import Caller
from kelpie.core.errors import Conflict, NotFound
from kelpie.core.ids import AgentId, OrganizationId, UserId
from kelpie.core.memory.block_history import AuthorKind
from kelpie.core.memory.blocks import BlockRules, NewBlock
from kelpie.memory.block_history import BlockHistory
from kelpie.memory.blocks import Blocks
from kelpie.world.world import World
from tests.tools.workshop import ANN, BEN, open_world

STRANGER = Caller(
    UserId("user-11111111-0000-4000-8000-000000000001"), OrganizationId("org-11111111-0000-4000-8000-000000000001")
)


class Heard(list[AgentId]):
    def __call__(self, affected: Any) -> None:
        self.extend(affected)


async def test_a_rollback_is_a_version_of_its_own_and_heard_by_all_who_see_the_block(world: World) -> None:
    heard = Heard()
    blocks, history = Blocks(world, heard), BlockHistory(world, heard)
    block = await blocks.create(NewBlock("notes", "one", limit=2, read_only=True))
    for agent_id in (ANN, BEN):
        await blocks.attach(agent_id, block.id)
    await blocks.update(block.id, {"value": "two", "label": "diary", "description": "mine"})
    await blocks.update(block.id, {"value": "three"})
    heard.clear()
    back = await history.rollback(block.id, 1)
    assert (back.value, back.label, back.description, back.version) == ("one", "diary", "mine", 4)
    assert back == await blocks.get(block.id) and sorted(heard) == [ANN, BEN]
    newest, *older = await history.page(block.id, None, 50)
    assert (newest.version, newest.restores, newest.chars) == (4, 1, 3)
    assert [each.restores for each in older] == [None] * 3
    again = await history.rollback(block.id, 3)
    assert (again.value, again.version) == ("three", 5), "what was undone can be done again"
    assert [(await history.get(block.id, n)).value for n in range(1, 6)] == ["one", "two", "three", "one", "three"]


async def test_to_what_it_says_already_nothing_is_to_be_done(world: World) -> None:
    blocks, history = Blocks(world, Heard()), BlockHistory(world, Heard())
    block = await blocks.create(NewBlock("notes", "one"))
    assert (await history.rollback(block.id, 1, expected=1)).version == 1
    assert [each.version for each in await history.page(block.id, None, 50)] == [1]


async def test_a_rollback_that_expects_another_version_changes_nothing(world: World) -> None:
    heard = Heard()
    blocks, history = Blocks(world, heard), BlockHistory(world, heard)
    block = await blocks.create(NewBlock("notes", "one"))
    await blocks.update(block.id, {"value": "two"})
    before = await history.page(block.id, None, 50)
    for expected in (1, 3):
        with pytest.raises(Conflict, match=f"has version 2, but you expected {expected}"):
            await history.rollback(block.id, 1, expected)
    assert await history.page(block.id, None, 50) == before and heard == []
    assert (await history.rollback(block.id, 1, expected=2)).value == "one"


async def test_a_difference(world: World) -> None:
    blocks, history = Blocks(world, Heard()), BlockHistory(world, Heard())
    block = await blocks.create(NewBlock("notes", "a\nb"))
    assert (await history.diff(block.id, None, None)).hunks == [], "a first version has nothing before it"
    await blocks.update(block.id, {"value": "a\nc"})
    await blocks.update(block.id, {"value": "a\nc\nd"})
    last = await history.diff(block.id, None, None)
    assert (last.before.version, last.after.version) == (2, 3)
    assert [(line.kind, line.text) for line in last.hunks[0].lines] == [("same", "a"), ("same", "c"), ("added", "d")]
    step = await history.diff(block.id, None, 2)
    assert (step.before.version, step.after.version) == (1, 2), "a version is compared with the one before it"
    since = await history.diff(block.id, 1, None)
    assert (since.before.version, since.after.version) == (1, 3)
    back = await history.diff(block.id, 3, 1)
    kinds = [line.kind for line in back.hunks[0].lines]
    assert sorted(kinds) == ["added", "removed", "removed", "same"]


async def test_what_is_not_there_is_not_found(world: World) -> None:
    rules = BlockRules(versions_kept=2)
    blocks, history = Blocks(world, Heard(), rules), BlockHistory(world, Heard(), rules)
    block = await blocks.create(NewBlock("notes", "1"))
    for number in range(2, 5):
        await blocks.update(block.id, {"value": str(number)})
    assert [each.version for each in await history.page(block.id, None, 50)] == [4, 3]
    for version in (2, 5):
        for asked in (
            history.get(block.id, version),
            history.diff(block.id, version, 4),
            history.diff(block.id, 3, version),
            history.rollback(block.id, version),
        ):
            with pytest.raises(NotFound):
                await asked
    theirs = BlockHistory(world, Heard(), rules, STRANGER)
    for asked in (
        theirs.page(block.id, None, 50),
        theirs.get(block.id, 4),
        theirs.diff(block.id, None, None),
        theirs.rollback(block.id, 3),
    ):
        with pytest.raises(NotFound):
            await asked
    assert (await blocks.get(block.id)).value == "4"


async def test_who_it_was(world: World) -> None:
    key = Caller(key_id="key-1")
    for caller, kind in ((Caller(), AuthorKind.user), (key, AuthorKind.key)):
        blocks, history = Blocks(world, Heard(), caller=caller), BlockHistory(world, Heard(), caller=caller)
        block = await blocks.create(NewBlock("notes", "1"))
        await blocks.update(block.id, {"value": "2"})
        await history.rollback(block.id, 1)
        by = [each.by for each in await history.page(block.id, None, 50)]
        assert {(each.kind, each.id, each.key_id) for each in by} == {(kind, caller.user_id, caller.key_id)}
        assert len(by) == 3


EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(["", "a", "b\nc", "ü" * 5])),
        st.tuples(st.just("describe"), st.sampled_from(["x", "y"])),
        st.tuples(st.just("back"), st.integers(1, 12)),
    ),
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(EDITS)
async def test_whatever_is_done_the_history_tells_it(tmp_path_factory: pytest.TempPathFactory, edits: Any) -> None:
    directory: Path = tmp_path_factory.mktemp("any")
    async with open_world(directory) as world:
        blocks, history = Blocks(world, Heard()), BlockHistory(world, Heard())
        block = await blocks.create(NewBlock("notes", "begun", description="d"))
        values, fields = ["begun"], {"description": "d"}
        for what, how in edits:
            if what == "back" and how > len(values):
                with pytest.raises(NotFound):
                    await history.rollback(block.id, how)
                continue
            before = await blocks.get(block.id)
            if what == "back":
                after = await history.rollback(block.id, how, before.version)
                assert after.value == values[how - 1]
            else:
                after = await blocks.update(block.id, {"value" if what == "write" else "description": how})
            if after.version > before.version:
                values.append(after.value)
        kept = await history.page(block.id, None, 50)
        assert [each.version for each in kept] == list(range(len(values), 0, -1))
        assert [(await history.get(block.id, n + 1)).value for n in range(len(values))] == values
        for each in reversed(kept):
            fields |= each.fields
        now = await blocks.get(block.id)
        assert (now.value, now.description, now.version) == (values[-1], fields["description"], len(values))
