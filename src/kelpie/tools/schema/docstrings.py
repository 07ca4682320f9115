"""Docstrings: the description of a function and of each parameter.

The styles of Google (`Args:`), numpy (`Parameters` over a line of dashes) and Sphinx (`:param x:`) are understood.
"""

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

_TITLES = (
    "Args|Arguments|Parameters|Params|Other Parameters|Keyword Args|Keyword Arguments|Returns?|Raises|Yields?|"
    "Examples?|Notes?|Warnings?|Warns|Attributes|Methods|References|See Also"
)
_SECTION = re.compile(rf"^({_TITLES})\s*:\s*$")
_UNDERLINED = re.compile(rf"^({_TITLES})\s*$")
_LINE = re.compile(r"^-{3,}\s*$")
# Written so that no two neighbours can take the same spaces: a hostile line must not cost the square of its length.
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\((?:[^()]|\([^()]*\))*\)\s*)?:\s*(.*)$")
_NUMPY_ENTRY = re.compile(r"^(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_SPHINX = re.compile(r"^[:@](\w+)(?:\s([^:]*))?:\s*(.*)$")
_SPHINX_PARAMETER = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
_SPHINX_OTHER = frozenset({"type", "return", "returns", "rtype", "raise", "raises", "except", "exception", "yields"})

_PARAMETERS = frozenset(
    {"Args", "Arguments", "Parameters", "Params", "Other Parameters", "Keyword Args", "Keyword Arguments"}
)
_EXAMPLES = frozenset({"Example", "Examples"})


@dataclass(frozen=True, slots=True)
class Docstring:
    """`description` is the text before the sections, followed by the examples, if there are any."""

    description: str
    parameters: dict[str, str]
    attributes: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Section:
    title: str
    underlined: bool
    body: list[str]


def read(text: str) -> Docstring:
    """The parts of a docstring as it stands in the source."""
    lines, parameters = _without_fields(inspect.cleandoc(text).split("\n"))
    starts = list(_starts(lines))
    described = ["\n".join(lines[: starts[0][0]] if starts else lines).strip()]
    attributes: dict[str, str] = {}
    for section in _sections(lines, starts):
        entries = _numpy_entries(section.body) if section.underlined else _google_entries(section.body)
        if section.title in _PARAMETERS:
            parameters |= entries
        elif section.title == "Attributes":
            attributes |= entries
        elif section.title in _EXAMPLES:
            described.append("\n".join([f"{section.title}:", *section.body]).rstrip())
    return Docstring("\n\n".join(part for part in described if part), parameters, attributes)


def _starts(lines: Sequence[str]) -> Iterator[tuple[int, str, bool]]:
    """Beginning of each section, its title, and True if the title is underlined."""
    for number, line in enumerate(lines):
        if found := _SECTION.match(line):
            yield number, found[1], False
        elif number + 1 < len(lines) and _LINE.match(lines[number + 1]) and (found := _UNDERLINED.match(line)):
            yield number, found[1], True


def _sections(lines: Sequence[str], starts: Sequence[tuple[int, str, bool]]) -> Iterator[_Section]:
    for (start, title, underlined), (end, _, _) in pairwise([*starts, (len(lines), "", False)]):
        yield _Section(title, underlined, list(lines[start + 1 + underlined : end]))


def _google_entries(body: Sequence[str]) -> dict[str, str]:
    """Entries begin at the section's own indentation; deeper lines continue the one before."""
    found: dict[str, list[str]] = {}
    outer = min((_indent(line) for line in body if line.strip()), default=0)
    current: list[str] = []
    for line in body:
        entry = _ENTRY.match(line.strip()) if line.strip() and _indent(line) == outer else None
        if entry:
            current = found.setdefault(entry[1], [])
            current.append(entry[2])
        elif line.strip():
            current.append(line.strip())
    return _texts(found)


def _numpy_entries(body: Sequence[str]) -> dict[str, str]:
    """`name : type` on a line of its own, described by the indented lines under it."""
    found: dict[str, list[str]] = {}
    outer = min((_indent(line) for line in body if line.strip()), default=0)
    current: list[list[str]] = []
    for line in body:
        entry = _NUMPY_ENTRY.match(line.strip()) if line.strip() and _indent(line) == outer else None
        if entry:
            names = [name.strip().lstrip("*") for name in entry[1].split(",")]
            current = [found.setdefault(name, []) for name in names]
        elif line.strip():
            for lines in current:
                lines.append(line.strip())
    return _texts(found)


def _without_fields(lines: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The lines before the first `:param x:` or its like, and their text; deeper lines continue the one before."""
    rest: list[str] = []
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        field = _SPHINX.match(line)
        if field and field[1] in _SPHINX_PARAMETER and field[2] and field[2].strip():
            current = found.setdefault(field[2].split()[-1].lstrip("*"), [])
            current.append(field[3])
        elif field and field[1] in _SPHINX_OTHER:
            current = []
        elif current is None or (line.strip() and not line.startswith((" ", "\t"))):
            current = None
            rest.append(line)
        else:
            current.append(line.strip())
    return rest, _texts(found)


def _texts(found: dict[str, list[str]]) -> dict[str, str]:
    return {name: "\n".join(lines).strip() for name, lines in found.items()}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
