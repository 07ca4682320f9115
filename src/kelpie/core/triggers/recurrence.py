"""Recurrence of a schedule: a cron expression in a time zone, and the times at which it is due.

`cronsim` finds the times as Debian's cron does. In the night when the clock goes forward, a time that does not exist is
due at the first moment after the gap. In the night when it goes back, a time that exists twice is due the first time;
an expression whose minute or hour begins with `*` follows elapsed time instead.
"""

from dataclasses import dataclass
from itertools import islice
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from kelpie.core.dates.time_zones import check_timezone
from kelpie.core.errors import InvalidInput
from kelpie.core.time import MICROS_PER_SECOND, Micros, as_datetime, from_datetime

EXPRESSION_CHARS_MAX = 200
FIELDS = 5
NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_OVERLAP_TRIES = 200  # times that a repeated hour may put before the moment asked about


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A cron expression with five fields, or one of the names above, in a time zone."""

    expression: str
    timezone: str = "UTC"

    def next_after(self, at: Micros) -> Micros | None:
        """The first due time later than this moment; None if there is none within fifty years."""
        moment = as_datetime(at).astimezone(ZoneInfo(self.timezone))
        times = CronSim(NAMED.get(self.expression, self.expression), moment)
        for _ in range(_OVERLAP_TRIES):
            try:
                found = from_datetime(next(times))
            except (StopIteration, OverflowError):
                return None
            if found > at:
                return found
        return None

    def newest(self, until: Micros, most: int) -> list[Micros]:
        """The last due times up to this moment, the earliest first."""
        moment = as_datetime(until + MICROS_PER_SECOND).astimezone(ZoneInfo(self.timezone))
        times = CronSim(NAMED.get(self.expression, self.expression), moment, reverse=True)
        found: list[Micros] = []
        for due in islice(times, most):
            if (at := from_datetime(due)) <= until:
                found.append(at)
        return found[::-1]

    def between(self, after: Micros, until: Micros, most: int) -> list[Micros]:
        """The due times later than `after` up to `until`, at most so many of them, the earliest first."""
        found: list[Micros] = []
        while len(found) < most and (due := self.next_after(after)) is not None and due <= until:
            found.append(due)
            after = due
        return found


def check_recurrence(expression: str, timezone: str, field: str) -> Recurrence:
    """A recurrence that is due at least once after any moment. Raises InvalidInput, which names `field`."""
    text = " ".join(expression.split())
    if len(text) > EXPRESSION_CHARS_MAX:
        raise InvalidInput(field, f"has more than {EXPRESSION_CHARS_MAX} characters")
    standard = NAMED.get(text.lower())
    if standard is None and len(text.split(" ")) != FIELDS:
        raise InvalidInput(
            field,
            f"'{text}' is not a cron expression; write five fields (minute, hour, day of the month, month, day of the "
            "week), such as '0 9 * * 1-5', or one of " + ", ".join(NAMED),
        )
    recurrence = Recurrence(text.lower() if standard else text, check_timezone(timezone))
    try:
        due = recurrence.next_after(0)
    except CronSimError as error:
        raise InvalidInput(field, f"'{text}' is not a cron expression: {str(error).lower()}") from None
    if due is None:
        raise InvalidInput(field, f"'{text}' never occurs")
    return recurrence
