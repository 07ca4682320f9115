"""Active turns of this process, accepted or resumed and not finished: they can be cancelled and waited for.

It knows nothing that is not also in the database or lost with the process, and nothing is ever done because of it.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from kelpie.agent.events.cancellation import Cancellation
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.ids import AgentId, RunId


class Listener(Protocol):
    """Receiver of a turn's events."""

    run_id: RunId
    cancellation: Cancellation


class ActiveTurn:
    """One turn. `send` is there while its run may not be stored yet; `over` is set when nothing more comes of it."""

    __slots__ = ("agent_id", "conversation", "listener", "over", "send")

    def __init__(self, agent_id: AgentId, conversation: str, listener: Listener, send: SendRequest | None) -> None:
        self.agent_id = agent_id
        self.conversation = conversation
        self.listener = listener
        self.send = send
        self.over = asyncio.Event()

    @property
    def run_id(self) -> RunId:
        return self.listener.run_id

    @property
    def has_begun(self) -> bool:
        return self.listener.cancellation.has_begun


class ActiveTurns:
    """The active turns by agent, oldest first."""

    def __init__(self) -> None:
        self._works: dict[AgentId, dict[RunId, ActiveTurn]] = {}

    def add(
        self, agent_id: AgentId, conversation: str, listener: Listener, send: SendRequest | None = None
    ) -> ActiveTurn:
        work = ActiveTurn(agent_id, conversation, listener, send)
        self._works.setdefault(agent_id, {})[work.run_id] = work
        return work

    def remove(self, work: ActiveTurn) -> None:
        """Removes a turn that is over, and wakes those who wait for its end."""
        work.over.set()
        works = self._works.get(work.agent_id, {})
        if works.get(work.run_id) is work:
            del works[work.run_id]
            if not works:
                del self._works[work.agent_id]

    def ended(self, work: ActiveTurn, _job: asyncio.Future[None]) -> None:
        """The job of an accepted turn is done, whether or not the turn ever began."""
        self.remove(work)

    @contextmanager
    def working(self, agent_id: AgentId, conversation: str, listener: Listener) -> Generator[None]:
        """Around a turn that has begun; from now on it stands here in the place of what was accepted."""
        work = self.add(agent_id, conversation, listener)
        try:
            yield
        finally:
            self.remove(work)

    def leave(self, agent_id: AgentId, conversation: str) -> None:
        """Cancels the turns of a deleted conversation that have begun. Does not wait for their end."""
        for work in self.of(agent_id):
            if work.conversation == conversation and work.has_begun:
                work.listener.cancellation.request(spare_tools=True)

    def has_any(self) -> bool:
        """True if a turn of any agent runs or waits."""
        return bool(self._works)

    def of(self, agent_id: AgentId) -> list[ActiveTurn]:
        return list(self._works.get(agent_id, {}).values())
