"""Failed logins per address: after a few, further guesses from there have to wait.

An IPv6 customer has a whole network of addresses, so its first half counts. The table is bounded: the address that has
been quiet for the longest is dropped first.
"""

import ipaddress
from collections import OrderedDict

FAILURES_MAX = 10  # at once; then one every so often
REFILL_S = 6.0  # for one more guess
ADDRESSES_MAX = 10_000
_NETWORK_BITS = 64


class LoginFailures:
    """Remaining guesses of each address. Times are seconds of any clock that does not jump."""

    def __init__(self, failures_max: int = FAILURES_MAX, refill_s: float = REFILL_S) -> None:
        self._max = failures_max
        self._refill_s = refill_s
        # Address -> time at which it has all its guesses again.
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def wait_s(self, address: str, now_s: float) -> float:
        """Seconds until the address may guess again; 0 if it need not wait."""
        owed_s = self._full_at.get(_bucket(address), 0.0) - now_s
        return max(0.0, owed_s - (self._max - 1) * self._refill_s)

    def note(self, address: str, now_s: float) -> None:
        """Counts one more failure."""
        bucket = _bucket(address)
        self._full_at[bucket] = max(now_s, self._full_at.get(bucket, 0.0)) + self._refill_s
        self._full_at.move_to_end(bucket)
        if len(self._full_at) > ADDRESSES_MAX:
            self._full_at.popitem(last=False)


def _bucket(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped:
            return str(found.ipv4_mapped)
        return str(ipaddress.IPv6Network((found, _NETWORK_BITS), strict=False))
    return str(found)
