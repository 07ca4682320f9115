"""Versions of MCP, in two generations.

Up to 2025-11-25 a connection begins with `initialize` and may have a session. From 2026-07-28 on, each request carries
its version and the client's capabilities, and there is neither.
"""

V2024_11 = "2024-11-05"
V2025_03 = "2025-03-26"
V2025_06 = "2025-06-18"
V2025_11 = "2025-11-25"
V2026_07 = "2026-07-28"

SESSION_VERSIONS = (V2024_11, V2025_03, V2025_06, V2025_11)  # oldest first; they begin with `initialize`
STATELESS_VERSIONS = (V2026_07,)  # oldest first; each request stands alone
VERSIONS = SESSION_VERSIONS + STATELESS_VERSIONS

LATEST_SESSION = SESSION_VERSIONS[-1]
LATEST_STATELESS = STATELESS_VERSIONS[-1]
UNNAMED = V2025_03  # of an HTTP request with a session and no version header


def is_stateless(version: str | None) -> bool:
    return version in STATELESS_VERSIONS


def at_least(version: str, oldest: str) -> bool:
    """True if `version` is known and not older than `oldest`. An unknown version is older than all."""
    return version in VERSIONS and VERSIONS.index(version) >= VERSIONS.index(oldest)


def newest_common(theirs: object) -> str | None:
    """The newest stateless version among those that a peer lists."""
    if not isinstance(theirs, list | tuple):
        return None
    return next((version for version in reversed(STATELESS_VERSIONS) if version in theirs), None)


def agreed_session(wanted: object) -> str:
    """The version that a server answers `initialize` with: the client's if it is known, the latest otherwise."""
    return wanted if isinstance(wanted, str) and wanted in SESSION_VERSIONS else LATEST_SESSION
