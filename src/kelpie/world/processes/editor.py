"""The text editor of the user, run on one file in the foreground of the terminal."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from kelpie.core.errors import InvalidInput

VARIABLES = ("VISUAL", "EDITOR")
USUAL = ("nano", "vim", "vi")


def edit_file(path: Path) -> None:
    """Runs the editor and waits until it ends. Raises InvalidInput when there is none or it fails."""
    command = _editor()
    try:
        done = subprocess.run([*command, str(path)], check=False)
    except OSError as error:
        raise InvalidInput("EDITOR", f"'{command[0]}' cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        raise InvalidInput("EDITOR", f"'{command[0]}' ended with code {done.returncode}; nothing was changed")


def is_named() -> bool:
    """True if the user has named an editor."""
    return any(os.environ.get(name, "").strip() for name in VARIABLES)


def _editor() -> list[str]:
    for name in VARIABLES:
        try:
            words = shlex.split(os.environ.get(name, ""))
        except ValueError:
            raise InvalidInput(name, "its quotes are not closed") from None
        if words:
            return words
    found = next((each for each in USUAL if shutil.which(each)), None)
    if found is None:
        raise InvalidInput("EDITOR", "no editor was found; set EDITOR to the command of one")
    return [found]
