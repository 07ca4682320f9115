"""Time-outs and retries of calls to a provider.

Every wait is bounded and runs on the event loop's clock, so the simulation drives it. A call is never retried once the
caller has received anything, because it would then receive it twice.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from random import Random
from typing import TypeVar

from kelpie.core.errors import ModelError, ModelFault
from kelpie.core.time import MICROS_PER_SECOND, Micros, from_datetime
from kelpie.observe import logs

T = TypeVar("T")

RETRIED = frozenset(
    {ModelFault.rate_limit, ModelFault.timeout, ModelFault.connection, ModelFault.server, ModelFault.malformed}
)
SILENCES = "KELPIE_MODEL_FIRST_BYTE_SECONDS or KELPIE_MODEL_SILENCE_SECONDS"
_log = logs.get("llm")


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """Bounds on one call. `total_s` covers all attempts and the pauses between them.

    The waits for the first and for further bytes are long because a reasoning model may think in silence.
    """

    attempts: int = 4
    total_s: float = 600.0
    first_byte_s: float = 300.0
    idle_s: float = 300.0
    backoff_s: float = 0.5
    backoff_s_max: float = 30.0
    retry_after_s_max: float = 60.0
    connect_s: float = 15.0
    listing_s: float = 20.0  # for finding out what a provider offers
    pull_s: float = 12 * 3600.0  # for fetching a model onto a local server: it is gigabytes

    def for_listing(self, attempts: int) -> "RetryLimits":
        return replace(self, attempts=attempts, total_s=self.listing_s)

    def for_embedding(self, total_s: float) -> "RetryLimits":
        return replace(self, total_s=min(self.total_s, total_s))


class RetryPolicy:
    """The remaining time of one call. Create it when the call begins, inside the running loop."""

    __slots__ = ("_end", "_loop", "limits")

    def __init__(self, limits: RetryLimits) -> None:
        self.limits = limits
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + limits.total_s

    def left_s(self) -> float:
        return self._end - self._loop.time()

    async def wait(self, what: Awaitable[T], at_most_s: float, told: str) -> T:
        """The result of `what`. Raises ModelError (timeout) with the text `told` when it takes too long."""
        try:
            async with asyncio.timeout_at(min(self._end, self._loop.time() + at_most_s)):
                return await what
        except TimeoutError:
            over = self.left_s() <= 0
            waited = f"{self.limits.total_s:g} s in all" if over else f"{at_most_s:g} s"
            settings = "KELPIE_MODEL_TIMEOUT_SECONDS" if over else SILENCES
            raise ModelError(
                ModelFault.timeout,
                f"{told} within {waited}.",
                hint=f"Try again, or raise {settings} if the model is just slow.",
            ) from None


async def retried(
    attempt: Callable[[RetryPolicy], AsyncGenerator[T, None]],
    limits: RetryLimits,
    random: Random,
    *,
    quiet: bool = False,
) -> AsyncGenerator[T, None]:
    """Everything one attempt yields, with retries after transient failures. Raises the last ModelError.

    Each retry is logged, unless it is `quiet`: for a caller that logs the failure itself.
    """
    patience = RetryPolicy(limits)
    for number in range(1, limits.attempts + 1):
        told = False
        try:
            async with aclosing(attempt(patience)) as events:
                async for event in events:
                    told = True
                    yield event
            return
        except ModelError as error:
            if told or number == limits.attempts or error.kind not in RETRIED:
                raise
            pause_s = pause_before(number, error, limits, random)
            if pause_s >= patience.left_s():
                raise
            if not quiet:
                _log.warning(
                    "model_call_retried",
                    "Model call failed; trying again",
                    kind=error.kind.value,
                    error=error.message,
                    attempt=number,
                    pause_s=round(pause_s, 3),
                )
        await asyncio.sleep(pause_s)


def pause_before(number: int, error: ModelError, limits: RetryLimits, random: Random) -> float:
    """Seconds to wait after the failed attempt `number`: doubling with jitter, never less than the provider asked."""
    backoff_s = min(limits.backoff_s * 2 ** (number - 1), limits.backoff_s_max)
    pause_s = backoff_s * random.uniform(0.5, 1.0)
    if error.retry_after_s is None:
        return pause_s
    return max(pause_s, min(error.retry_after_s, limits.retry_after_s_max))


def retry_after_s(headers: Mapping[str, str], now: Micros) -> float | None:
    """The wait that the provider asks for in its headers; None when it gives none or it cannot be parsed."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    moment = _date(text)
    return None if moment is None else max(0.0, (from_datetime(moment) - now) / MICROS_PER_SECOND)


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else -1.0
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _date(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text)
    except ValueError:
        return None
