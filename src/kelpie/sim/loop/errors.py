"""Errors of the simulation itself, as opposed to errors inside it.

SimError
├── Deadlock          nothing is ready and no timer is set while a task still waits
├── OutOfBounds       the run used more callbacks or more virtual time than it was given
├── TapeDiverged      a tape was replayed against code that took another way
├── NotSimulated      something of the real world was asked for: a socket, a thread, another event loop
└── Broken            an invariant does not hold; names it and says what was seen
"""


class SimError(Exception):
    """The simulation cannot go on."""


class Deadlock(SimError):
    """Nothing is ready, no timer is set, and the main task still waits."""


class OutOfBounds(SimError):
    """The run used more callbacks or more virtual time than it was given."""


class TapeDiverged(SimError):
    """The tape does not fit this run: the code or the seed is another one."""


class NotSimulated(SimError):
    """The simulation has no such thing; take it from the World."""


class Broken(SimError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, seen: str) -> None:
        super().__init__(f"{invariant}: {seen}")
        self.invariant = invariant
        self.seen = seen


class PowerCut(BaseException):
    """Unwinds the synchronous part of a simulated machine at the moment its power fails; never leaves `sim`.

    Not an Exception, so that no handler of the product can catch it.
    """
