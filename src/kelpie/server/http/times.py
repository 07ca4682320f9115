"""Times on the wire: full precision in records, whole seconds in messages."""

from datetime import UTC, datetime, timedelta, tzinfo

from kelpie.core.errors import InvalidInput
from kelpie.core.time import MICROS_PER_SECOND, Micros, from_datetime

_EPOCH = datetime(1970, 1, 1)
_YEARS = range(2, 9999)  # a year less than there are, so that no time zone leads out of them


def timestamp(at: Micros | None) -> str | None:
    """`2026-01-31T12:00:00.000001Z`, as records carry it."""
    return None if at is None else (_EPOCH + timedelta(0, 0, at)).isoformat() + "Z"


def date(at: Micros) -> str:
    """`2026-01-31T12:00:00+00:00`, as messages carry it."""
    return datetime.fromtimestamp(at // MICROS_PER_SECOND, UTC).isoformat()


def moment(field: str, given: datetime | None, zone: tzinfo = UTC) -> Micros | None:
    """Parses a time; one without a time zone is in `zone`. Raises InvalidInput for an invalid year."""
    if given is None:
        return None
    if given.year not in _YEARS:
        raise InvalidInput(field, f"the year must be from {_YEARS.start} to {_YEARS.stop - 1}")
    return from_datetime(given if given.tzinfo else given.replace(tzinfo=zone))
