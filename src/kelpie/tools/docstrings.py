"""Reads Google-style docstrings: what a function does, and what each parameter means."""

import inspect
import re
from dataclasses import dataclass
from itertools import pairwise

_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Params|Returns?|Raises|Yields?|Examples?|Notes?|Warnings?|Attributes|See Also):\s*$"
)
_PARAMETER = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_PARAMETER_SECTIONS = frozenset({"Args", "Arguments", "Parameters", "Params"})
_EXAMPLE_SECTIONS = frozenset({"Example", "Examples"})


@dataclass(frozen=True, slots=True)
class Docstring:
    """`description` is the text before the sections, followed by the examples, if there are any."""

    description: str
    parameters: dict[str, str]


def read(text: str) -> Docstring:
    """The parts of a docstring as it stands in the source."""
    lines = inspect.cleandoc(text).split("\n")
    starts = [number for number, line in enumerate(lines) if _SECTION.match(line)]
    described = ["\n".join(lines[: starts[0]] if starts else lines).strip()]
    parameters: dict[str, str] = {}
    for start, end in pairwise([*starts, len(lines)]):
        name, body = lines[start].strip().rstrip(":"), lines[start + 1 : end]
        if name in _PARAMETER_SECTIONS:
            parameters |= _parameters(body)
        elif name in _EXAMPLE_SECTIONS:
            described.append("\n".join([f"{name}:", *body]).rstrip())
    return Docstring("\n\n".join(part for part in described if part), parameters)


def _parameters(body: list[str]) -> dict[str, str]:
    """Entries begin at the section's own indentation; deeper lines continue the one before."""
    found: dict[str, list[str]] = {}
    outer = min((_indent(line) for line in body if line.strip()), default=0)
    current: list[str] = []
    for line in body:
        entry = _PARAMETER.match(line.strip()) if line.strip() and _indent(line) == outer else None
        if entry:
            current = found.setdefault(entry.group(1), [])
            current.append(entry.group(2))
        elif line.strip():
            current.append(line.strip())
    return {name: "\n".join(lines).strip() for name, lines in found.items()}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
