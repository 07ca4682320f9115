"""Who may use which tool: what a tool is known by, lists of patterns, and what they say of it. Pure.

A pattern is written like a file name (`*`, `?`, `[abc]`) and stands for names of tools, or after `kind:` and
`capability:` for those. What is denied is refused whatever is allowed. A built-in tool without any capability touches
nothing but the conversation itself, and lists do not speak of it: whoever forbids everything still gets an answer.
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
_WRITTEN = re.compile(r"(kind:|capability:)?[A-Za-z0-9_.*?!\[\]-]+")


class Capability(StrEnum):
    """What a tool can reach beyond the conversation it is called in."""

    memory = "memory"  # reads or changes what an agent remembers
    messaging = "messaging"  # speaks to other agents
    code = "code"  # runs code that is not Kelpie's
    filesystem = "filesystem"  # keeps files
    network = "network"  # reaches other machines


class ToolKind(StrEnum):
    """Where a tool comes from."""

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
        """Whether it touches nothing but the conversation."""
        return self.kind is ToolKind.builtin and not self.capabilities


@dataclass(frozen=True, slots=True)
class Permits:
    """The tools that may be used: those of `allow` (None: all) without those of `deny`."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()

    @property
    def open(self) -> bool:
        """Whether it forbids nothing."""
        return self.allow is None and not self.deny

    def refusal(self, subject: Subject) -> str | None:
        """Why the tool may not be used; None when it may."""
        if subject.harmless or self.open:
            return None
        if _touched(self.deny, subject):
            return f"its list of denied tools has '{_culprit(self.deny, subject)}'"
        if self.allow is not None and not _covered(self.allow, subject):
            return "it is not on its list of allowed tools"
        return None


ANYTHING = Permits()


def check_patterns(field: str, patterns: Sequence[str]) -> tuple[str, ...]:
    """The patterns, each once. Raises InvalidInput naming the one that could never mean anything."""
    if len(patterns) > PATTERNS_MAX:
        raise InvalidInput(field, f"has {len(patterns)} patterns; use at most {PATTERNS_MAX}")
    for pattern in patterns:
        if len(pattern) > PATTERN_CHARS_MAX or not _WRITTEN.fullmatch(pattern):
            raise InvalidInput(
                field,
                f"'{pattern[:80]}' is no pattern; write a tool's name with * and ?, such as memory_*, "
                "or kind:custom, or capability:network",
            )
        for prefix, words in ((KIND, ToolKind), (CAPABILITY, Capability)):
            wanted = pattern.removeprefix(prefix)
            if pattern.startswith(prefix) and not any(fnmatchcase(word, wanted) for word in words):
                raise InvalidInput(field, f"'{pattern}' is none that there is; use one of {', '.join(words)}")
    return tuple(dict.fromkeys(patterns))


def _touched(patterns: tuple[str, ...], subject: Subject) -> bool:
    """Whether one pattern speaks of the tool: by its name, its kind or any of its capabilities."""
    names, kinds, capabilities = _compiled(patterns)
    return bool(
        names.match(subject.name)
        or kinds.match(subject.kind)
        or any(capabilities.match(each) for each in subject.capabilities)
    )


def _covered(patterns: tuple[str, ...], subject: Subject) -> bool:
    """The same, but that capabilities let a tool in only when all that it has are named: what may reach memory does
    not thereby reach the network."""
    names, kinds, capabilities = _compiled(patterns)
    if names.match(subject.name) or kinds.match(subject.kind):
        return True
    return bool(subject.capabilities) and all(capabilities.match(each) for each in subject.capabilities)


def _culprit(patterns: tuple[str, ...], subject: Subject) -> str:
    return next(pattern for pattern in patterns if _touched((pattern,), subject))


@lru_cache(maxsize=4096)
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Of names, of kinds, of capabilities: each as one expression, so that a long list costs what a short one does."""
    kinds = [p.removeprefix(KIND) for p in patterns if p.startswith(KIND)]
    capabilities = [p.removeprefix(CAPABILITY) for p in patterns if p.startswith(CAPABILITY)]
    names = [p for p in patterns if not p.startswith((KIND, CAPABILITY))]
    return _either(names), _either(kinds), _either(capabilities)


def _either(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)) or r"(?!)")
