"""Confinement settings of one tool: its own limits, and whether its results are cached. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kelpie.core.tools.confinement import DEFAULT_CONFINEMENT, MEGABYTE, Confinement, Isolation

DETERMINISTIC = "deterministic"

_BYTES = {"memory_mb": "memory_bytes", "scratch_mb": "scratch_bytes", "output_mb": "output_bytes"}
_PLAIN = {"timeout_s": "wall_s", "cpu_share": "cpu_share", "processes": "processes"}


def confined(asked: Mapping[str, Any] | None, otherwise: Confinement = DEFAULT_CONFINEMENT) -> Confinement:
    """The default confinement, changed by a tool's own settings."""
    if not asked:
        return otherwise
    values: dict[str, Any] = {field: asked[name] for name, field in _PLAIN.items() if asked.get(name) is not None}
    values |= {field: int(asked[name] * MEGABYTE) for name, field in _BYTES.items() if asked.get(name) is not None}
    if asked.get("isolation"):
        values["isolation"] = Isolation(asked["isolation"])
    if asked.get("egress"):
        values["egress"] = tuple(asked["egress"])
    return replace(otherwise, **values)


def is_deterministic(asked: Mapping[str, Any] | None) -> bool:
    """True if the tool declares that the same arguments always give the same result."""
    return bool(asked and asked.get(DETERMINISTIC))
