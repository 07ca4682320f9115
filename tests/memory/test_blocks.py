"""The door to blocks: what people do from outside, that agents hear of it, and that agents at work lose nothing."""

import asyncio
from typing import Any

import pytest

from kelpie.core.access.callers import Caller
from kelpie.core.access.passports import Passport
from kelpie.core.errors import Conflict, Forbidden, InvalidInput, NotFound
from kelpie.core.ids import DEFAULT_ORGANIZATION, DEFAULT_USER, AgentId, BlockId
from kelpie.core.memory.block_history import AuthorKind
from kelpie.core.memory.blocks import BlockQuery, NewBlock
from kelpie.core.paging import Page
from kelpie.memory.block_history import BlockHistory
from kelpie.memory.blocks import Blocks
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.tools.builtin import BUILTINS
from kelpie.tools.calls.interface import CallContext
from kelpie.world.database import Tx
from kelpie.world.world import World
from tests.tools.workshop import ANN, BEN, NOBODY, make_agent

UNKNOWN = BlockId("block-00000000-0000-4000-8000-000000000099")


class Heard(list[AgentId]):
    def __call__(self, affected: Any) -> None:
        self.extend(affected)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def blocks(world: World, heard: Heard) -> Blocks:
    return Blocks(world, heard)


async def test_create_and_read_back(blocks: Blocks) -> None:
    new = NewBlock("notes", "a\x00b", 5, "desc", True, {"m": 1}, ("t2", "t1", "t2"), False, is_template=True)
    block = await blocks.create(new)
    assert block == await blocks.get(block.id)
    assert (block.value, block.limit, block.tags, block.hidden) == ("ab", 5, ("t1", "t2"), False)
    assert (block.description, block.read_only, block.metadata, block.is_template) == ("desc", True, {"m": 1}, True)
    assert [b.id for b in await blocks.page(BlockQuery(label="notes"))] == [block.id]
    assert await blocks.count() == 1


async def test_well_known_labels_are_described_and_labels_may_repeat(blocks: Blocks) -> None:
    one, two = await blocks.create(NewBlock("human")), await blocks.create(NewBlock("human", description="mine"))
    assert one.description and two.description == "mine"
    assert (await blocks.create(NewBlock("other"))).description is None


async def test_update_is_heard_by_every_carrier_also_when_it_is_sent_again(blocks: Blocks, heard: Heard) -> None:
    block = await blocks.create(NewBlock("notes", "old", limit=3, read_only=True))
    await blocks.attach(ANN, block.id)
    await blocks.attach(BEN, block.id)
    heard.clear()
    after = await blocks.update(block.id, {"value": "longer than the limit\x00"})
    assert after == await blocks.get(block.id)
    assert after.value == "longer than the limit", "limit and read_only bind agents, not people"
    assert heard == [ANN, BEN] and after.version == block.version + 1
    heard.clear()
    assert await blocks.update(block.id, {"value": "longer than the limit"}) == after
    assert heard == [ANN, BEN], "the answer to the first may have been lost before anybody was told"


async def test_blocks_of_an_agent(blocks: Blocks, heard: Heard) -> None:
    human, notes = await blocks.create(NewBlock("human", "h")), await blocks.create(NewBlock("notes", "n"))
    await blocks.attach(ANN, notes.id)
    await blocks.attach(ANN, human.id)
    assert heard == [ANN, ANN]
    await blocks.attach(ANN, human.id)
    assert heard == [ANN, ANN, ANN], "the answer to the first may have been lost before anybody was told"
    assert [b.label for b in await blocks.of_agent(ANN)] == ["human", "notes"], "oldest block first"
    assert await blocks.of_agent_by_label(ANN, "notes") == notes
    assert (await blocks.update_by_label(ANN, "notes", {"value": "new"})).value == "new"
    assert await blocks.agents_of(notes.id, Page()) == [ANN]
    await blocks.detach(ANN, notes.id)
    assert [b.label for b in await blocks.of_agent(ANN)] == ["human"]
    assert (await blocks.get(notes.id)).value == "new"


async def test_relabel_follows_and_respects_what_is_taken(blocks: Blocks) -> None:
    one, two = await blocks.create(NewBlock("one")), await blocks.create(NewBlock("two"))
    for block in (one, two):
        await blocks.attach(ANN, block.id)
    await blocks.update_by_label(ANN, "one", {"label": "three"})
    assert (await blocks.of_agent_by_label(ANN, "three")).id == one.id
    with pytest.raises(Conflict, match="'two'"):
        await blocks.update(one.id, {"label": "two"})
    twin = await blocks.create(NewBlock("two"))
    with pytest.raises(Conflict, match="'two'"):
        await blocks.attach(ANN, twin.id)


