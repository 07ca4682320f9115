"""The audit of all pins against advisories in the OSV format (`make audit ADVISORIES=folder`).

Nothing is fetched: the operator gives a folder with the exports of an advisory database for PyPI and npm. Without
advisories for both, or with advisories that are not recent, nothing is audited, and that is a failure too.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from release.advisories import Advisory, Unreadable, key, read
from release.pinned import NPM, PYPI, Pinned, developing, running

OLDEST = timedelta(days=14)  # the databases change every day
CLEAN, AFFECTED, NOT_AUDITED = 0, 1, 2


class NotAudited(Exception):
    """An audit that could not be made."""


def audit(pins: Iterable[Pinned], advisories: Iterable[Advisory], now: datetime) -> list[tuple[Pinned, Advisory]]:
    """The pins that advisories concern. Raises NotAudited without recent advisories for an ecosystem of the pins."""
    known: defaultdict[tuple[str, str], list[Advisory]] = defaultdict(list)
    newest: dict[str, datetime] = {}
    for each in advisories:
        known[each.ecosystem, each.name].append(each)
        newest[each.ecosystem] = max(newest.get(each.ecosystem, each.modified), each.modified)
    for ecosystem in (PYPI, NPM):
        if ecosystem not in newest:
            raise NotAudited(f"there is no advisory for {ecosystem}")
        if now - newest[ecosystem] > OLDEST:
            day = f"{newest[ecosystem]:%Y-%m-%d}"
            raise NotAudited(f"the newest advisory for {ecosystem} is of {day}, more than {OLDEST.days} days old")
    found = [(pin, each) for pin in pins for each in known[pin.ecosystem, key(pin.ecosystem, pin.name)]]
    return [(pin, each) for pin, each in found if each.concerns(pin)]


def main(arguments: Sequence[str]) -> int:
    pins = [*running(), *developing()]
    try:
        if not arguments:
            raise NotAudited("give a folder of advisories in the OSV format: make audit ADVISORIES=folder")
        if not (place := Path(arguments[0])).exists():
            raise NotAudited(f"{place} does not exist")
        found = audit(pins, read(place), datetime.now(UTC))
    except (NotAudited, Unreadable, OSError) as error:
        print(f"not audited: {error}", file=sys.stderr)
        return NOT_AUDITED
    for pin, advisory in found:
        print(f"{pin.name}=={pin.version} ({pin.ecosystem}): {advisory.id}: {advisory.summary}")
    print(f"{len(pins)} pins audited, {len({pin for pin, _ in found})} with advisories")
    return AFFECTED if found else CLEAN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
