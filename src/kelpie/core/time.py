"""Time inside Kelpie is an integer: microseconds since 1970 in UTC. Formats live at the edges."""

from datetime import UTC, datetime, timedelta

Micros = int

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROS_PER_SECOND = 1_000_000


def as_datetime(at: Micros) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


def from_datetime(moment: datetime) -> Micros:
    """Microseconds of an aware datetime; a naive one counts as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)
