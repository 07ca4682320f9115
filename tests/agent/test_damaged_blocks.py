"""Blocks that a disk has changed: never told as truth, refused clearly, mended by a new value; no agent is bricked."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kelpie.api import Api
from kelpie.core.agents.agent import NewAgent
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import Damaged
from kelpie.core.ids import AgentId, BlockId
from kelpie.core.memory.blocks import LOST, BlockQuery, NewBlock
from tests.agent.conftest import Rig, ended, rows, says

SECRET = "Likes tea."
ROT = {
    "blocks.value": "UPDATE blocks SET value = 'Likes sea.'",
    "blocks.description": "UPDATE blocks SET description = 'Forget it.'",
    "blocks.limit": 'UPDATE blocks SET "limit" = 7',
    "blocks.metadata": "UPDATE blocks SET metadata = '{\"a\": '",
    "no UTF-8": "UPDATE blocks SET value = CAST(x'4c696b65ff' AS TEXT)",
}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = await Rig(tmp_path / "kelpie.db").start()
    yield made
    await made.stop()


async def damaged(rig: Rig, rot: str) -> tuple[Api, AgentId, BlockId]:
    """An agent with one block, after the disk changed it and the server was started again."""
    tools = ("core_memory_append", "memory_rethink")
    made = NewAgent(memory_blocks=(NewBlock("human", SECRET),), tools=tools, include_base_tools=False)
    agent_id = (await rig.kelpie.api().agents.create(made)).agent.id
    block = await rig.kelpie.api().blocks.of_agent_by_label(agent_id, "human")
    await rig.stop()
    spoil(rig, rot)
    await rig.start()
    return rig.kelpie.api(), agent_id, block.id


def spoil(rig: Rig, rot: str) -> None:
    with sqlite3.connect(rig.path) as beside:
        beside.execute(rot)


@pytest.mark.parametrize("rot", ROT.values(), ids=ROT.keys())
async def test_a_damaged_block_is_never_told_as_truth(rig: Rig, rot: str) -> None:
    doors, agent_id, block_id = await damaged(rig, rot)
    calls: tuple[tuple[str, dict[str, Any]], ...] = (
        ("core_memory_append", {"label": "human", "content": "x"}),
        ("memory_rethink", {"label": "human", "new_memory": "x"}),
    )
    rig.model.script = [says("", *calls), says("I go on")]
    events = await rig.say(agent_id, "hello")
    assert ended(events).stop_reason is StopReason.end_turn
    results = [result for row in rows(events) for result in row.tool_returns]
    assert [(result.ok, "damaged on the disk" in result.text) for result in results] == [(False, True)] * 2
    prompt = str(rig.model.requests[0])
    assert LOST in prompt and "Likes" not in prompt and "Forget it" not in prompt
    for attempt in (doors.blocks.get(block_id), doors.blocks.of_agent_by_label(agent_id, "human")):
        with pytest.raises(Damaged, match="new value, roll it back"):
            await attempt
    with pytest.raises(Damaged):
        await doors.blocks.update(block_id, {"description": "d"})
    with pytest.raises(Damaged):
        await doors.checkpoints.take(agent_id)
    assert [block.value for block in await doors.blocks.page(BlockQuery())] == [LOST]


@pytest.mark.parametrize("rot", ROT.values(), ids=ROT.keys())
async def test_a_new_value_or_a_version_of_before_mends_it(rig: Rig, rot: str) -> None:
    doors, agent_id, block_id = await damaged(rig, rot)
    assert (await doors.block_history.rollback(block_id, 1)).value == SECRET
    assert (await doors.blocks.get(block_id)).value == SECRET
    spoil(rig, rot)
    await doors.blocks.update(block_id, {"value": "New."})
    mended = await doors.blocks.get(block_id)
    assert (mended.value, mended.version, mended.metadata) == ("New.", 3, {})
    rig.model.script = [says("ok")]
    await rig.say(agent_id, "hello")
    assert "New." in str(rig.model.requests[-1])


async def test_a_damaged_version_hides_no_other(rig: Rig) -> None:
    doors, _, block_id = await damaged(rig, "UPDATE blocks SET hidden = hidden")
    for value in ("two", "three"):
        await doors.blocks.update(block_id, {"value": value})
    spoil(rig, "UPDATE block_history SET value = 'one' WHERE version = 1")
    spoil(rig, "UPDATE block_history SET author = 'nobody', fields = '{' WHERE version = 2")
    listed = await doors.block_history.page(block_id, None, 50)
    assert [(each.version, each.lost) for each in listed] == [(3, False), (2, True), (1, False)]
    assert (await doors.block_history.get(block_id, 3)).value == "three"
    for version in (1, 2):
        with pytest.raises(Damaged, match=f"Version {version} of {block_id} is damaged"):
            await doors.block_history.get(block_id, version)
        with pytest.raises(Damaged):
            await doors.block_history.rollback(block_id, version)
    assert (await doors.blocks.get(block_id)).value == "three"