async def test_delete(blocks: Blocks, heard: Heard) -> None:
    block = await blocks.create(NewBlock("notes"))
    await blocks.attach(BEN, block.id)
    heard.clear()
    await blocks.delete(block.id)
    assert heard == [BEN] and await blocks.of_agent(BEN) == []
    for call in (blocks.get, blocks.delete):
        with pytest.raises(NotFound):
            await call(block.id)


async def test_what_is_unknown_or_wrong_is_told(blocks: Blocks) -> None:
    block = await blocks.create(NewBlock("notes"))
    for call in (
        blocks.update(UNKNOWN, {"value": "x"}),
        blocks.attach(ANN, UNKNOWN),
        blocks.attach(NOBODY, block.id),
        blocks.detach(ANN, block.id),
        blocks.of_agent(NOBODY),
        blocks.of_agent_by_label(ANN, "none"),
        blocks.update_by_label(ANN, "none", {"value": "x"}),
    ):
        with pytest.raises(NotFound):
            await call
    assert await blocks.agents_of(UNKNOWN, Page()) == []
    for new in (NewBlock(""), NewBlock("x" * 501), NewBlock("x", limit=-1), NewBlock("x", tags=("",))):
        with pytest.raises(InvalidInput):
            await blocks.create(new)
    with pytest.raises(InvalidInput, match="nonsense"):
        await blocks.update(block.id, {"nonsense": 1})


async def test_many_agents_append_or_create_at_once_and_nothing_is_lost(blocks: Blocks, world: World) -> None:
    shared = await blocks.create(NewBlock("shared"))
    for agent_id in (ANN, BEN):
        await blocks.attach(agent_id, shared.id)
    append = BUILTINS["core_memory_append"].run

    async def write(agent_id: AgentId, label: str, word: str) -> None:
        call = CallContext(make_agent(agent_id), world.clock.now(), world.ids.uuid())

        def fn(tx: Tx) -> None:
            append(tx, call, {"label": label, "content": word})

        await world.database.transact(fn)

    jobs = [
        write(agent, label, f"{agent[-1]}-{n}")
        for n in range(20)
        for agent in (ANN, BEN)
        for label in ("shared", "own")
    ]
    jobs += [write(ANN, "fresh", str(n)) for n in range(20)]
    await asyncio.gather(*jobs)

    everyones = (await blocks.get(shared.id)).value.split("\n")
    assert sorted(everyones) == sorted(f"{agent}-{n}" for agent in "12" for n in range(20))
    own = (await blocks.of_agent_by_label(ANN, "own")).value.split("\n")
    assert own == [f"1-{n}" for n in range(20)]
    fresh = await blocks.of_agent_by_label(ANN, "fresh")
    assert fresh.value.split("\n") == [str(n) for n in range(20)]
    assert await world.database.read(lambda tx: len(block_attachments.of_agent(tx, ANN))) == 3


async def test_the_code_of_a_tool_is_bound_as_its_agent_is(world: World, blocks: Blocks, heard: Heard) -> None:
    fixed, notes = (
        await blocks.create(NewBlock("fixed", read_only=True)),
        await blocks.create(NewBlock("notes", "a", 3)),
    )
    for block in (fixed, notes):
        await blocks.attach(ANN, block.id)
    caller = Caller(passport=Passport(ANN, DEFAULT_ORGANIZATION, DEFAULT_USER, 2**60, tool="scribe"))
    code = Blocks(world, heard, caller=caller)
    with pytest.raises(Forbidden, match="read-only"):
        await code.update_by_label(ANN, "fixed", {"value": "x"})
    with pytest.raises(Forbidden, match="read-only"):
        await code.edit_by_label(ANN, "fixed", lambda value: value + "x")
    with pytest.raises(Forbidden, match="not its limit"):
        await code.update_by_label(ANN, "notes", {"value": "b", "limit": 100})
    for change in (
        code.update_by_label(ANN, "notes", {"value": "long"}),
        code.edit_by_label(ANN, "notes", lambda _: "long"),
    ):
        with pytest.raises(InvalidInput, match="exceeds the limit of 3"):
            await change
    assert (await blocks.get(fixed.id), await blocks.get(notes.id)) == (fixed, notes), "nothing was changed"
    assert (await code.update_by_label(ANN, "notes", {"value": "bcd"})).value == "bcd"
    written = await BlockHistory(world, heard).get(notes.id, 2)
    assert (written.by.kind, written.by.id, written.by.tool) == (AuthorKind.agent, ANN, "scribe")
