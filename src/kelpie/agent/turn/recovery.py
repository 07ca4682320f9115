"""What an earlier life of an agent left behind: turns that the server died in, and runs that wait to be taken up.

A turn that must not go on is closed, with a result for every call it had open; any other is kept for its lane and goes
on from its last committed step. Nothing here may keep the agent from later turns: what cannot go on is closed and told.
"""

import asyncio
from dataclasses import replace

from kelpie.agent.events import event_recorder
from kelpie.agent.events.cancellation import Cancelled
from kelpie.agent.events.event_buffer import TurnStream
from kelpie.agent.events.event_recorder import StoredTurnStream
from kelpie.agent.events.turn_sink import TurnSink
from kelpie.agent.journal import run_endings
from kelpie.agent.journal.message_rows import tool_row
from kelpie.agent.live.live_agent import LiveAgent
from kelpie.agent.live.reload import enter
from kelpie.agent.prompt.synthetic_results import interrupted
from kelpie.agent.turn import approval_answers
from kelpie.agent.turn.approval_answers import Replay, TurnStart
from kelpie.agent.turn.dependencies import TurnDependencies
from kelpie.agent.turn.loop import open_turn
from kelpie.agent.turn.recovery_point import RecoveryPoint, read_standing
from kelpie.core.conversations.runs import UNFINISHED, RunStatus, StopReason
from kelpie.core.errors import CallerError, CommitUnknown, NotFound, RunOver, StorageError
from kelpie.core.ids import MessageId, RunId
from kelpie.observe import logs
from kelpie.storage.agents import ownership_fence
from kelpie.storage.runs import runs, unfinished
from kelpie.storage.runs.unfinished import Unfinished
from kelpie.world.database import Tx

_log = logs.get("agent")
CUT_SHORT = {
    "type": "interrupted",
    "message": "The server stopped before the first step of this turn. Nothing was saved. Send the message again.",
}
CUT_OFF = "The turn was interrupted. What it had done until then was kept; read the messages before you send it again."
NOT_WAITING = {"type": "interrupted", "message": "The tool calls that this turn answers are no longer waiting."}
STOPPED = {"type": "stopped", "message": "The server stopped during this turn, and the agent has been stopped since."}
DELETED = {"type": "deleted", "message": "The conversation was deleted before this turn could continue."}
GAVE_UP = {"type": "gave_up", "message": "The turn was resumed too many times without completing."}
TAKEN_UP_MAX = 20
TOLD_FAILED = {"type": "storage", "message": "The turn could not be saved. The client received an error."}


