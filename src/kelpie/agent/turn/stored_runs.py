"""The stored runs of one agent: background runs that were queued for it, and turns that a crash interrupted.

There is one way to play a stored run: in the lane of its conversation, from where the journal says it stands to its
end. Nothing here may keep the agent from later turns: a run that cannot be played is closed, with a result for every
call it had open, and its followers get the reason.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kelpie.agent.events import event_recorder
from kelpie.agent.events.cancellation import Cancelled
from kelpie.agent.events.event_buffer import TurnStream
from kelpie.agent.events.event_recorder import StoredTurnStream
from kelpie.agent.events.turn_sink import TurnSink
from kelpie.agent.journal import run_endings
from kelpie.agent.journal.commits import JournalPosition
from kelpie.agent.journal.message_rows import tool_row
from kelpie.agent.live.live_agent import LiveAgent, LiveConversation
from kelpie.agent.live.reload import enter
from kelpie.agent.prompt.synthetic_results import interrupted
from kelpie.agent.prompt.wellformed_history import LeftOpen, left_open
from kelpie.agent.turn import approval_answers
from kelpie.agent.turn.approval_answers import Replay, TurnStart
from kelpie.agent.turn.dependencies import TurnDependencies
from kelpie.agent.turn.loop import open_turn
from kelpie.core.conversations.messages import Message
from kelpie.core.conversations.runs import UNFINISHED, RunStatus, StopReason
from kelpie.core.errors import CallerError, CommitUnknown, NotFound, RunOver, StorageError
from kelpie.core.ids import MessageId, RunId
from kelpie.observe import logs
from kelpie.storage.agents import ownership_fence
from kelpie.storage.conversations import messages
from kelpie.storage.runs import journal_keys, runs, unfinished
from kelpie.storage.runs.unfinished import UnfinishedRun
from kelpie.world.database import Tx

CUT_OFF = "The turn was interrupted. What it had done until then was kept; read the messages before you send it again."
NOT_WAITING = {"type": "interrupted", "message": "The tool calls that this turn answers are no longer waiting."}
DELETED = {"type": "deleted", "message": "The conversation was deleted before this turn could continue."}

_log = logs.get("agent")


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Position of a stored run, by its journal and the history."""

    position: JournalPosition
    rows: Sequence[Message]  # the rows of the turn in the history
    left: LeftOpen | None  # the calls it has left open
    over: bool  # it has ended since it was found: a client cancelled it


