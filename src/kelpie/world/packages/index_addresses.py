"""Addresses in the settings of installers: the hosts that they name, and the credentials that they carry. Pure."""

import re
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from kelpie.core.tools.egress_rules import EgressEntry
from kelpie.world.egress.proxy_request import PORTS

_ADDRESS = re.compile(r"https?://[^\s'\"\\,;<>]+", re.IGNORECASE)


def named_hosts(text: str) -> Iterator[EgressEntry]:
    """The hosts, each at its port, of all addresses in a text."""
    for address in _ADDRESS.finditer(text):
        try:
            parts = urlsplit(address[0])
            if parts.hostname:
                yield EgressEntry(parts.hostname.rstrip("."), parts.port or PORTS[parts.scheme])
        except ValueError:
            continue  # it is no address, and nothing can be fetched from it


def passwords(text: str) -> Iterator[str]:
    """The passwords in all addresses of a text, as they stand there and decoded."""
    for address in _ADDRESS.finditer(text):
        try:
            parts = urlsplit(address[0])
        except ValueError:
            continue  # as above
        if parts.password or parts.username:
            secret = parts.password or parts.username or ""
            yield from (secret, unquote(secret))
