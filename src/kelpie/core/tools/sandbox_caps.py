"""Caps of the operator on the sandbox of every tool: the most that a tool may ask for, and what it got instead. Pure.

A tool that asks for more is refused when it is registered. One that was stored before the cap was lowered still runs,
within the cap (`Quota.confined`), and a call that fails then says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kelpie.core.errors import InvalidInput
from kelpie.core.tools.confinement import MEGABYTE, Confinement
from kelpie.core.tools.egress_rules import EgressEntry, entries

FIELD = "kelpie_sandbox"


class CapExceeded(InvalidInput):
    """A tool asks for more than the operator allows."""

    error_code = "sandbox_cap_exceeded"


@dataclass(frozen=True, slots=True)
class Cap:
    """The most of one field, and the setting that says so; None is no limit."""

    field: str
    most: float | None
    setting: str

    def check(self, value: float | None, within: str = "") -> None:
        """Raises CapExceeded for a value above the cap; `within` is what the field belongs to."""
        if self.most is not None and value is not None and value > self.most:
            raise CapExceeded(
                f"{within}{self.field}",
                f"is {value:g}, and this server allows at most {self.most:g}; ask for less, or let the operator raise "
                f"{self.setting}",
            )


@dataclass(frozen=True, slots=True)
class SandboxCaps:
    """The caps of a server. `egress` lists the only hosts that tools may name; without any they may name all."""

    caps: tuple[Cap, ...] = ()
    return_chars: Cap = Cap("return_char_limit", None, "")
    egress: tuple[str, ...] = ()
    egress_setting: str = ""

    def check(self, asked: Mapping[str, Any] | None, return_chars: int | None) -> None:
        """Raises CapExceeded naming the field, the cap and the setting, when a tool asks for more than it may have."""
        self.return_chars.check(return_chars)
        if not asked:
            return
        for cap in self.caps:
            cap.check(asked.get(cap.field), f"{FIELD}.")
        allowed = entries(self.egress)
        for at, entry in enumerate(entries(asked.get("egress") or (), f"{FIELD}.egress")):
            if allowed and not any(_includes(each, entry) for each in allowed):
                raise CapExceeded(
                    f"{FIELD}.egress[{at}]",
                    f"'{entry.name}' is not among the hosts that this server allows; name one of "
                    f"{', '.join(self.egress)}, or let the operator add it to {self.egress_setting}",
                )


NO_CAPS = SandboxCaps()

_UNITS: tuple[tuple[str, str, int], ...] = (
    ("timeout_s", "wall_s", 1),
    ("memory_mb", "memory_bytes", MEGABYTE),
    ("cpu_share", "cpu_share", 1),
    ("processes", "processes", 1),
    ("output_mb", "output_bytes", MEGABYTE),
    ("scratch_mb", "scratch_bytes", MEGABYTE),
)


def reduction(asked: Confinement, held: Confinement) -> str:
    """A sentence about what a call had less of than its tool asks for; empty when it had all."""
    less = [
        f"{name} {getattr(asked, field) / unit:g} (allowed here: {getattr(held, field) / unit:g})"
        for name, field, unit in _UNITS
        if getattr(held, field) < getattr(asked, field)
    ]
    return f"The tool asks for more than it may have: {', '.join(less)}." if less else ""


def _includes(allowed: EgressEntry, asked: EgressEntry) -> bool:
    """Checks whether every host and port of one entry is also one of the other."""
    if allowed.port is not None and allowed.port != asked.port:
        return False
    if allowed.port is None and asked.port not in (None, 80, 443):
        return False
    if allowed.name.startswith("*."):
        return asked.name.removeprefix("*").endswith(allowed.name[1:])
    return allowed.name in ("*", asked.name)
