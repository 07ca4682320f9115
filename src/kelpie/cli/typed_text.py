"""Texts that commands take from an argument, from standard input, or from the user's editor."""

import json
import sys
from collections.abc import Callable
from typing import Any

from kelpie.cli.output import say
from kelpie.core.errors import InvalidInput, KelpieError
from kelpie.world.files import text_file
from kelpie.world.processes.editor import edit, usual_command

STDIN = "-"


def given_text(text: str, field: str) -> str:
    """The text itself; `-` means all of standard input. Raises InvalidInput."""
    if text != STDIN:
        return text
    read = sys.stdin.read(text_file.BYTES_MAX + 1)
    if len(read) > text_file.BYTES_MAX:
        raise InvalidInput(field, f"standard input is longer than {text_file.BYTES_MAX} characters")
    return read.removesuffix("\n")


def json_object(text: str, field: str) -> dict[str, Any]:
    """The JSON object that a person wrote. Raises InvalidInput."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidInput(field, f"this is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidInput(field, 'expected a JSON object such as {"sides": 6}')
    return found


def edited(text: str, suffix: str, store: Callable[[str], None]) -> bool:
    """Lets the user edit a text and stores the result; False if the user left it as it was.

    When it cannot be stored, the edited text stays in a file, whose name is printed. Raises KelpieError.
    """
    new = edit(text, usual_command(), suffix)
    if new == text:
        return False
    try:
        store(new)
    except KelpieError:
        say(f"kelpie: Your text was not stored; it is in {text_file.new_draft(new, suffix)}", file=sys.stderr)
        raise
    return True
