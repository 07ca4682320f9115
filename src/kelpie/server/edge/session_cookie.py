"""The session of a browser, in a cookie: its name, its text, and which pages may use it.

A browser adds a cookie to requests by itself, so a request with one must come from a page of this server: the browser
says so in Sec-Fetch-Site, or, where it sends none (plain HTTP to another machine), in Origin. SameSite=Strict keeps the
cookie from other sites; these checks also keep it from other ports and subdomains of the same site.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from kelpie.core.errors import Forbidden
from kelpie.server.edge.cross_origin import AllowedOrigins

_NAME = "kelpie-session"
_READING = ("GET", "HEAD")
COOKIE_CHARS_MAX = 8192  # of all cookies of a request


def cookie_name(host: str) -> str:
    """The name of the cookie. Browsers do not keep apart the ports of a host, so the name does."""
    _, _, port = host.rpartition(":")
    return f"{_NAME}-{port}" if port.isascii() and port.isdigit() else _NAME


def session_of(cookies: str, host: str) -> str | None:
    """The text of the session in a Cookie header."""
    wanted = cookie_name(host)
    for pair in cookies[:COOKIE_CHARS_MAX].split(";"):
        name, _, value = pair.strip().partition("=")
        if name == wanted:
            return value or None
    return None


def check_page(method: str, headers: Mapping[bytes, str], origins: AllowedOrigins) -> None:
    """Raises Forbidden unless a page of this server, or for reading the person, made this request."""
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    reading = method in _READING
    if site is not None:
        right = site == "same-origin" or (reading and site == "none")
    elif origin is not None:
        right = urlsplit(origin).netloc.lower() == headers.get(b"host", "").lower() or origins.is_configured(origin)
    else:
        right = reading
    if not right:
        raise Forbidden(
            "Only the dashboard's own pages may use its session. Programs and other pages send an API key as "
            "'Authorization: Bearer ...'."
        )
