"""Addresses at which other machines reach a server that listens on all addresses of this machine.

`kelpie server status` imports this module, so it stays small.
"""

import fcntl
import socket
import struct
import sys

ADDRESSES_MAX = 8
# Documentation addresses: no packet is sent to them, the system only chooses the address that it would send from.
_ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
_DISCARD_PORT = 9
_SIOCGIFADDR = 0x8915  # of Linux: the IPv4 address of an interface
_NAME_BYTES_MAX = 15
_ALL = {"0.0.0.0": (socket.AF_INET,), "": (socket.AF_INET,), "::": (socket.AF_INET, socket.AF_INET6)}


def network_addresses(host: str) -> tuple[str, ...]:
    """The addresses of a server that listens on this host, except loopback ones; the usual one first."""
    if host not in _ALL:
        return (host,)
    found = [address for family in _ALL[host] if (address := _usual_address(family))]
    found += _interface_addresses() if sys.platform == "linux" else []
    return tuple(each for each in dict.fromkeys(found) if not each.startswith("127.") and each != "::1")[:ADDRESSES_MAX]


def _usual_address(family: socket.AddressFamily) -> str | None:
    """The address of this machine on the way to others; None without such a way."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((_ELSEWHERE[family], _DISCARD_PORT))
            return str(probe.getsockname()[0])
    except OSError:
        return None


def _interface_addresses() -> list[str]:
    found: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:_NAME_BYTES_MAX])
            try:
                found.append(socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24]))
            except OSError:
                continue  # an interface without an IPv4 address
    return found
