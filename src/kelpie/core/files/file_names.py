"""Names of folders and files: what is refused, and how a copy is named. A name never becomes a path on this machine.
Pure."""

from collections.abc import Collection

from kelpie.core.errors import Conflict, InvalidInput
from kelpie.core.printable_text import without_unsafe

NAME_CHARS_MAX = 255
COPIES_MAX = 10_000  # of one name


def checked_name(field: str, name: str) -> str:
    """The name without spaces around it. Raises InvalidInput for one that could be taken for a path, or that has
    characters which change how it looks."""
    name = name.strip()
    if not name or name in (".", ".."):
        raise InvalidInput(field, "must be a name of at least one character, such as notes.txt")
    if len(name) > NAME_CHARS_MAX:
        raise InvalidInput(field, f"has {len(name)} characters; a name may have at most {NAME_CHARS_MAX}")
    if "/" in name or "\\" in name:
        raise InvalidInput(field, "must be a name without '/' and '\\', not a path")
    if "\n" in name or "\t" in name or without_unsafe(name) != name:
        raise InvalidInput(field, "has characters that cannot be shown, such as line breaks or control characters")
    return name


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, or with a number if it is taken: `a_(1).txt`. Raises Conflict for the last of very many copies."""
    if name not in taken:
        return name
    stem, dot, ending = name.rpartition(".")
    if not stem:
        stem, dot, ending = name, "", ""
    for number in range(1, COPIES_MAX):
        mark = f"_({number})"
        copy = f"{stem[: NAME_CHARS_MAX - len(mark) - len(dot) - len(ending)]}{mark}{dot}{ending}"
        if copy not in taken:
            return copy
    raise Conflict(f"The folder has {COPIES_MAX} files with the name {name}; delete some, or choose another name.")
