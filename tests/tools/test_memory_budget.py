"""What all blocks of an agent together may hold: an edit of its own beyond that is refused with the sizes and a remedy,
people are not bound, and what is too large already can be made smaller."""

from dataclasses import replace
from typing import Any

import pytest

from kelpie.core.errors import ToolError
from kelpie.core.memory.blocks import BlockRules
from tests.tools.workshop import ANN, BEN, Workshop

BUDGET = 8_000  # a quarter of the window of the workshop's agents, at four bytes a token
ADDITIONS: dict[str, Any] = {
    "core_memory_append": lambda text: {"label": "human", "content": text},
    "core_memory_replace": lambda text: {"label": "human", "old_content": "tea", "new_content": text},
    "memory_replace": lambda text: {"label": "human", "old_string": "tea", "new_string": text},
    "memory_insert": lambda text: {"label": "human", "new_string": text},
    "memory_rethink": lambda text: {"label": "human", "new_memory": text},
    "rethink_memory": lambda text: {"target_block_label": "human", "new_memory": text},
    "rethink_user_memory": lambda text: {"new_memory": text},
    "memory": lambda text: {"command": "insert", "path": "/memories/human", "insert_text": text},
    "memory_apply_patch": lambda text: {"label": "human", "patch": f"*** Update Block: human\n@@\n-tea\n+{text}\n"},
}
MAKERS: dict[str, Any] = {
    "core_memory_append": lambda text: {"label": "new", "content": text},
    "memory_rethink": lambda text: {"label": "new", "new_memory": text},
    "memory": lambda text: {"command": "create", "path": "/memories/new", "description": "d", "file_text": text},
    "memory_apply_patch": lambda text: {"label": "new", "patch": f"*** Add Block: new\n+{text}\n"},
}


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (1, 1), (8_000, 8_000), (32_000, 32_000), (32_768, 32_768), (64_000, 32_768), (128_000, 32_768),
        (200_000, 51_200), (256_000, 65_536), (1_000_000, 256_000),
    ],
)  # fmt: skip
def test_it_grows_with_the_window_and_is_never_more_than_a_quarter_of_it(window: int, expected: int) -> None:
    assert BlockRules().budget(window) == expected


def test_the_setting_is_what_it_begins_with() -> None:
    rules = replace(BlockRules(), context_bytes=1000)
    assert [rules.budget(window) for window in (8_000, 128_000, 256_000)] == [1000, 1000, 2000]


@pytest.mark.parametrize(("tool", "arguments"), [*ADDITIONS.items(), *MAKERS.items()])
def test_an_edit_beyond_it_is_refused_and_writes_nothing(shop: Workshop, tool: str, arguments: Any) -> None:
    shop.give("human", "tea")
    shop.give("big", "x" * (BUDGET - 1000))
    before = shop.everything()
    with pytest.raises(ToolError) as refused:
        shop.run(tool, **arguments("y" * 1010))
    told = str(refused.value)
    assert "Nothing was changed" in told and f"have {BUDGET - 997} bytes together, the limit is {BUDGET}" in told
    assert "Shorten blocks" in told and "archival memory" in told
    assert shop.everything() == before
    assert shop.run(tool, **arguments("y" * 900)).ok


def test_it_is_full_to_the_last_byte_and_bytes_are_what_counts(shop: Workshop) -> None:
    shop.give("human", "ü" * 3999)
    assert shop.run("core_memory_append", label="human", content="x").ok  # with its line break: 8000
    with pytest.raises(ToolError, match=r"have 8000 bytes together, .* this edit of 'human' would add 2"):
        shop.run("core_memory_append", label="human", content="y")


def test_people_may_go_beyond_it_and_agents_find_their_way_back(shop: Workshop) -> None:
    shop.give("human", "a" * BUDGET + "\ntea")
    with pytest.raises(ToolError):
        shop.run("core_memory_append", label="human", content="x")
    assert shop.run("core_memory_replace", label="human", old_content="tea", new_content="oat").ok, "of the same size"
    assert shop.run("core_memory_replace", label="human", old_content="a" * 100, new_content="").ok
    assert shop.run("memory_rethink", label="human", new_memory="b" * BUDGET).ok


def test_only_what_the_agent_carries_itself_counts(shop: Workshop) -> None:
    shop.give("other", "x" * BUDGET, BEN)
    shop.give("human", "tea", ANN, BEN)
    assert shop.run("core_memory_append", label="human", content="x").ok
    with pytest.raises(ToolError):
        shop.run("core_memory_append", by=BEN, label="human", content="y")
