"""The text of kelpie.toml: its values, each with its line; unknown keys are refused.

Pure: `world.files.settings_file` reads the file.
"""

import difflib
import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from kelpie.core.errors import ConfigurationError
from kelpie.core.settings.settings import KEYS
from kelpie.core.settings.sources.precedence import SettingSource


def parse(text: str, path: str) -> dict[str, SettingSource]:
    """The values by key, such as `server.port`. Raises ConfigurationError with the line: not TOML, or an unknown
    key."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        told = re.sub(r" \(at .*\)$", "", str(error))
        raise ConfigurationError(f"{path} line {_line_of_fault(text)}", f"this is not TOML: {told}") from None
    lines = _lines(text)
    found: dict[str, SettingSource] = {}
    for key, value in _flat(document):
        where = f"{path} line {lines.get(key, 1)}"
        if key not in KEYS:
            raise ConfigurationError(where, f"there is no setting '{key[:80]}'; {nearest_key(key)}")
        found[key] = SettingSource(value, f"{where}, {key}")
    return found


def salvaged(text: str, path: str) -> dict[str, SettingSource]:
    """The values of those lines that are TOML and set something, from a text that may be wrong elsewhere."""
    found: dict[str, SettingSource] = {}
    heading: tuple[str, ...] = ()
    for begin, line in enumerate(text.splitlines(), 1):
        if not _is_toml(line):
            continue
        parsed = tomllib.loads(line)
        if line.lstrip().startswith("["):
            heading = _path(parsed)
            continue
        for key, value in _flat(parsed):
            whole = ".".join((*heading, key))
            if whole in KEYS:
                found[whole] = SettingSource(value, f"{path} line {begin}, {whole}")
    return found


def nearest_key(key: str) -> str:
    """The nearest known name; the last part alone counts too, for keys under the wrong heading."""
    last = {known.rpartition(".")[2]: known for known in reversed(list(KEYS))}
    near = [known for known in KEYS if known.endswith(f".{key}")][:1]
    near = near or difflib.get_close_matches(key, KEYS, 1, 0.75)
    near = near or [last[name] for name in difflib.get_close_matches(key.rpartition(".")[2], last, 1, 0.75)]
    near = near or difflib.get_close_matches(key, KEYS, 1, 0.7)
    if near:
        return f"did you mean '{near[0]}'?"
    return "`kelpie config show --all` lists the settings"


def _flat(table: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in table.items():
        key = f"{before}{name}"
        if isinstance(value, dict) and (value or not any(known.startswith(f"{key}.") for known in KEYS)):
            inner = cast("dict[str, Any]", value)
            yield from _flat(inner, f"{key}.") if inner else [(key, inner)]
        elif not isinstance(value, dict):
            yield key, value


def _lines(text: str) -> dict[str, int]:
    """The line at which each key begins."""
    found: dict[str, int] = {}
    heading: tuple[str, ...] = ()
    for begin, _, statement in _statements(text):
        parsed = tomllib.loads(statement)
        if statement.lstrip().startswith("["):
            heading = _path(parsed)
            found.setdefault(".".join(heading), begin)
        for key, _ in _flat(parsed) if parsed else ():
            found.setdefault(".".join((*heading, key)), begin)
    return found


def _statements(text: str) -> Iterator[tuple[int, int, str]]:
    """First and last line of each statement, and its text: it ends where its lines, taken alone, are TOML."""
    begin, statement = 1, ""
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        statement += line
        if _is_toml(statement):
            yield begin, number, statement
            begin, statement = number + 1, ""
    if statement:
        yield begin, begin + statement.count("\n"), statement


def _path(parsed: Any) -> tuple[str, ...]:
    """The names along the one branch of a heading."""
    names: list[str] = []
    while isinstance(parsed, dict) and parsed:
        [(name, parsed), *_] = cast("dict[str, Any]", parsed).items()
        names.append(name)
    return tuple(names)


def _line_of_fault(text: str) -> int:
    """The line of the first statement that makes the text invalid TOML; the parser itself may notice only at the
    end."""
    lines = text.splitlines(keepends=True)
    statements = list(_statements(text))
    first = bisect_left(statements, True, key=lambda each: not _is_toml("".join(lines[: each[1]])))
    return statements[min(first, len(statements) - 1)][0]


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True
