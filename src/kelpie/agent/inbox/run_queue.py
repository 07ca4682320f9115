"""Background runs on their way to their lanes. A run is stored before it comes here, so nothing is lost with this list.

Whatever keeps a run from its lane now (a full mailbox, a server that stops, an agent that cannot be loaded), it stays
stored as waiting, and recovery brings it here again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from kelpie.actors.dispatcher import Dispatcher
from kelpie.actors.reply import Reply
from kelpie.agent.events.event_buffer import TurnStream
from kelpie.core.errors import AgentStopped, KelpieError, NotFound
from kelpie.core.ids import AgentId, RunId
from kelpie.observe import logs
from kelpie.storage.runs.unfinished import StoredRun

if TYPE_CHECKING:
    from kelpie.agent.turn.activation import Activation

_log = logs.get("agent")


def _busy_with(tokens: Iterable[object]) -> RunId | None:
    """The run of the first turn with a listener that has not ended; the others are known to the database."""
    for token in tokens:
        if isinstance(token, TurnStream) and not token.has_ended:
            return token.run_id
    return None


class RunQueue:
    """Queue of the background runs that wait or are worked on in this process. `run_ended` is called after each."""

    def __init__(self, dispatcher: Dispatcher[Activation], run_ended: Callable[[], None]) -> None:
        self._dispatcher = dispatcher
        self._run_ended = run_ended
        self._recover: Callable[[], None] | None = None
        self._held: set[RunId] = set()

    def when_stopped(self, recover: Callable[[], None]) -> None:
        """Calls `recover` for a run whose agent is stopped: loading the agent once more closes what waits."""
        self._recover = recover

    def submit(self, waiting: StoredRun) -> None:
        """Hands a stored run to its lane, unless it is there already."""
        run_id, lane = waiting.run_id, waiting.conversation_id or ""
        if run_id in self._held:
            return
        try:
            reply = self._dispatcher.submit(
                waiting.agent_id, lane, lambda live: live.stored_runs.play(lane, run_id), run_id
            )
        except KelpieError as error:
            _log.info("run_deferred", "Background run deferred", run_id=run_id, why=str(error))
            return
        self._held.add(run_id)
        reply.add_done_callback(partial(self._done, run_id))

    def keeper(self, agent_id: AgentId, lane: str) -> RunId | None:
        """The run that occupies the lane of a conversation or waits in it."""
        return _busy_with(self._dispatcher.kept_by(agent_id, lane))

    def _done(self, run_id: RunId, reply: Reply[None]) -> None:
        self._held.discard(run_id)
        self._run_ended()
        if reply.cancelled():
            return
        error = reply.exception()
        if isinstance(error, AgentStopped) and self._recover is not None:
            self._recover()
        elif error is not None and not isinstance(error, NotFound):
            _log.warning(
                "run_attempt_failed", "Background run failed; recovery tries it again", run_id=run_id, error=str(error)
            )
