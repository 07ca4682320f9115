"""Egress rules: the list of host names that code in a cell may reach over HTTP(S); it has no other network. Pure.

`example.com` is that host at its usual ports, `*.example.com` every host below it, `example.com:8443` that port alone,
`*` every host. No list opens an address that is not public; see `public_addresses.is_public`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kelpie.core.errors import InvalidInput

ENTRIES_MAX = 100
USUAL_PORTS = (80, 443)
_ENTRY = re.compile(r"(\*|(?:\*\.)?[a-z0-9_](?:[a-z0-9._-]{0,251}[a-z0-9])?|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class EgressEntry:
    """One entry of a list, in lower case."""

    name: str
    port: int | None = None  # None: the usual ones

    def covers(self, host: str, port: int) -> bool:
        if port != self.port if self.port is not None else port not in USUAL_PORTS:
            return False
        if self.name.startswith("*."):
            return host.endswith(self.name[1:])
        return self.name in ("*", host)


def entries(texts: Iterable[str], field: str = "egress") -> tuple[EgressEntry, ...]:
    """Parses a list. Raises InvalidInput naming an invalid entry."""
    found = tuple(_entry(text, field) for text in texts)
    if len(found) > ENTRIES_MAX:
        raise InvalidInput(field, f"list at most {ENTRIES_MAX} hosts")
    return found


def allows(listed: Sequence[EgressEntry], host: str, port: int) -> bool:
    """Checks whether a list allows a host at a port."""
    name = host.lower().rstrip(".")
    return any(entry.covers(name, port) for entry in listed)


def _entry(text: str, field: str) -> EgressEntry:
    match = _ENTRY.fullmatch(text.strip().lower())
    port = int(match[2]) if match and match[2] else None
    if match is None or (port is not None and not 0 < port < 65536):
        raise InvalidInput(field, f"'{text[:80]}' is not a host; use example.com, *.example.com or host:8443")
    return EgressEntry(match[1].strip("[]"), port)
