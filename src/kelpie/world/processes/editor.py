"""The editor of the person at the terminal: a text is opened in it, and the changed text returned."""

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from kelpie.core.errors import InvalidInput

VARIABLES = ("VISUAL", "EDITOR")
USUAL = ("nano", "vim", "vi")
TEXT_BYTES_MAX = 8 * 1024 * 1024


def editor_command() -> list[str] | None:
    """The command of the editor, or None when no variable names one. Raises InvalidInput."""
    for name in VARIABLES:
        if text := os.environ.get(name, "").strip():
            try:
                return shlex.split(text)
            except ValueError as error:
                raise InvalidInput(name, f"'{text[:80]}' is not a command: {error}") from None
    return None


def usual_command() -> list[str]:
    """The command of the editor that a variable names, else of a usual one. Raises InvalidInput when there is none."""
    command = editor_command() or [each for each in USUAL if shutil.which(each)][:1]
    if not command:
        raise InvalidInput("EDITOR", "no editor was found; set EDITOR to the command of one")
    return command


def edit(text: str, command: list[str], suffix: str = ".txt") -> str:
    """Opens a text in the editor, waits until the editor ends, and returns the text. Raises InvalidInput.

    The file is in a directory that only its owner can read, and is removed afterwards.
    """
    with tempfile.TemporaryDirectory(prefix="kelpie-") as directory:
        file = Path(directory, f"edit{suffix}")
        file.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run([*command, str(file)], check=False)
        except OSError as error:
            raise InvalidInput("EDITOR", f"cannot start {command[0]}: {error.strerror}") from None
        if done.returncode != 0:
            raise InvalidInput("EDITOR", f"{command[0]} ended with the code {done.returncode}; nothing was changed")
        try:
            if file.stat().st_size > TEXT_BYTES_MAX:
                raise InvalidInput("EDITOR", f"the text is larger than {TEXT_BYTES_MAX} bytes; nothing was changed")
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput("EDITOR", f"the text cannot be read back: {error}") from None
