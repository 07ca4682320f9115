"""The bounds of the package. Every queue, wait and retry in it ends at one of them."""

from dataclasses import dataclass

from kelpie.core.errors import ConfigurationError

BACKOFF_FIRST_S_MAX = 0.5  # the first retry of a failed activation has to come within a second


@dataclass(frozen=True, slots=True)
class ActorLimits:
    """Bounds. Raises ConfigurationError when created with a bound that would stop the package from working."""

    mailbox_size: int = 64  # jobs waiting per key, over all its lanes
    lanes_max: int = 64  # jobs running at once per key; further lanes wait in the mailbox
    hot_max: int = 2000  # keys that have a handler or are loading one
    hot_bytes_max: int = 512 * 1024 * 1024  # of all handlers together; idle ones are unloaded above it
    pending_max: int = 2000  # keys whose jobs wait for a slot or for a retry
    resting_max: int = 1000  # failed or stopped keys without work that are still remembered
    idle_s: float = 600.0
    place_wait_s: float = 30.0  # limit on a key's wait for a slot; it also ends a ring of waiting actors
    activate_s: float = 30.0
    deactivate_s: float = 10.0
    drain_s: float = 20.0  # time for running jobs to finish when their activation has to end
    cancel_s: float = 5.0  # time for a cancelled job or load to clean up
    backoff_first_s: float = 0.5
    backoff_max_s: float = 30.0
    attempts_max: int = 5  # loads that may fail in a row before the waiting jobs fail
    retry_after_s: float = 1.0  # the advice given with a refusal

    def __post_init__(self) -> None:
        for name in (
            "mailbox_size",
            "lanes_max",
            "hot_max",
            "hot_bytes_max",
            "pending_max",
            "resting_max",
            "attempts_max",
        ):
            if getattr(self, name) < 1:
                raise ConfigurationError(name, "must be at least 1")
        for name in ("idle_s", "place_wait_s", "activate_s", "deactivate_s", "cancel_s", "retry_after_s"):
            if not getattr(self, name) > 0:  # this way round, not-a-number is refused too
                raise ConfigurationError(name, "must be more than 0 seconds")
        if not self.drain_s >= 0:
            raise ConfigurationError("drain_s", "must not be negative")
        if not 0 < self.backoff_first_s <= BACKOFF_FIRST_S_MAX:
            raise ConfigurationError("backoff_first_s", f"must be more than 0 and at most {BACKOFF_FIRST_S_MAX}")
        if not self.backoff_max_s >= self.backoff_first_s:
            raise ConfigurationError("backoff_max_s", "must not be less than backoff_first_s")
