"""Memory blocks as the model is shown them: XML-like text, one element per block. Pure.

The value stands there exactly as it is stored, not escaped: the model must be able to quote it back in an edit.
"""

from collections.abc import Sequence

from kelpie.core.blocks import Block

_INTRODUCTION = "These memory blocks are in your prompt at all times:"


def render_blocks(blocks: Sequence[Block]) -> str:
    """The blocks in the order given, or nothing when there are none."""
    if not blocks:
        return ""
    shown = "\n\n".join(_render(block) for block in blocks)
    return f"<memory_blocks>\n{_INTRODUCTION}\n\n{shown}\n\n</memory_blocks>"


def _render(block: Block) -> str:
    facts = [f"- chars_current={len(block.value)}", f"- chars_limit={block.limit}"]
    if block.read_only:
        facts.insert(0, "- read_only=true")
    return "\n".join(
        [
            f"<{block.label}>",
            _element("description", block.description or ""),
            _element("metadata", "\n".join(facts)),
            _element("value", block.value),
            f"</{block.label}>",
        ]
    )


def _element(name: str, text: str) -> str:
    return f"<{name}>\n{text}\n</{name}>"
