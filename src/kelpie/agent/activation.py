"""A live agent: what it holds in memory, and the turns it runs. The dispatcher makes it and puts it away.

Loading also settles what an earlier life left behind: a turn the server died in goes on from its last committed step,
and a turn whose client was told of a failure is closed.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kelpie.agent import answers, journal, recording, resends, state
from kelpie.agent.answers import Replay
from kelpie.agent.approvals import refuse_while
from kelpie.agent.calls import interrupted
from kelpie.agent.cancellation import Cancelled
from kelpie.agent.commands import Send
from kelpie.agent.compaction import Compacted
from kelpie.agent.compaction_request import on_request
from kelpie.agent.context import load_context
from kelpie.agent.equipment import Equipment
from kelpie.agent.events import TurnEnded
from kelpie.agent.freshness import enter
from kelpie.agent.history import LeftOpen, left_open
from kelpie.agent.journal import Position
from kelpie.agent.lanes import Choose, Hot, Lane, chooser
from kelpie.agent.listener import Turn
from kelpie.agent.recording import Recorder
from kelpie.agent.repair import mend
from kelpie.agent.rows import tool_row
from kelpie.agent.turn import TurnLoop
from kelpie.core.errors import (
    AgentStopped,
    CallerError,
    CommitUnknown,
    InvariantBroken,
    KelpieError,
    NotFound,
    RunOver,
    StorageError,
)
from kelpie.core.ids import AgentId, ConversationId, MessageId, OrganizationId, RunId
from kelpie.core.messages import Message, Usage
from kelpie.core.runs import UNFINISHED, Run, RunStatus, StopReason
from kelpie.observe import logs
from kelpie.storage import agents, heads, journal_keys, messages, runs, unfinished
from kelpie.storage.heads import Claim, Node
from kelpie.storage.unfinished import Unfinished
from kelpie.world.database import Tx

_log = logs.get("agent")
CUT_SHORT = {
    "type": "interrupted",
    "message": "The server stopped before the first step of this turn; nothing of it is in the history. Send it again.",
}
CUT_OFF = "The turn was cut off. What it had done by then stays; look at the history before sending it again."
NOT_WAITING = {"type": "interrupted", "message": "The calls that this turn answers no longer wait for an answer."}
STOPPED = {"type": "stopped", "message": "The server stopped during this turn, and the agent is stopped."}
DELETED = {"type": "deleted", "message": "The conversation was deleted before this turn could go on."}
GAVE_UP = {"type": "gave_up", "message": "The turn was taken up again and again and never got to its end."}
TAKEN_UP_MAX = 20
TOLD_FAILED = {"type": "storage", "message": "The turn could not be recorded, and its sender was told so."}


class Activation:
    """One agent in memory."""

    def __init__(self, equipment: Equipment, hot: Hot, interrupted_turns: dict[str, list[Unfinished]]) -> None:
        self._equipment = equipment
        self._hot = hot
        self._interrupted = interrupted_turns

    @classmethod
    async def load(cls, equipment: Equipment, node: Node, agent_id: AgentId) -> "Activation":
        """Claims the agent and reads it. Raises NotFound, AgentStopped, StorageError."""
        database = equipment.world.database
        claim = await database.transact(lambda tx: heads.claim(tx, agent_id, node))
        choose = chooser(equipment.models, equipment.context_window)
        # A read: a long history must not hold the writer.
        hot, left = await database.read(lambda tx: _load(tx, claim, choose))
        activation = cls(equipment, hot, {})
        for found in left:
            await activation._settle(found)
        if hot.agent.stopped:
            raise AgentStopped(f"{agent_id} is stopped. Start it before sending messages.")
        return activation

    @property
    def agent_id(self) -> AgentId:
        return self._hot.agent.id

    @property
    def organization_id(self) -> OrganizationId:
        return self._hot.agent.organization_id

    def touch(self) -> None:
        """Somebody changed settings, tools or blocks: they are read again before the next model call."""
        self._hot.touch()

    def forget_context(self) -> None:
        """Somebody changed what the model sees of the history, or may have."""
        self._hot.forget_contexts()

    def check(self, send: Send) -> None:
        """Raises PendingApproval for a message that is sure to be refused, as far as that is known without waiting."""
        lane = self._hot.find(send.conversation)
        if lane and lane.context and lane.context.pending and not send.answers:
            raise refuse_while(lane.context.pending)

    async def turn(self, send: Send, turn: Turn) -> None:
        """Runs one turn and tells its listener everything. Raises StorageError, after the listener was told."""
        try:
            await self.recover(send.conversation)
            turn.cancellation.begin()
            with self._equipment.underway.working(self.agent_id, send.conversation, turn):
                await self._new_turn(send, turn)
        except Cancelled:
            turn.tell(TurnEnded(turn.run_id, StopReason.cancelled, Usage(), 0, None))
        except RunOver:
            turn.tell(await self._stored_end(turn.run_id))
        except asyncio.CancelledError:  # perhaps in the middle of a commit, which goes on without it
            turn.tell(broken_off(turn, CommitUnknown(CUT_OFF)))
            raise
        except KelpieError as error:
            turn.tell(broken_off(turn, error))
            raise
        except Exception as error:  # raised again; whoever listens must hear an end even of a bug
            _log.exception("a turn broke off", run_id=turn.run_id, agent_id=self.agent_id)
            turn.tell(broken_off(turn, InvariantBroken(f"{type(error).__name__}: {error}")))
            raise

    async def _stored_end(self, run_id: RunId) -> TurnEnded:
        """The end of a turn whose run was ended under it."""
        run = await self._equipment.world.database.read(lambda tx: runs.get(tx, run_id))
        reason = run.stop_reason or StopReason.cancelled
        return TurnEnded(run_id, reason, run.usage, run.step_count, None, detail=run.stop_detail)

    @property
    def interrupted_lanes(self) -> list[str]:
        """The conversations with turns that a crash cut short."""
        return [conversation for conversation, waiting in self._interrupted.items() if waiting]

    async def take_up(self, conversation: str, run_id: RunId) -> None:
        """Works on a background run until it has ended, unless it has by now. Raises StorageError."""
        await self.recover(conversation)
        found = await self._equipment.world.database.read(lambda tx: unfinished.find_unfinished(tx, run_id))
        if found is not None:
            self._interrupted.setdefault(conversation, []).append(found)
            await self.recover(conversation)

    async def recover(self, conversation: str) -> None:
        """Finishes the turns of this conversation that a crash cut short. Raises StorageError."""
        while waiting := self._interrupted.get(conversation):
            try:
                await self._go_on_with(waiting[0])
            except StorageError:
                raise
            except (Cancelled, RunOver):
                _log.info("a turn that was cut short had been cancelled", run_id=waiting[0].run.id)
            except NotFound:
                await self._close(waiting[0], DELETED)
            except CallerError as error:
                await self._close(waiting[0], {"type": "refused", "message": str(error)})
            except Exception as error:  # noqa: BLE001 - logged and told: it must not keep the agent from later turns
                _log.exception("a turn could not go on and is closed", run_id=waiting[0].run.id, agent_id=self.agent_id)
                unfinished = await self._still_open(waiting[0])
                if unfinished is not None:
                    await self._close(
                        unfinished, {"type": "internal_error", "message": f"{type(error).__name__}: {error}"}
                    )
            waiting.pop(0)

    async def _new_turn(self, send: Send, turn: Turn) -> None:
        world, conversation = self._equipment.world, send.conversation
        lane = await enter(world.database, self._hot, conversation)
        if lane.context is not None and lane.context.damaged:
            await self._mend(lane)
        run = Run(
            id=turn.run_id,
            agent_id=self.agent_id,
            status=RunStatus.running,
            created_at=world.clock.now(),
            conversation_id=ConversationId(conversation) if conversation else None,
            metadata=send.metadata,
            request_config=send.request_config,
        )
        again = None
        if turn.messages:  # perhaps they were answered while this waited for its lane
            again = await resends.told_before(world.database, self.agent_id, send)
        begun = again or await answers.begin(world.database, lane, send.given)
        if isinstance(begun, Replay):
            begun.tell(turn)
            return
        position = Position(self._hot.claim, run, 0, conversation)
        loop = TurnLoop(
            self._equipment,
            self._hot,
            lane,
            position,
            begun.given,
            turn,
            deltas=send.deltas,
            said=begun.said,
            waited=begun.waited,
        )
        with self._hot.using(lane), lane.wearing(begun.given.override), logs.bind(run_id=run.id, agent_id=run.agent_id):
            await loop.begin()

    async def compact(self, conversation: str, given: Mapping[str, Any] | None) -> Compacted:
        """Compacts a conversation because somebody asked for it. Raises CallerError, ModelError, StorageError."""
        world = self._equipment.world
        await self.recover(conversation)
        lane = await enter(world.database, self._hot, conversation)
        thread = ConversationId(conversation) if conversation else None
        run = Run(world.ids.new(RunId), self.agent_id, RunStatus.running, world.clock.now(), conversation_id=thread)
        with self._hot.using(lane), logs.bind(agent_id=self.agent_id):
            position = Position(self._hot.claim, run, 0, conversation)
            return await on_request(world, self._equipment.models, lane, position, given)

    async def _mend(self, lane: Lane) -> None:
        """Makes the repairs last that the prompt would need again and again. Raises StorageError."""
        claim, at = self._hot.claim, self._equipment.world.clock.now()

        def write(tx: Tx) -> list[str]:
            heads.advance(tx, claim)
            return mend(tx, claim.agent_id, lane.conversation, at)

        done = await self._equipment.world.database.transact(write)
        lane.reread()
        if done:
            _log.warning("mended a history", agent_id=claim.agent_id, conversation=lane.conversation, done=done)

    # --- what an earlier life left behind ------------------------------------------------------------------------

    async def _settle(self, unfinished: Unfinished) -> None:
        """Closes a turn that must not go on, or keeps it for its lane."""
        run = unfinished.run
        if self._hot.agent.stopped:
            await self._close(unfinished, STOPPED)
        elif run.status is RunStatus.created:
            return  # its lane is asked to take it up
        elif unfinished.taken_up >= TAKEN_UP_MAX:
            await self._close(unfinished, GAVE_UP)
        elif unfinished.node == self._hot.claim.node and not run.background:
            await self._close(unfinished, TOLD_FAILED)
        elif run.step_count == 0 and not run.background and not await self._has_begun(unfinished):
            await self._close(unfinished, CUT_SHORT)
        else:
            self._interrupted.setdefault(run.conversation_id or "", []).append(unfinished)

    async def _close(self, unfinished: Unfinished, why: dict[str, str], reason: StopReason = StopReason.error) -> None:
        world, hot = self._equipment.world, self._hot
        position, _, left = await self._stand(unfinished)
        at = world.clock.now()
        told = {"error": why} if reason is StopReason.error else {"note": why}
        run = replace(unfinished.run, metadata={**unfinished.run.metadata, **told})
        run = journal.ended(run, reason, at)
        orphans = ()
        if left is not None:
            reply, calls = left
            results = tuple(interrupted(call) for call in calls)
            orphans = (tool_row(run, world.ids.new(MessageId), reply.step_id, results, at),)
        try:
            await journal.close_turn(world.database, position, run, orphans, None, hot.main.loaded)
        except RunOver:  # somebody else has ended it in the meantime, which is all that was wanted
            return
        finally:
            self.forget_context()
        self._equipment.broadcast.news(run.id)
        _log.warning("closed a turn that had been cut short", run_id=run.id, agent_id=run.agent_id, why=why["type"])

    async def _still_open(self, unfinished: Unfinished) -> Unfinished | None:
        """The turn as it stands now, or None when it has ended after all."""
        run = await self._equipment.world.database.read(lambda tx: runs.get(tx, unfinished.run.id))
        return replace(unfinished, run=run) if run.status in UNFINISHED else None

    async def _go_on_with(self, unfinished: Unfinished) -> None:
        if not unfinished.run.background:
            await self._play_listed(unfinished, Turn(unfinished.run.id))
            return
        recorder = await self._recorder(unfinished)
        try:
            await self._play_listed(unfinished, recorder)
        except asyncio.CancelledError:
            self._equipment.broadcast.trouble(recorder.run_id, CommitUnknown(CUT_OFF))
            raise
        except StorageError as error:
            self._equipment.broadcast.trouble(recorder.run_id, error)
            raise
        finally:
            recorder.close()

    async def _play_listed(self, unfinished: Unfinished, turn: Turn | Recorder) -> None:
        """Plays a turn that can be told to end."""
        with self._equipment.underway.working(self.agent_id, unfinished.run.conversation_id or "", turn):
            turn.cancellation.begin()
            await self._play(unfinished, turn)

    async def _play(self, unfinished: Unfinished, turn: Turn | Recorder) -> None:
        """Plays a turn from where it stands to its end."""
        run, given = unfinished.run, unfinished.given
        position, said, left = await self._stand(unfinished)
        lane = await enter(self._equipment.world.database, self._hot, position.conversation)
        waited = None
        if run.status is not RunStatus.created:
            lane.reread()  # healed for the open calls, which get results of their own now; or no longer with the turn
            if given.request is not None and not position.rests_on_history:
                waited = await answers.waiting(self._equipment.world.database, lane)
                if waited is None or waited.request != given.request:
                    await self._close(unfinished, NOT_WAITING)
                    return
        else:
            begun = await answers.begin(self._equipment.world.database, lane, given)
            if isinstance(begun, Replay):
                message = f"The same answers were given before; {begun.run.id} tells what came of them."
                await self._close(unfinished, {"type": "replay", "message": message}, begun.stop_reason)
                return
            given, waited, said = begun.given, begun.waited, begun.said
        loop = TurnLoop(
            self._equipment, self._hot, lane, position, given, turn, deltas=given.deltas, said=said, waited=waited
        )
        with self._hot.using(lane), lane.wearing(given.override), logs.bind(run_id=run.id, agent_id=self.agent_id):
            if run.status is RunStatus.created:
                await loop.begin_waiting()
                return
            _log.info("going on with a turn that was cut short", step_count=run.step_count)
            if left is not None and not await loop.answer_open(*left):
                return
            if run.step_count == 0:
                await loop.begin_again()
            else:
                await loop.go_on()

    async def _recorder(self, unfinished: Unfinished) -> Recorder:
        """The listener of a background run. What an earlier life has shown and never committed is called off first."""
        world, claim, run = self._equipment.world, self._hot.claim, unfinished.run
        if run.status is not RunStatus.created:
            at = world.clock.now()

            def write(tx: Tx) -> None:
                heads.advance(tx, claim)
                if runs.take_up(tx, run.id, claim.node):
                    recording.call_off(tx, run.id, unfinished.taken_up, at)

            await world.database.transact(write)
        return Recorder(world, claim, run.id, unfinished.taken_up + 1, self._equipment.broadcast)

    async def _has_begun(self, unfinished: Unfinished) -> bool:
        """Whether a turn without a step has taken up answers all the same, and with them what it will go on from."""
        if unfinished.given.request is None:
            return False
        position, _, _ = await self._stand(unfinished)
        return position.rests_on_history

    async def _stand(self, unfinished: Unfinished) -> tuple[Position, Sequence[Message], LeftOpen | None]:
        """Where a turn stands in the journal, what the history has of it, and which calls it has left open.

        A turn that has not taken up its answers yet leaves the calls to whom they wait for.
        """
        run, given = unfinished.run, unfinished.given

        def read(tx: Tx) -> tuple[int, Sequence[Message]]:
            length = journal_keys.length(tx, run.agent_id, run.id)
            return length, messages.of_runs(tx, (*given.earlier, run.id))

        number, said = await self._equipment.world.database.read(read)
        position = Position(self._hot.claim, run, number, run.conversation_id or "")
        left = left_open(said) if given.request is None or position.rests_on_history else None
        return position, said, left


def _load(tx: Tx, claim: Claim, choose: Choose) -> tuple[Hot, list[Unfinished]]:
    agent = agents.get(tx, claim.agent_id)
    main = Lane("", state.load(tx, agent), choose, load_context(tx, agent, ""))
    return Hot(claim, main), unfinished.unfinished_of(tx, agent.id)


def broken_off(turn: Turn, error: KelpieError) -> TurnEnded:
    """The last word of a turn that could not be recorded to its end."""
    return TurnEnded(turn.run_id, StopReason.error, Usage(), 0, None, error)
