"""The state of one key and its latest failure. No other module of the package changes either."""

import asyncio
from typing import Any

from kelpie.actors.environment import ActorEnvironment
from kelpie.actors.failure import Failure, failure_after
from kelpie.core.agents.activation_state import ActivationState, Lifecycle
from kelpie.core.agents.agent import ActivationStatus
from kelpie.core.errors import ActivationFailed
from kelpie.observe import logs

log = logs.get("actors")
_FAILING = (ActivationState.failed, ActivationState.loading, ActivationState.stopping)


class ActorState:
    __slots__ = ("_environment", "_failure", "_life", "loads_failed", "spoilt")

    def __init__(self, key: str, environment: ActorEnvironment[Any]) -> None:
        self._environment = environment
        self._life = Lifecycle(key)
        self._failure: Failure | None = None
        self.loads_failed = 0  # in a row
        self.spoilt: BaseException | None = None  # the error that broke the handler while it was still being loaded

    @property
    def key(self) -> str:
        return self._life.key

    @property
    def state(self) -> ActivationState:
        return self._life.state

    def move(self, after: ActivationState, reason: str = "") -> None:
        """Changes the state and notifies the observer, whose failure is logged and changes nothing."""
        transition = self._life.move(after, self._environment.clock.now(), reason)
        try:
            self._environment.observe(transition)
        except Exception:  # an observer must not keep the state from changing
            log.exception("state_observer_failed", "State observer failed", transition=str(transition))

    def fail(self, error: BaseException) -> None:
        """Moves to failed and schedules when the next load is due."""
        environment = self._environment
        self.spoilt = None
        self._failure = failure_after(
            self._failure,
            error,
            limits=environment.limits,
            rng=environment.rng,
            now=environment.clock.now(),
            loop_time=asyncio.get_running_loop().time(),
        )
        self.move(ActivationState.failed, self._failure.error)

    def recover(self) -> None:
        """Clears the failure: a job succeeded, or the operator requested a fresh start."""
        self._failure = self.spoilt = None
        self.loads_failed = 0

    def wait_s(self) -> float:
        """Seconds until a load is due."""
        return max(0.0, self._failure.due - asyncio.get_running_loop().time()) if self._failure else 0.0

    def error(self, what: str) -> ActivationFailed:
        """The failure as an error for the callers."""
        error = self._failure.error if self._failure else "unknown"
        wait_s = self.wait_s()
        advice = f". Try again in {wait_s:.1f} s." if wait_s else ""
        return ActivationFailed(f"{self.key} {what}: {error}{advice}", wait_s)

    def status(self) -> ActivationStatus:
        """The state, and the failure until it is cleared."""
        failure = self._failure
        if failure is None or self.state not in _FAILING:
            return ActivationStatus(self.state)
        return ActivationStatus(self.state, failure.error, failure.at, failure.attempts, failure.retry_at)
