"""Tool permissions: the names a tool is known by, lists of patterns, and their decision about it. Pure.

A pattern is written like a file name (`*`, `?`, `[abc]`) and matches names of tools, or after `kind:` and `capability:`
those. Deny takes precedence over allow. A built-in tool without any capability affects nothing but the conversation
itself, and lists do not apply to it: an agent whose operator denies everything can still answer.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase, translate
from functools import lru_cache

from kelpie.core.errors import InvalidInput

PATTERNS_MAX = 200  # of one list
PATTERN_CHARS_MAX = 200
KIND, CAPABILITY = "kind:", "capability:"
_WRITTEN = re.compile(r"(kind:|capability:)?([A-Za-z0-9_.*?-]|\[!?[A-Za-z0-9_.-]+\])+")


class Capability(StrEnum):
    """Something a tool can reach beyond the conversation it is called in."""

    memory = "memory"  # reads or changes what an agent remembers
    messaging = "messaging"  # speaks to other agents
    code = "code"  # runs code that is not Kelpie's
    filesystem = "filesystem"  # keeps files
    network = "network"  # reaches other machines


class ToolKind(StrEnum):
    """Origin of a tool."""

    builtin = "builtin"
    custom = "custom"
    mcp = "mcp"
    client = "client"  # the client of one turn runs it by itself


@dataclass(frozen=True, slots=True)
class Subject:
    """A tool, as the lists see it."""

    name: str
    kind: ToolKind
    capabilities: tuple[Capability, ...] = ()

    @property
    def harmless(self) -> bool:
        """True if the tool affects nothing but the conversation."""
        return self.kind is ToolKind.builtin and not self.capabilities


@dataclass(frozen=True, slots=True)
class ToolPatterns:
    """Lists of tools: those of `allow` (None: all) without those of `deny`."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()

    @property
    def open(self) -> bool:
        """True if nothing is denied."""
        return self.allow is None and not self.deny

    def refusal(self, subject: Subject) -> str | None:
        """The reason why the tool may not be used; None when it may."""
        return None if subject.harmless or self.open else _refusal(self, subject)


ANYTHING = ToolPatterns()


def check_patterns(field: str, patterns: Sequence[str]) -> tuple[str, ...]:
    """The patterns, each once. Raises InvalidInput naming one that can never match."""
    if len(patterns) > PATTERNS_MAX:
        raise InvalidInput(field, f"has {len(patterns)} patterns; the limit is {PATTERNS_MAX}")
    for pattern in patterns:
        if len(pattern) > PATTERN_CHARS_MAX or not _WRITTEN.fullmatch(pattern):
            raise InvalidInput(
                field,
                f"'{pattern[:80]}' is not a pattern; use a tool name with * and ?, such as memory_*, "
                "or kind:custom, or capability:network",
            )
        for prefix, words in ((KIND, ToolKind), (CAPABILITY, Capability)):
            wanted = pattern.removeprefix(prefix)
            if pattern.startswith(prefix) and not any(fnmatchcase(word, wanted) for word in words):
                raise InvalidInput(field, f"'{pattern}' is unknown; use one of {', '.join(words)}")
    return tuple(dict.fromkeys(patterns))


@lru_cache(maxsize=16_384)  # few tools under few lists are asked about again and again
def _refusal(permits: ToolPatterns, subject: Subject) -> str | None:
    if (pattern := _touching(permits.deny, subject)) is not None:
        return f"its list of denied tools contains '{pattern}'"
    if permits.allow is not None and not _covered(permits.allow, subject):
        return "it is not on its list of allowed tools"
    return None


def _touching(patterns: tuple[str, ...], subject: Subject) -> str | None:
    """The pattern that matches the tool: by its name, its kind or any of its capabilities."""
    names, kinds, capabilities = _compiled(patterns)
    for among, words in ((names, (subject.name,)), (kinds, (subject.kind,)), (capabilities, subject.capabilities)):
        for word in words:
            if (pattern := among.first(word)) is not None:
                return pattern
    return None


def _covered(patterns: tuple[str, ...], subject: Subject) -> bool:
    """Checks whether the tool is allowed. By capabilities it is only when all that it has are named: a tool that may
    reach memory does not thereby reach the network."""
    names, kinds, capabilities = _compiled(patterns)
    if names.first(subject.name) is not None or kinds.first(subject.kind) is not None:
        return True
    return bool(subject.capabilities) and all(capabilities.first(each) for each in subject.capabilities)


class _Patterns:
    """Patterns of one sort, as one expression."""

    def __init__(self, patterns: Sequence[str], prefix: str) -> None:
        self._patterns = patterns
        each = (f"({translate(pattern.removeprefix(prefix))})" for pattern in patterns)
        self._either = re.compile("|".join(each) or r"(?!)")

    def first(self, word: str) -> str | None:
        """The first pattern that matches the word."""
        found = self._either.match(word)
        return None if found is None or found.lastindex is None else self._patterns[found.lastindex - 1]


@lru_cache(maxsize=4096)
def _compiled(patterns: tuple[str, ...]) -> tuple[_Patterns, _Patterns, _Patterns]:
    """Patterns of names, of kinds, of capabilities."""
    sorts = [[p for p in patterns if p.startswith(prefix)] for prefix in (KIND, CAPABILITY)]
    names = [p for p in patterns if not p.startswith((KIND, CAPABILITY))]
    return _Patterns(names, ""), _Patterns(sorts[0], KIND), _Patterns(sorts[1], CAPABILITY)
