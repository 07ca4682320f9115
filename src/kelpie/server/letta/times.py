"""Times on the wire: full precision in records, whole seconds in messages."""

from kelpie.core.time import Micros, as_datetime


def timestamp(at: Micros | None) -> str | None:
    """`2026-01-31T12:00:00.000001Z`, as records carry it."""
    return None if at is None else f"{as_datetime(at).replace(tzinfo=None).isoformat()}Z"


def date(at: Micros) -> str:
    """`2026-01-31T12:00:00+00:00`, as messages carry it."""
    return as_datetime(at).isoformat(timespec="seconds")
