"""However a block comes to be, it holds what the setting says when nobody named a limit."""

import pytest

from kelpie.core.agents.agent import NewAgent
from kelpie.core.memory.blocks import NewBlock
from tests.agent.conftest import Rig, rows, says

LIMIT = 20
FITS, TOO_LONG = "x" * LIMIT, "x" * (LIMIT + 1)
PATCH = "*** Add Block: human\n+{}\n"

# Every call with which an agent can make a block of its own.
MAKERS = {
    "core_memory_append": lambda text: {"label": "human", "content": text},
    "memory": lambda text: {"command": "create", "path": "/memories/human", "description": "d", "file_text": text},
    "memory_apply_patch": lambda text: {"label": "human", "patch": PATCH.format(text)},
    "memory_rethink": lambda text: {"label": "human", "new_memory": text},
    "rethink_memory": lambda text: {"target_block_label": "human", "new_memory": text},
    "rethink_user_memory": lambda text: {"new_memory": text},
}


@pytest.fixture
async def small(tmp_path):
    made = await Rig(tmp_path / "kelpie.db", block_limit=LIMIT).start()
    yield made
    await made.stop()


@pytest.mark.parametrize("tool", sorted(MAKERS))
async def test_a_block_that_an_agent_makes_has_the_limit_of_the_setting(small, tool):
    view = await small.kelpie.api().agents.create(NewAgent(tools=(tool,)))
    for text, held in ((TOO_LONG, []), (FITS, [(FITS, LIMIT)])):
        small.model.script = [says("", (tool, MAKERS[tool](text))), says("done")]
        answered = rows(await small.say(view.agent.id, "go"))[1].tool_returns[0]
        assert answered.ok is bool(held), answered.text
        found = await small.kelpie.api().blocks.of_agent(view.agent.id)
        assert [(block.value, block.limit) for block in found] == held, answered.text


async def test_so_has_a_block_that_people_make(small):
    view = await small.kelpie.api().agents.create(NewAgent(memory_blocks=(NewBlock("a", ""), NewBlock("b", "", 7))))
    assert {block.label: block.limit for block in view.blocks} == {"a": LIMIT, "b": 7}
    assert (await small.kelpie.api().blocks.create(NewBlock("c", ""))).limit == LIMIT
