"""Record of the settings with which a server runs, and the differences between it and the settings of a command.

A command compares the two to say that a running server has other settings. The record of a secret is a short digest:
enough to see that the secret changed, too short to confirm a guess of it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from kelpie.core.settings.settings import SETTINGS, ResolvedSettings, Settings

# Settings that only commands use, and the directory in which the record itself is.
NOT_OF_THE_SERVER = frozenset({"data_dir", "client_api_key", "start_s"})
DIGEST_CHARS = 4  # of hexadecimal digits: a changed secret has the same digest once in 65536 times
SET, NOT_SET = "set", "not set"


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that a running server has otherwise. Values are texts for people; of a secret only whether it is
    set."""

    key: str
    source: str  # the variable, option or line that sets it now, or the variable that would
    running: str
    now: str

    def __str__(self) -> str:
        return f"{self.key} ({self.source}): {self.running} in the running server, {self.now} now"


def recorded(settings: Settings, salt: str) -> dict[str, Any]:
    """The settings of a server by key, as JSON values; secrets as salted digests."""
    return {
        spec.key: _recorded(getattr(settings, name), salt, secret=spec.secret)
        for name, spec in SETTINGS.items()
        if name not in NOT_OF_THE_SERVER
    }


def differences(record: Mapping[str, Any], salt: str, found: ResolvedSettings) -> Sequence[Difference]:
    """The settings that differ from a server's record, in the order of the table; settings that the record lacks are
    left out."""
    now = recorded(found.settings, salt)
    return [
        _difference(name, record[spec.key], now[spec.key], found)
        for name, spec in SETTINGS.items()
        if spec.key in now and spec.key in record and record[spec.key] != now[spec.key]
    ]


def _difference(name: str, running: Any, now: Any, found: ResolvedSettings) -> Difference:
    spec, origin = SETTINGS[name], found.origins[name]
    if not spec.secret:
        return Difference(spec.key, origin.where or spec.env[0], _shown(running), _shown(now))
    if running is not None and now is not None:
        return Difference(spec.key, origin.where or spec.env[0], "another value", "a new value")
    states = (NOT_SET if value is None else SET for value in (running, now))
    return Difference(spec.key, origin.where or spec.env[0], *states)


def _recorded(value: Any, salt: str, *, secret: bool) -> Any:
    if secret:
        return None if not value else hashlib.sha256(f"{salt}\0{value}".encode()).hexdigest()[:DIGEST_CHARS]
    return list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value


def _shown(value: Any) -> str:
    if value is None or value == []:
        return NOT_SET
    if isinstance(value, bool):
        return str(value).lower()
    text = ", ".join(cast("list[str]", value)) if isinstance(value, list) else str(value)
    return text[:80]
