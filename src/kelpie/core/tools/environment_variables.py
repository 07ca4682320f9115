"""Checks of environment variables for tools. Pure."""

import re
from collections.abc import Mapping

from kelpie.core.errors import InvalidInput

VALUE_CHARS_MAX = 100_000
_KEY = re.compile(r"[^\s=\0]{1,256}")


def check_key(field: str, key: str) -> str:
    """Raises InvalidInput."""
    if not _KEY.fullmatch(key):
        raise InvalidInput(field, "must have 1 to 256 characters and no white space or '='")
    return key


def check_value(field: str, value: str) -> str:
    """Raises InvalidInput."""
    if len(value) > VALUE_CHARS_MAX or "\0" in value:
        raise InvalidInput(field, f"must have at most {VALUE_CHARS_MAX} characters and no NUL character")
    return value


def check_all(field: str, variables: Mapping[str, str]) -> None:
    """Raises InvalidInput for variables that no process can be started with."""
    for key, value in variables.items():
        check_key(field, key)
        check_value(f"{field}.{key}", value)
