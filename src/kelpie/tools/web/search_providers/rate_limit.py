"""The rate limit of one search provider as its answers tell it; all agents share one key, so all of them wait for it.

No wait is longer than the search may take: a search that would have to wait longer fails at once and says when to try
again.
"""

import asyncio
import email.utils
import random
from collections.abc import Mapping

from kelpie.core.errors import ToolError
from kelpie.core.time import MICROS_PER_SECOND, Micros

REST_S_DEFAULT = 1.0  # after a 429 that does not say how long
REST_S_MAX = 300.0
SPREAD_S = 0.3  # so that those who waited do not all come back at the same moment


class RateLimit:
    """The time until which a provider wants no request."""

    def __init__(self, provider: str, rng: random.Random) -> None:
        self._provider = provider
        self._rng = rng
        self._until = 0.0  # on the loop's clock

    def rest(self, seconds: float) -> None:
        """No request for this long. A longer rest that was asked for before stays."""
        self._until = max(self._until, asyncio.get_running_loop().time() + min(seconds, REST_S_MAX))

    async def wait(self, deadline: float) -> None:
        """Waits until the provider wants requests again. Raises ToolError if that is after the deadline."""
        while (rest_s := self._until - asyncio.get_running_loop().time()) > 0:
            if asyncio.get_running_loop().time() + rest_s >= deadline:
                raise ToolError(
                    f"The rate limit of {self._provider} is used up. Nothing was searched. Try again in "
                    f"{max(1, round(rest_s))} s, or answer without it."
                )
            await asyncio.sleep(rest_s + self._rng.uniform(0, SPREAD_S))


def rest_seconds(headers: Mapping[str, str], now: Micros) -> float:
    """How long an answer with status 429 asks to wait: `Retry-After`, or the first window of `X-RateLimit-Reset`."""
    after = headers.get("retry-after", "").strip()
    if (found := _seconds(after)) is not None:
        return found
    if after:
        try:
            at = email.utils.parsedate_to_datetime(after)
            return min(max(at.timestamp() - now / MICROS_PER_SECOND, REST_S_DEFAULT), REST_S_MAX)
        except (TypeError, ValueError, OverflowError):
            pass  # neither a number nor a date
    reset = headers.get("x-ratelimit-reset", "").partition(",")[0].strip()
    found = _seconds(reset)
    return REST_S_DEFAULT if found is None else found


def _seconds(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return min(max(found, REST_S_DEFAULT), REST_S_MAX) if found == found else None
