"""Names for what differs from run to run: ids, secrets and times, numbered as they are first shown."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

from kelpie.core.time import MICROS_PER_SECOND
from kelpie.sim.ports.clock import START

GRID_S = 20  # each step begins at a multiple of it, so that times are the same however long a step takes

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_SECRET = re.compile(r"\b([a-z-]+)_[0-9a-f]{32}_[\w-]{43}")
_ID = re.compile(rf"\b(?:([a-z][a-z_-]*)-)?({_UUID})\b")
_CALL = re.compile(r"\bcall_[0-9a-f]{8,}\b")
_ITEM = re.compile(rf"\b(resp|msg|fc|rs|in|fco)_(?:{_UUID}|[0-9a-f]{{32}})(?:_\d+)?\b")
_CHALLENGE = re.compile(r"(?<=code_challenge=)[\w-]{43}")
_HEX = re.compile(r"\b[0-9a-f]{32,64}\b")
_TIME = re.compile(r"\b(20\d\d-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:\.\d+)?( [AP]M)?(?: ?UTC)?(Z|[+-]\d\d:?\d\d)?")
_EPOCH = re.compile(r"\b17672\d{5}\b")
_NAME = re.compile(r"\b([a-z][a-z_-]*?)-(\d+)\b")
_DEFAULT = "00000000-0000-4000-8000-000000000000"
_START_S = START / MICROS_PER_SECOND
_NEAR_S = 400 * 24 * 3600  # other times are not of this session


class Names:
    """The names of one session."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._real: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def shown(self, text: str) -> str:
        """The text as it is recorded."""
        text = _SECRET.sub(lambda found: self._name(found[0], found[1].removeprefix("kelpie-") + "_secret"), text)
        text = _CALL.sub(lambda found: self._name(found[0], "call"), text)
        text = _ITEM.sub(lambda found: self._name(found[0], found[1]), text)
        text = _CHALLENGE.sub(lambda found: self._name(found[0], "challenge"), text)
        text = _ID.sub(self._id, text)
        text = _HEX.sub(lambda found: self._name(found[0], "hash"), text)
        return _EPOCH.sub(lambda found: _since(float(found[0])), _TIME.sub(_moment, text))

    def hint(self, text: str) -> str:
        """The end of a secret as it is recorded."""
        return self._name(text, "hint")

    def meant(self, text: str) -> str:
        """The text of a request with the real ids and secrets."""
        return _NAME.sub(lambda found: self._real.get(found[0], found[0]), text)

    def _id(self, found: re.Match[str]) -> str:
        if found[2] == _DEFAULT:
            name = f"{found[1] or 'uuid'}-0"
            self._real[name] = found[0]
            return name
        return self._name(found[0], found[1] or "uuid")

    def _name(self, real: str, kind: str) -> str:
        if real not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            name = f"{kind}-{self._counts[kind]}"
            self._names[real], self._real[name] = name, real
        return self._names[real]


def _moment(found: re.Match[str]) -> str:
    day, clock, half, zone = found.groups()
    text = f"{day} {clock if clock.count(':') == 2 else clock + ':00'}"
    form = "%Y-%m-%d %I:%M:%S %p" if half else "%Y-%m-%d %H:%M:%S"
    read: Callable[[str, str], datetime] = datetime.strptime
    try:
        at = read(text + (half or ""), form)
        if zone and zone != "Z":
            at -= read(zone.replace(":", ""), "%z").utcoffset() or at - at
    except ValueError:
        return found[0]
    at_s = at.replace(tzinfo=UTC).timestamp()
    return _since(at_s) if abs(at_s - _START_S) < _NEAR_S else found[0]


def _since(at_s: float) -> str:
    return f"<{(at_s - _START_S) // GRID_S * GRID_S:+.0f}s>"
