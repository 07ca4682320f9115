"""Quotas of organizations: the limits that an operator sets, what is used of them, and the refusal that names both.

A limit of 0 means no limit. The server's limits hold for every organization except the default one, which belongs to
the operator; limits that are set for one organization hold for it, whichever it is.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

from kelpie.core.errors import InvalidInput, QuotaExceeded
from kelpie.core.ids import DEFAULT_ORGANIZATION, OrganizationId

MEGABYTE = 1024 * 1024
LIMIT_MAX = 10**15


@dataclass(frozen=True, slots=True)
class OrganizationLimits:
    """What one organization may use; 0 is no limit."""

    requests_per_minute: int = 0
    agents: int = 0
    messages: int = 0
    files: int = 0
    stored_mb: int = 0
    disk_mb: int = 0


NO_LIMITS = OrganizationLimits()
NAMES = tuple(field.name for field in fields(OrganizationLimits))
SETTINGS = {name: f"KELPIE_QUOTA_{name.upper()}" for name in NAMES}


@dataclass(frozen=True, slots=True)
class OrganizationUsage:
    """What an organization stores. The bytes are those of texts and JSON in the database."""

    agents: int = 0
    messages: int = 0
    bytes: int = 0
    files: int = 0


def effective(
    organization: OrganizationId, server: OrganizationLimits, own: Mapping[str, int] | None
) -> OrganizationLimits:
    """The limits of an organization: its own where it has them, otherwise the server's."""
    general = NO_LIMITS if organization == DEFAULT_ORGANIZATION else server
    return replace(general, **{name: value for name, value in (own or {}).items() if name in NAMES})


def checked_limits(given: Mapping[str, object]) -> dict[str, int]:
    """The limits of one organization as an operator gives them. Raises InvalidInput."""
    found: dict[str, int] = {}
    for name, value in given.items():
        if name not in NAMES:
            raise InvalidInput(name, f"is not a limit; use {', '.join(NAMES)}")
        if value is None:
            continue
        if type(value) is not int or not 0 <= value <= LIMIT_MAX:
            raise InvalidInput(name, "must be a whole number, 0 for no limit, or null for the limit of the server")
        found[name] = value
    return found


def check_growth(limits: OrganizationLimits, before: OrganizationUsage, after: OrganizationUsage) -> None:
    """Raises QuotaExceeded for a change that adds to what is stored beyond a limit. What makes less is always
    allowed."""
    used = (
        ("agents", before.agents, after.agents, 1),
        ("messages", before.messages, after.messages, 1),
        ("files", before.files, after.files, 1),
    )
    for name, was, now, unit in (*used, ("stored_mb", before.bytes, after.bytes, MEGABYTE)):
        limit = getattr(limits, name)
        if limit and now > was and now > limit * unit:
            raise exceeded(name, limit, was / unit if unit > 1 else was)


def check_room(limits: OrganizationLimits, used: OrganizationUsage) -> None:
    """Raises QuotaExceeded when no message may be added. A turn that has begun is always stored to its end."""
    if limits.messages and used.messages >= limits.messages:
        raise exceeded("messages", limits.messages, used.messages)
    if limits.stored_mb and used.bytes >= limits.stored_mb * MEGABYTE:
        raise exceeded("stored_mb", limits.stored_mb, used.bytes / MEGABYTE)


_WHAT = {
    "agents": "agents",
    "messages": "stored messages",
    "files": "files in folders",
    "stored_mb": "MB of stored text",
    "disk_mb": "MB of files in workspaces",
}


def exceeded(name: str, limit: int, used: float) -> QuotaExceeded:
    """The refusal, with the reason, the limit, the use and the setting."""
    shown = f"{used:.1f}" if isinstance(used, float) else str(used)
    return QuotaExceeded(
        f"The organization may have {limit} {_WHAT[name]} and has {shown}. Delete some, or ask the operator to raise "
        f"the quota '{name}' of the organization ({SETTINGS[name]}).",
        quota=name,
        limit=limit,
        used=round(used, 1),
        setting=SETTINGS[name],
    )


def as_json(limits: OrganizationLimits) -> dict[str, int]:
    return asdict(limits)