class UnfinishedTurns:
    """The unfinished turns of one agent, by their conversations."""

    def __init__(self, equipment: TurnDependencies, hot: LiveAgent) -> None:
        self._equipment = equipment
        self._hot = hot
        self._waiting: dict[str, list[Unfinished]] = {}

    @property
    def lanes(self) -> list[str]:
        """The conversations with turns that are still to go on."""
        return [conversation for conversation, waiting in self._waiting.items() if waiting]

    async def settle(self, left: Unfinished) -> None:
        """Closes a turn that must not go on, or keeps it for its lane. Raises StorageError."""
        run = left.run
        if self._hot.agent.stopped:
            await self._close(left, STOPPED)
        elif run.status is RunStatus.created:
            return  # its lane is asked to take it up
        elif left.taken_up >= TAKEN_UP_MAX:
            await self._close(left, GAVE_UP)
        elif left.node == self._hot.claim.node and not run.background:
            await self._close(left, TOLD_FAILED)
        elif run.step_count == 0 and not run.background and not await self._has_begun(left):
            await self._close(left, CUT_SHORT)
        else:
            self._waiting.setdefault(run.conversation_id or "", []).append(left)

    async def take_up(self, conversation: str, run_id: RunId) -> None:
        """Works on a background run until it has ended, unless it has by now. Raises StorageError."""
        await self.recover(conversation)
        found = await self._equipment.world.database.read(lambda tx: unfinished.find_unfinished(tx, run_id))
        if found is not None:
            self._waiting.setdefault(conversation, []).append(found)
            await self.recover(conversation)

    async def recover(self, conversation: str) -> None:
        """Finishes the turns of this conversation that a crash cut short. Raises StorageError."""
        while waiting := self._waiting.get(conversation):
            await self._finish(waiting[0])
            waiting.pop(0)

    async def _finish(self, left: Unfinished) -> None:
        try:
            await self._go_on_with(left)
        except StorageError:
            raise
        except (Cancelled, RunOver):
            _log.info("interrupted_turn_cancelled", "Interrupted turn had been cancelled", run_id=left.run.id)
        except NotFound:
            await self._close(left, DELETED)
        except CallerError as error:
            await self._close(left, {"type": "refused", "message": str(error)})
        except Exception as error:  # noqa: BLE001 - logged and told: it must not keep the agent from later turns
            _log.exception(
                "interrupted_turn_crashed",
                "Interrupted turn could not be resumed; closing it",
                run_id=left.run.id,
                agent_id=left.run.agent_id,
            )
            still = await self._still_open(left)
            if still is not None:
                await self._close(still, {"type": "internal_error", "message": f"{type(error).__name__}: {error}"})

    async def _close(self, left: Unfinished, why: dict[str, str], reason: StopReason = StopReason.error) -> None:
        world, hot = self._equipment.world, self._hot
        standing, at = await self._stand(left), world.clock.now()
        told = {"error": why} if reason is StopReason.error else {"note": why}
        run = replace(left.run, metadata={**left.run.metadata, **told})
        run = run_endings.ended(run, reason, at)
        orphans = ()
        if standing.left is not None:
            reply, calls = standing.left
            results = tuple(interrupted(call) for call in calls)
            orphans = (tool_row(run, world.ids.new(MessageId), reply.step_id, results, at),)
        try:
            await run_endings.close_turn(world.database, standing.position, run, orphans, None, hot.main.loaded)
        except RunOver:  # somebody else has ended it in the meantime, which is all that was wanted
            return
        finally:
            hot.forget_contexts()
        self._equipment.broadcast.news(run.id)
        _log.warning(
            "interrupted_turn_closed", "Interrupted turn closed", run_id=run.id, agent_id=run.agent_id, why=why["type"]
        )

    async def _still_open(self, left: Unfinished) -> Unfinished | None:
        """The turn as it stands now, or None when it has ended after all."""
        run = await self._equipment.world.database.read(lambda tx: runs.get(tx, left.run.id))
        return replace(left, run=run) if run.status in UNFINISHED else None

    async def _go_on_with(self, left: Unfinished) -> None:
        if not left.run.background:
            await self._play_listed(left, TurnStream(left.run.id))
            return
        recorder = await self._recorder(left)
        try:
            await self._play_listed(left, recorder)
        except asyncio.CancelledError:
            self._equipment.broadcast.trouble(recorder.run_id, CommitUnknown(CUT_OFF))
            raise
        except StorageError as error:
            self._equipment.broadcast.trouble(recorder.run_id, error)
            raise
        finally:
            recorder.close()

    async def _play_listed(self, left: Unfinished, turn: TurnSink) -> None:
        """Plays a turn that can be told to end."""
        with self._equipment.underway.working(left.run.agent_id, left.run.conversation_id or "", turn):
            turn.cancellation.begin()
            await self._play(left, turn)

    async def _play(self, left: Unfinished, turn: TurnSink) -> None:
        """Plays a turn from where it stands to its end."""
        run, given, standing = left.run, left.given, await self._stand(left)
        position = standing.position
        lane = await enter(self._equipment.world.database, self._hot, position.conversation)
        start = TurnStart(given, None, standing.said)
        if run.status is not RunStatus.created:
            lane.reread()  # healed for the open calls, which get results of their own now; or no longer with the turn
            if given.request is not None and not position.rests_on_history:
                waited = await approval_answers.waiting(self._equipment.world.database, lane)
                if waited is None or waited.request != given.request:
                    await self._close(left, NOT_WAITING)
                    return
                start = TurnStart(given, waited, standing.said)
        else:
            begun = await approval_answers.begin(self._equipment.world.database, lane, given)
            if isinstance(begun, Replay):
                message = f"The same answers were sent before. See {begun.run.id} for the result."
                await self._close(left, {"type": "replay", "message": message}, begun.stop_reason)
                return
            start = begun
        opened = open_turn(self._equipment, self._hot, lane, position, start, turn)
        with (
            self._hot.using(lane),
            lane.overridden(start.input.override),
            logs.bind(run_id=run.id, agent_id=run.agent_id),
        ):
            if run.status is RunStatus.created:
                await opened.begin_queued()
                return
            _log.info("interrupted_turn_resumed", "Interrupted turn resumed", step_count=run.step_count)
            await opened.resume(standing.left)

    async def _recorder(self, left: Unfinished) -> StoredTurnStream:
        """The listener of a background run. What an earlier life has shown and never committed is called off first."""
        world, claim, run = self._equipment.world, self._hot.claim, left.run
        if run.status is not RunStatus.created:
            at = world.clock.now()

            def write(tx: Tx) -> None:
                ownership_fence.advance(tx, claim)
                if runs.take_up(tx, run.id, claim.node):
                    event_recorder.call_off(tx, run.id, left.taken_up, at)

            await world.database.transact(write)
        return StoredTurnStream(world, claim, run.id, left.taken_up + 1, self._equipment.broadcast)

    async def _has_begun(self, left: Unfinished) -> bool:
        """Whether a turn without a step has taken up answers all the same, and with them what it will go on from."""
        return left.given.request is not None and (await self._stand(left)).position.rests_on_history

    async def _stand(self, left: Unfinished) -> RecoveryPoint:
        return await read_standing(self._equipment.world.database, self._hot.claim, left)
