"""Addresses of this machine's own interfaces.

A machine with a public address reaches its own services through it from within, past its firewall. Code that may only
reach the internet must not.
"""

import socket
from ipaddress import IPv4Address, IPv6Address

from kelpie.core.public_addresses import effective_address

# Documentation addresses, which no interface has.
_NOBODYS = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
_DISCARD_PORT = 9


def is_own(address: str) -> bool:
    """Checks whether a connection to this IP address would end on this machine; nothing is sent for it."""
    found: IPv4Address | IPv6Address = effective_address(address)
    family = socket.AF_INET if isinstance(found, IPv4Address) else socket.AF_INET6
    if not _can_bind(family, str(found)):
        return False
    # Where the system lets programs bind to addresses of others, only the source that it would choose tells.
    return not _can_bind(family, _NOBODYS[family]) or _source(family, str(found)) == str(found)


def _can_bind(family: socket.AddressFamily, address: str) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:  # another machine's, or of a family that this machine does not have
        return False
    return True


def _source(family: socket.AddressFamily, address: str) -> str | None:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, _DISCARD_PORT))
            return str(probe.getsockname()[0])
    except OSError:
        return None
