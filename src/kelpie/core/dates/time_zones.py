"""Names of time zones."""

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kelpie.core.errors import InvalidInput


def check_timezone(name: str) -> str:
    """The name of a time zone that this machine knows. Raises InvalidInput."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInput(
            "timezone", f"'{name[:80]}' is not a known time zone; use a name such as Europe/Berlin"
        ) from None
    return name
