"""Differences between Claude models in the parameters they accept, by their names.

Newer ones think by themselves, take no sampling parameters and cannot be forced to call a tool; a parameter that a
model does not accept is an error, so it must not be sent.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

_NAME = re.compile(r"claude-(opus|sonnet|haiku|fable|mythos)(?:-(\d+)(?!\d))?(?:-(\d{1,2})(?!\d))?")
_NEVER_THINKS = re.compile(r"claude-(instant|2|3(?!-7))")
_ALWAYS_NEW = ("fable", "mythos")


@dataclass(frozen=True, slots=True)
class Traits:
    """Accepted parameters of a model. `off` is the value that switches thinking off, None if there is none or none is
    needed."""

    can_think: bool = True
    adaptive: bool = False  # decides itself how much to think; a budget is refused
    thinks_unasked: bool = False
    off: str | None = None
    sampling: bool = True
    forced_tools: bool = True


@lru_cache(maxsize=256)
def traits(model: str) -> Traits:
    """The traits of the model; an unknown name counts as an old model, which accepts the most."""
    found = _NAME.search(model.lower())
    if found is None:
        return Traits(can_think=_NEVER_THINKS.search(model.lower()) is None)
    line, version = found[1], (int(found[2] or 0), int(found[3] or 0))
    always = line in _ALWAYS_NEW
    adaptive = always or version >= ((4, 7) if line == "opus" else (5, 0))
    return Traits(
        adaptive=adaptive,
        thinks_unasked=always or version >= (5, 0),
        off=_off(line, version),
        sampling=not adaptive,
        forced_tools=not (always or version >= (5, 5)),
    )


def _off(line: str, version: tuple[int, int]) -> str | None:
    if line in _ALWAYS_NEW or version < (5, 0) or (line == "opus" and version >= (5, 5)):
        return None
    return "between_tools" if line == "sonnet" and version >= (5, 5) else "disabled"