class StoredRuns:
    """The stored runs that an agent has still to play, by conversation; a run that storage has failed stays first."""

    def __init__(self, dependencies: TurnDependencies, live: LiveAgent) -> None:
        self._dependencies = dependencies
        self._database = dependencies.world.database
        self._live = live
        self._waiting: dict[str, list[UnfinishedRun]] = {}

    @property
    def interrupted_lanes(self) -> list[str]:
        """The conversations with turns to be resumed."""
        return [conversation for conversation, waiting in self._waiting.items() if waiting]

    def keep(self, left: UnfinishedRun) -> None:
        """Keeps a run until its lane plays it."""
        self._waiting.setdefault(left.run.conversation_id or "", []).append(left)

    async def play(self, conversation: str, run_id: RunId) -> None:
        """Plays a background run to its end, unless it has ended by now. Raises StorageError."""
        await self.resume(conversation)
        found = await self._database.read(lambda tx: unfinished.find_unfinished(tx, run_id))
        if found is not None:
            self._waiting.setdefault(conversation, []).append(found)
            await self.resume(conversation)

    async def resume(self, conversation: str) -> None:
        """Plays what a conversation has still to play, oldest first. Raises StorageError."""
        while waiting := self._waiting.get(conversation):
            await self._play_or_close(waiting[0])
            waiting.pop(0)

    async def _play_or_close(self, left: UnfinishedRun) -> None:
        try:
            await self._play(left)
        except StorageError:
            raise
        except (Cancelled, RunOver):
            _log.info("interrupted_turn_cancelled", "Interrupted turn had been cancelled", run_id=left.run.id)
        except NotFound:
            await self.close(left, DELETED)
        except CallerError as error:
            await self.close(left, {"type": "refused", "message": str(error)})
        except Exception as error:  # noqa: BLE001 - logged and stored: it must not keep the agent from later turns
            _log.exception(
                "interrupted_turn_crashed",
                "Interrupted turn could not be resumed; closing it",
                run_id=left.run.id,
                agent_id=left.run.agent_id,
            )
            run = await self._database.read(lambda tx: runs.get(tx, left.run.id))
            if run.status in UNFINISHED:
                why = {"type": "internal_error", "message": f"{type(error).__name__}: {error}"}
                await self.close(replace(left, run=run), why)

    # --- playing -------------------------------------------------------------------------------------------------

    async def _play(self, left: UnfinishedRun) -> None:
        if not left.run.background:
            await self._play_into(left, TurnStream(left.run.id))
            return
        notifier, stream = self._dependencies.broadcast, await self._stored_stream(left)
        try:
            await self._play_into(left, stream)
        except asyncio.CancelledError:
            notifier.trouble(stream.run_id, CommitUnknown(CUT_OFF))
            raise
        except StorageError as error:
            notifier.trouble(stream.run_id, error)
            raise
        finally:
            stream.close()

    async def _play_into(self, left: UnfinishedRun, sink: TurnSink) -> None:
        """Plays a run from where it stands to its end; meanwhile it can be cancelled."""
        run, live = left.run, self._live
        with self._dependencies.underway.working(run.agent_id, run.conversation_id or "", sink):
            sink.cancellation.begin()
            point = await self.point(left)
            if point.over:  # a cancel looks for this turn after it has ended the run, so one of the two sees the other
                raise RunOver(f"{run.id} has ended")
            conversation = await enter(self._database, live, point.position.conversation)
            start = await self._start(left, point, conversation)
            if start is None:
                return
            turn = open_turn(self._dependencies, live, conversation, point.position, start, sink)
            override = start.input.override
            with (
                live.using(conversation),
                conversation.overridden(override),
                logs.bind(run_id=run.id, agent_id=run.agent_id),
            ):
                if run.status is RunStatus.created:
                    await turn.begin_queued()
                else:
                    _log.info("interrupted_turn_resumed", "Interrupted turn resumed", step_count=run.step_count)
                    await turn.resume(point.left)

    async def _start(self, left: UnfinishedRun, point: ResumePoint, conversation: LiveConversation) -> TurnStart | None:
        """The start of the turn; None when it cannot start, and was closed."""
        given = left.given
        if left.run.status is RunStatus.created:
            found = await approval_answers.begin(self._database, conversation, given)
            if isinstance(found, Replay):
                message = f"The same answers were sent before. See {found.run.id} for the result."
                await self.close(left, {"type": "replay", "message": message}, found.stop_reason)
                return None
            return found
        # Its context has placeholder results for the open calls, which get real ones now, or lacks the turn.
        conversation.reread()
        if given.request is None or point.position.rests_on_history:
            return TurnStart(given, None, point.rows)
        waited = await approval_answers.waiting(self._database, conversation)
        if waited is None or waited.request != given.request:
            await self.close(left, NOT_WAITING)
            return None
        return TurnStart(given, waited, point.rows)

    async def _stored_stream(self, left: UnfinishedRun) -> StoredTurnStream:
        """The event stream of a background run. What was shown before a crash and never committed is called off."""
        world, claim, run = self._dependencies.world, self._live.claim, left.run
        if run.status is not RunStatus.created:
            at = world.clock.now()

            def write(tx: Tx) -> None:
                ownership_fence.advance(tx, claim)
                if runs.claim(tx, run.id, claim.node):
                    event_recorder.call_off(tx, run.id, left.taken_up, at)

            await self._database.transact(write)
        return StoredTurnStream(world, claim, run.id, left.taken_up + 1, self._dependencies.broadcast)

    # --- where it stands, and closing it -------------------------------------------------------------------------

    async def point(self, left: UnfinishedRun) -> ResumePoint:
        """Position of the run, under the current claim on the agent. Raises StorageError.

        Calls whose answers the turn has not committed yet keep waiting.
        """
        run, given = left.run, left.given

        def read(tx: Tx) -> tuple[int, Sequence[Message], bool]:
            length = journal_keys.length(tx, run.agent_id, run.id)
            over = unfinished.find_unfinished(tx, run.id) is None
            return length, messages.of_runs(tx, (*given.earlier, run.id)), over

        number, rows, over = await self._database.read(read)
        position = JournalPosition(self._live.claim, run, number, run.conversation_id or "")
        open_calls = left_open(rows) if given.request is None or position.rests_on_history else None
        return ResumePoint(position, rows, open_calls, over)

    async def close(self, left: UnfinishedRun, why: dict[str, str], reason: StopReason = StopReason.error) -> None:
        """Ends a run without playing it further, with a result for every call it had open. Raises StorageError."""
        world, live = self._dependencies.world, self._live
        point, at = await self.point(left), world.clock.now()
        note = {"error": why} if reason is StopReason.error else {"note": why}
        run = replace(left.run, metadata={**left.run.metadata, **note})
        run = run_endings.ended(run, reason, at)
        orphans = ()
        if point.left is not None:
            reply, calls = point.left
            results = tuple(interrupted(call) for call in calls)
            orphans = (tool_row(run, world.ids.new(MessageId), reply.step_id, results, at),)
        try:
            await run_endings.close_turn(self._database, point.position, run, orphans, None, live.main.loaded)
        except RunOver:  # ended by another request in the meantime
            return
        finally:
            live.forget_contexts()
        self._dependencies.broadcast.news(run.id)
        _log.warning(
            "interrupted_turn_closed", "Interrupted turn closed", run_id=run.id, agent_id=run.agent_id, why=why["type"]
        )
