"""The text editor of the user, run on one file in the foreground of the terminal."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from kelpie.core.errors import InvalidInput

VARIABLES = ("VISUAL", "EDITOR")
USUAL = ("nano", "vim", "vi")


def chosen_editor() -> list[str] | None:
    """The command of the editor that a variable names; None when none does. Raises InvalidInput."""
    for name in VARIABLES:
        try:
            words = shlex.split(os.environ.get(name, ""))
        except ValueError:
            raise InvalidInput(name, "its quotes are not closed") from None
        if words:
            return words
    return None


def edit_file(path: Path) -> None:
    """Runs the editor and waits until it ends. Raises InvalidInput when there is none or it fails."""
    command = chosen_editor() or _usual_editor()
    try:
        done = subprocess.run([*command, str(path)], check=False)
    except OSError as error:
        raise InvalidInput("EDITOR", f"'{command[0]}' cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        raise InvalidInput("EDITOR", f"'{command[0]}' ended with code {done.returncode}; nothing was changed")


def _usual_editor() -> list[str]:
    found = next((each for each in USUAL if shutil.which(each)), None)
    if found is None:
        raise InvalidInput("EDITOR", "no editor was found; set EDITOR to the command of one")
    return [found]
