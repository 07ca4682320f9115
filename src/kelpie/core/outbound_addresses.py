"""Addresses that clients name and this server calls: MCP servers and model providers.

An address of this machine or of a private network is refused unless the operator allows them: a user who may name an
address could otherwise reach what only this server can.
"""

import re
from urllib.parse import urlsplit

from kelpie.core.errors import InvalidInput
from kelpie.core.public_addresses import is_address, is_public

_NUMBERS = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*\.?")  # ways to write an IPv4 address


def check_outbound(field: str, url: str, *, private: bool, setting: str) -> str:
    """The address, if it is allowed. A name is resolved, and its address checked, when it is connected to.

    `setting` is what allows private addresses. Raises InvalidInput.
    """
    host = _host(field, url).lower()
    if private:
        return url
    remedy = f"; the operator can allow it with the setting {setting}"
    if host == "localhost" or host.endswith(".localhost"):
        raise InvalidInput(field, f"Non-public IP not allowed: {host} is this machine{remedy}")
    if not is_address(host):
        if _NUMBERS.fullmatch(host):
            raise InvalidInput(field, f"'{host}' is not a plain IP address; write it as four decimal numbers")
        return url
    if not is_public(host):
        raise InvalidInput(field, f"Non-public IP not allowed: {host}{remedy}")
    return url


def _host(field: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise InvalidInput(field, "is not a URL") from None
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
        raise InvalidInput(field, "must begin with http:// or https:// and contain a host")
    if any(letter.isspace() or ord(letter) < 32 for letter in url):
        raise InvalidInput(field, "must not contain white space")
    return parts.hostname
