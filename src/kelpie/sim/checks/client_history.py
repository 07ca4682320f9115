"""Observations of the clients of a run: every message, its sender and agent, and its outcome."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from kelpie.sim.checks.linearizability import UNKNOWN, Operation
from kelpie.sim.loop.loop import SimLoop


class Fate(StrEnum):
    """The outcome of a message as its sender knows it."""

    acknowledged = "acknowledged"  # the answer came, with a stop reason that is no failure
    failed = "failed"  # the server said that it failed
    unknown = "unknown"  # the connection was lost, or nothing came


@dataclass(slots=True)
class ClientMessage:
    """One message of a client to an agent, known by the token in it."""

    token: str
    agent_id: str
    called_s: float
    returned_s: float | None = None
    fate: Fate = Fate.unknown
    stop_reason: str | None = None
    answers: list[str] = field(default_factory=list[str])


class History:
    """The record of a run; scenarios write it, checks read it."""

    def __init__(self, loop: SimLoop) -> None:
        self.said: list[ClientMessage] = []
        self.operations: list[Operation] = []
        self.removed: set[str] = set()  # agents and conversations that a client has asked to delete
        self._loop = loop
        self._tokens = 0

    def token(self) -> str:
        """A word that occurs in one message only."""
        self._tokens += 1
        return f"tok-{self._tokens}-x"

    def say(self, agent_id: str, token: str) -> ClientMessage:
        """Begins a message."""
        said = ClientMessage(token, agent_id, self._loop.time())
        self.said.append(said)
        return said

    def answered(
        self, said: ClientMessage, fate: Fate, stop_reason: str | None = None, answers: tuple[str, ...] = ()
    ) -> None:
        """Ends a message that was answered in some way."""
        said.returned_s = self._loop.time()
        said.fate = fate
        said.stop_reason = stop_reason
        said.answers.extend(answers)

    def by_fate(self, fate: Fate) -> Iterator[ClientMessage]:
        return (said for said in self.said if said.fate is fate)

    def operation(self, key: str, kind: str, value: object, called_s: float, result: object = UNKNOWN) -> None:
        """Records an operation for the linearizability check; without a result its outcome is unknown."""
        returned_s = None if result is UNKNOWN else self._loop.time()
        self.operations.append(Operation(key, kind, value, result, called_s, returned_s))
