"""How the model is shown its memory."""

import pytest

from kelpie.core.errors import ToolError
from kelpie.core.ids import BlockId
from kelpie.core.memory.blocks import Block
from kelpie.memory import text_edits
from kelpie.memory.block_prompt import render_blocks

ID = BlockId("block-00000000-0000-4000-8000-000000000001")


def test_no_blocks_give_no_text() -> None:
    assert render_blocks([]) == ""


def test_a_block_is_shown_with_its_facts_and_its_exact_value() -> None:
    value = "likes <b>tea</b>\n& milk"
    block = Block(ID, "human", value, 0, 0, limit=3000, description="about Bob", read_only=True)
    shown = render_blocks([block])
    assert shown.startswith("<memory_blocks>\n") and shown.endswith("\n</memory_blocks>")
    assert (
        "<human>\n<description>\nabout Bob\n</description>\n<metadata>\n- read_only=true\n"
        f"- chars_current={len(value)}\n- chars_limit=3000\n</metadata>\n<value>\n{value}\n</value>\n</human>"
    ) in shown


def test_blocks_keep_their_order_and_only_read_only_ones_say_so() -> None:
    shown = render_blocks([Block(ID, "persona", "p", 0, 0), Block(ID, "human", "h", 0, 0)])
    assert shown.index("<persona>") < shown.index("<human>")
    assert "read_only" not in shown
    assert "<description>\n\n</description>" in shown


def test_numbered_lines_count_as_the_edits_do_and_are_said_to_be_no_part_of_the_value() -> None:
    shown = render_blocks([Block(ID, "human", "a\n\nb", 0, 0), Block(ID, "notes", "", 0, 0)], numbered=True)
    assert "<value>\n1→ a\n2→ \n3→ b\n</value>" in shown and "chars_current=4" in shown
    assert "<value>\n\n</value>" in shown
    assert "not part of the value" in shown
    with pytest.raises(ToolError, match="line numbers"):
        text_edits.plain("1→ a", "old_string")
