"""Record of an actor's failures, and the time of the next load: exponential backoff with jitter."""

import random
from dataclasses import dataclass

from kelpie.actors.limits import ActorLimits
from kelpie.core.errors import StorageUnavailable
from kelpie.core.time import MICROS_PER_SECOND, Micros

TEXT_CHARS_MAX = 2000


@dataclass(frozen=True, slots=True)
class Failure:
    """The latest failure. `due` is loop time and decides; `at` and `retry_at` are wall time and only shown."""

    error: str
    at: Micros
    attempts: int  # failures in a row, until a job succeeds
    retry_at: Micros
    due: float


def failure_after(
    last: Failure | None,
    error: BaseException,
    *,
    limits: ActorLimits,
    rng: random.Random,
    now: Micros,
    loop_time: float,
) -> Failure:
    """The record of a failure that followed `last`."""
    attempts = last.attempts + 1 if last else 1
    delay_s = 0.0 if is_lasting(error) else _delay_s(attempts, limits, rng)
    retry_at = now + int(delay_s * MICROS_PER_SECOND)
    return Failure(text_of(error), now, attempts, retry_at, loop_time + delay_s)


def is_lasting(error: BaseException) -> bool:
    """Checks whether to wait does not help: callers get such an error at once, and each of their calls tries again."""
    return isinstance(error, StorageUnavailable) or isinstance(error.__cause__, StorageUnavailable)


def text_of(error: BaseException) -> str:
    """The text of an error; never empty."""
    return (str(error) or type(error).__name__)[:TEXT_CHARS_MAX]


def _delay_s(attempts: int, limits: ActorLimits, rng: random.Random) -> float:
    doublings = min(attempts - 1, 30)  # far past any sensible backoff_max_s, and no overflow
    return min(limits.backoff_max_s, limits.backoff_first_s * 2**doublings) * rng.uniform(0.5, 1.0)
