"""IP addresses of the internet, apart from those of this machine, private networks, links and special purposes.

The networks follow IANA's special-purpose registries and do not depend on the version of Python, whose own list may be
older. Whether an address belongs to an interface of this machine is not known here; see
`world.own_addresses`.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

# Beyond those that Python knows: protocol assignments (with the metadata service of one cloud), the former 6to4 relays,
# and the metadata address of another cloud.
_SPECIAL_V4 = tuple(map(IPv4Network, ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32")))
# All that IANA has assigned for use on the internet; so site-local addresses, segment routing and the rest are not.
_ASSIGNED_V6 = IPv6Network("2000::/3")
# Protocol assignments with Teredo, and two networks for documentation.
_SPECIAL_V6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))
_NAT64 = IPv6Network("64:ff9b::/96")


def is_address(host: str) -> bool:
    """Checks whether a host is an IP address and not a name."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def is_public(address: str) -> bool:
    """Checks whether an IP address belongs to the internet, and not to this machine, a private network or the link.

    An IPv6 address that only carries an IPv4 one counts as that IPv4 address.
    """
    found = effective_address(address)
    if isinstance(found, IPv6Address):
        special = found not in _ASSIGNED_V6 or any(found in network for network in _SPECIAL_V6)
    else:
        special = any(found in network for network in _SPECIAL_V4)
    return not special and found.is_global and not found.is_multicast and not found.is_reserved


def effective_address(address: str) -> IPv4Address | IPv6Address:
    """The address that is reached: the IPv4 one that an IPv6 address carries, or the address itself, without a zone."""
    found = ip_address(address.partition("%")[0])
    return (_carried(found) or found) if isinstance(found, IPv6Address) else found


def _carried(address: IPv6Address) -> IPv4Address | None:
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
