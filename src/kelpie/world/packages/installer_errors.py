"""Errors of installers as clients may read them: no tracebacks, no paths of this machine, no credentials."""

import re
from collections.abc import Iterable

TOLD_CHARS_MAX = 2000
PATH = "(path)"

_TRACEBACK = re.compile(r"^[^\n]*Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n|\n)*", re.MULTILINE)
_NOISE = re.compile(r"^(?:WARNING|npm warn|npm error +at |npm error Log files|npm error$).*$", re.MULTILINE)
_FILE_ADDRESS = re.compile(r"\bfile:[^\s'\")>\]]*", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w/:.@\]-])(?:~|\.{1,2})?/(?!/)[^\s'\",;:()<>\[\]]+")
_BLANK_LINES = re.compile(r"\n\s*\n+")


def readable(output: bytes, secrets: Iterable[str]) -> str:
    """The end of an installer's output, without what a client must not see."""
    text = output.decode("utf-8", "replace")
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "****")
    text = _NOISE.sub("", _TRACEBACK.sub("", text))
    text = _PATH.sub(PATH, _FILE_ADDRESS.sub(f"file:{PATH}", text))
    return _BLANK_LINES.sub("\n", text).strip()[-TOLD_CHARS_MAX:]
