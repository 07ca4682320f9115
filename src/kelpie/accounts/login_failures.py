"""Failed logins per address: after a few, further guesses from there have to wait.

An IPv6 customer has a whole network of addresses, so its first half counts. The table is bounded: the address that has
been quiet for the longest is dropped first.
"""

from collections import OrderedDict

from kelpie.core.access.client_addresses import network_of

FAILURES_MAX = 10  # at once; then one every so often
REFILL_S = 6.0  # for one more guess
ADDRESSES_MAX = 10_000


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
        owed_s = self._full_at.get(network_of(address), 0.0) - now_s
        return max(0.0, owed_s - (self._max - 1) * self._refill_s)

    def note(self, address: str, now_s: float) -> None:
        """Counts one more failure."""
        network = network_of(address)
        self._full_at[network] = max(now_s, self._full_at.get(network, 0.0)) + self._refill_s
        self._full_at.move_to_end(network)
        if len(self._full_at) > ADDRESSES_MAX:
            self._full_at.popitem(last=False)
