"""Edits of a memory block's text, as the memory tools ask for them: pure functions from text to text.

What cannot be done as asked raises ToolError, a sentence the model can act on; nothing is ever cut to fit.
"""

import re
from collections.abc import Sequence

from kelpie.core.errors import ToolError
from kelpie.core.token_estimates import byte_length

END = -1  # the line number that means: after everything

_LINE_NUMBER = re.compile(r"^[ \t]*\d+→", re.MULTILINE)
_SHOWN_CHARS = 60


def cleaned(text: str) -> str:
    """Text as it may be stored: databases refuse the NUL character."""
    return text.replace("\x00", "")


def plain(text: str, argument: str) -> str:
    """Text for the line-wise edits: tabs as spaces. Raises ToolError when it holds line numbers from a display."""
    if _LINE_NUMBER.search(text):
        raise ToolError(
            f"'{argument}' contains line numbers such as '1→'. They are only displayed and are not part of the block. "
            "Call the tool again without them."
        )
    return cleaned(text).expandtabs()


def append(value: str, content: str) -> str:
    """The value with the content on a new line after it."""
    return f"{value}\n{content}" if value else content


def replace_all(value: str, old: str, new: str) -> str:
    """The value with every occurrence of `old` replaced. Raises ToolError when there is none."""
    _require_present(value, old)
    return value.replace(old, new)


def replace_once(value: str, old: str, new: str) -> str:
    """The value with the only occurrence of `old` replaced. Raises ToolError when there is none or more than one."""
    _require_present(value, old)
    first = value.find(old)
    if value.find(old, first + 1) != -1:
        lines = ", ".join(str(number) for number in _lines_with(value, old))
        raise ToolError(
            f"'{_shown(old)}' occurs more than once (on lines {lines}), so it is not clear which to replace. "
            "Call again with more of the surrounding text."
        )
    return value[:first] + new + value[first + len(old) :]


def insert(value: str, text: str, line: int = END) -> str:
    """The value with the text put in after this many lines: 0 is the top, END the bottom. Raises ToolError beyond."""
    lines = value.split("\n") if value else []
    if line != END and not 0 <= line <= len(lines):
        raise ToolError(
            f"There is no line {line}: the block has {len(lines)} lines. "
            f"Use 0 for the top, 1 to {len(lines)} to insert after that line, or {END} for the end."
        )
    at = len(lines) if line == END else line
    return "\n".join([*lines[:at], text, *lines[at:]])


def check_limit(label: str, before: str, after: str, limit: int) -> None:
    """Raises ToolError when the edit makes the block larger than it may be.

    A block that is too large already (its limit was lowered) may still be made smaller.
    """
    if len(after) > limit and len(after) > len(before):
        raise ToolError(
            f"Nothing was changed: the block '{label}' would have {len(after)} characters, and its limit is {limit}. "
            "Shorten the text, or remove something from the block first."
        )


def check_budget(label: str, grows_by: int, shown: Sequence[str], budget: int) -> None:
    """Raises ToolError when an edit makes all blocks of a prompt, which are shown as these, larger than they may be."""
    total = sum(byte_length(value) for value in shown)
    if total + grows_by > budget:
        raise ToolError(
            f"Nothing was changed: your memory blocks have {total} bytes together, the limit is {budget}, and this "
            f"edit of '{label}' would add {grows_by}. Shorten blocks, remove outdated text, or store the new text in "
            "archival memory."
        )


def label_of(path: str) -> str:
    """The label a path such as `/memories/notes` names. Raises ToolError when it names none."""
    label = path.strip().removeprefix("/").removeprefix("memories/").strip("/")
    if not label or label == "memories":
        raise ToolError(f"'{_shown(path)}' is not the path of a memory block. Use a path such as /memories/notes.")
    return label


def _require_present(value: str, old: str) -> None:
    if not old:
        raise ToolError("The text to replace is empty. Give the text that should be replaced.")
    if old not in value:
        raise ToolError(
            f"'{_shown(old)}' does not occur in the block, so nothing was replaced. "
            "It must match exactly, with spaces and line breaks."
        )


def _lines_with(value: str, old: str) -> list[int]:
    """The numbers of the lines on which `old` begins, at most ten."""
    found: list[int] = []
    at = value.find(old)
    while at != -1 and len(found) < 10:
        found.append(value.count("\n", 0, at) + 1)
        at = value.find(old, at + 1)
    return list(dict.fromkeys(found))


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
