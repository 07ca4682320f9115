"""Memory blocks as the model is shown them: XML-like text, one element per block. Pure.

The value stands there exactly as it is stored, not escaped: the model must be able to quote it back in an edit. Line
numbers, where they are shown, end in an arrow, which is how the edits know them again.
"""

from collections.abc import Sequence

from kelpie.core.memory.blocks import Block

_INTRODUCTION = "These memory blocks are always in your context:"
_ABOUT_NUMBERS = (
    "The line numbers in a value, such as 1→, only help you to refer to a line. They are not part of the "
    "value; do not include them in your edits."
)


def render_blocks(blocks: Sequence[Block], *, numbered: bool = False) -> str:
    """The blocks in the order given, or nothing when there are none; `numbered` counts the lines of their values."""
    if not blocks:
        return ""
    shown = "\n\n".join(_render(block, numbered) for block in blocks)
    introduction = f"{_INTRODUCTION}\n{_ABOUT_NUMBERS}" if numbered else _INTRODUCTION
    return f"<memory_blocks>\n{introduction}\n\n{shown}\n\n</memory_blocks>"


def _render(block: Block, numbered: bool) -> str:
    facts = [f"- chars_current={len(block.value)}", f"- chars_limit={block.limit}"]
    if block.read_only:
        facts.insert(0, "- read_only=true")
    return "\n".join(
        [
            f"<{block.label}>",
            _element("description", block.description or ""),
            _element("metadata", "\n".join(facts)),
            _element("value", _numbered(block.value) if numbered else block.value),
            f"</{block.label}>",
        ]
    )


def _numbered(value: str) -> str:
    lines = value.split("\n") if value else []  # as the edits count them
    return "\n".join(f"{number}→ {line}" for number, line in enumerate(lines, start=1))


def _element(name: str, text: str) -> str:
    return f"<{name}>\n{text}\n</{name}>"
