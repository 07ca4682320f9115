"""Activation of an agent in memory: its state, and the turns it runs. The dispatcher loads and unloads it.

Loading also closes or keeps the turns that an earlier process left unfinished; those that may go on do so
before any new turn of their lane.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from kelpie.agent.compaction.compactor import CompactionResult
from kelpie.agent.compaction.on_request import RUN_TYPE, on_request
from kelpie.agent.definition import loaded_agent
from kelpie.agent.events.cancellation import Cancelled
from kelpie.agent.events.event_buffer import TurnStream
from kelpie.agent.events.turn_events import TurnEnded
from kelpie.agent.journal.commits import JournalPosition
from kelpie.agent.journal.history_repair import repair
from kelpie.agent.live.live_agent import Choose, LiveAgent, LiveConversation, chooser
from kelpie.agent.live.reload import enter
from kelpie.agent.prompt.context import load_context
from kelpie.agent.tool_calls.approval_matching import refuse_while
from kelpie.agent.turn import approval_answers, duplicate_sends, recovery
from kelpie.agent.turn.approval_answers import Replay
from kelpie.agent.turn.dependencies import TurnDependencies
from kelpie.agent.turn.loop import open_turn
from kelpie.agent.turn.send_request import SendRequest
from kelpie.agent.turn.stored_runs import CUT_OFF, StoredRuns
from kelpie.core.conversations.messages import Usage
from kelpie.core.conversations.runs import Run, RunStatus, StopReason
from kelpie.core.errors import AgentStopped, CommitUnknown, InvariantBroken, KelpieError, RunOver
from kelpie.core.ids import AgentId, ConversationId, OrganizationId, RunId
from kelpie.observe import logs
from kelpie.storage.agents import agents, ownership_fence
from kelpie.storage.agents.ownership_fence import Claim, Node
from kelpie.storage.runs import runs, unfinished
from kelpie.storage.runs.unfinished import UnfinishedRun
from kelpie.world.database import Tx

_log = logs.get("agent")


class Activation:
    """One agent in memory."""

    def __init__(self, dependencies: TurnDependencies, live: LiveAgent) -> None:
        self._dependencies = dependencies
        self._live = live
        self.stored_runs = StoredRuns(dependencies, live)

    @classmethod
    async def load(cls, dependencies: TurnDependencies, node: Node, agent_id: AgentId) -> "Activation":
        """Claims the agent and reads it. Raises NotFound, AgentStopped, StorageError."""
        database = dependencies.world.database
        claim = await database.transact(lambda tx: ownership_fence.claim(tx, agent_id, node))
        choose = chooser(dependencies.models, dependencies.context_window)
        # A read: a long history must not hold the writer.
        live, left = await database.read(lambda tx: _load(tx, claim, choose))
        await dependencies.models.of(live.agent.organization_id).open()
        activation = cls(dependencies, live)
        for found in left:
            await recovery.settle(activation.stored_runs, live, found)
        if live.agent.stopped:
            raise AgentStopped(f"{agent_id} is stopped. Start it before sending messages.")
        return activation

    @property
    def agent_id(self) -> AgentId:
        return self._live.agent.id

    @property
    def organization_id(self) -> OrganizationId:
        return self._live.agent.organization_id

    @property
    def bytes(self) -> int:
        """Approximate memory that it takes."""
        return self._live.bytes

    def reload(self) -> None:
        """Reads settings, tools and blocks again before the next model call."""
        self._live.touch()

    def forget_context(self) -> None:
        """Reads the history again, too, before the next model call."""
        self._live.forget_contexts()

    def invalidate_spending(self) -> None:
        """Counts again what the agent has spent before it spends more."""
        self._live.invalidate_usage()

    def end(self) -> None:
        """Ends the claim on the agent: a turn that did not stop when it was cancelled can commit nothing any more."""
        self._live.claim.ended = True

    def check(self, send: SendRequest) -> None:
        """Raises PendingApproval for a message that is sure to be refused, as far as that is known without waiting."""
        conversation = self._live.find(send.conversation)
        if conversation and conversation.context and conversation.context.pending and not send.answers:
            raise refuse_while(conversation.context.pending)

    async def turn(self, send: SendRequest, turn: TurnStream) -> None:
        """Runs one turn and emits all of its events. Raises StorageError, after the client got the error."""
        try:
            await self.stored_runs.resume(send.conversation)
            turn.cancellation.begin()
            with self._dependencies.underway.working(self.agent_id, send.conversation, turn):
                await self._new_turn(send, turn)
        except Cancelled:
            turn.emit(TurnEnded(turn.run_id, StopReason.cancelled, Usage(), 0, None))
        except RunOver:
            turn.emit(await self._stored_end(turn.run_id))
        except asyncio.CancelledError:  # perhaps in the middle of a commit, which goes on without it
            turn.break_off(CommitUnknown(CUT_OFF))
            raise
        except KelpieError as error:
            turn.break_off(error)
            raise
        except Exception as error:  # raised again; the client must get an end even after a bug
            _log.exception(
                "turn_crashed", "Turn ended by an unexpected error", run_id=turn.run_id, agent_id=self.agent_id
            )
            turn.break_off(InvariantBroken(f"{type(error).__name__}: {error}"))
            raise

    async def _stored_end(self, run_id: RunId) -> TurnEnded:
        """The end of a turn whose run was ended by another request."""
        run = await self._dependencies.world.database.read(lambda tx: runs.get(tx, run_id))
        reason = run.stop_reason or StopReason.cancelled
        return TurnEnded(run_id, reason, run.usage, run.step_count, None, detail=run.stop_detail)

    async def _new_turn(self, send: SendRequest, turn: TurnStream) -> None:
        world, conversation_id = self._dependencies.world, send.conversation
        conversation = await enter(world.database, self._live, conversation_id)
        if conversation.context is not None and conversation.context.damaged:
            await self._repair(conversation)
        run = Run(
            id=turn.run_id,
            agent_id=self.agent_id,
            status=RunStatus.running,
            created_at=world.clock.now(),
            conversation_id=ConversationId(conversation_id) if conversation_id else None,
            metadata=send.metadata,
            request_config=send.request_config,
        )
        again = None
        if turn.messages:  # perhaps they were answered while this waited for its lane
            again = await duplicate_sends.find_replay(world.database, self.agent_id, send)
            if again is None and send.once:
                await duplicate_sends.refuse_halfway(world.database, self.agent_id, send)
        start = again or await approval_answers.begin(world.database, conversation, send.given)
        if isinstance(start, Replay):
            start.emit(turn)
            return
        position = JournalPosition(self._live.claim, run, 0, conversation_id)
        opened = open_turn(self._dependencies, self._live, conversation, position, start, turn)
        with (
            self._live.using(conversation),
            conversation.overridden(start.input.override),
            logs.bind(run_id=run.id, agent_id=run.agent_id),
        ):
            await opened.begin()

    async def compact(self, conversation_id: str, given: Mapping[str, Any] | None) -> CompactionResult:
        """Compacts a conversation at a client's request. Raises CallerError, ModelError, StorageError."""
        world = self._dependencies.world
        await self.stored_runs.resume(conversation_id)
        conversation = await enter(world.database, self._live, conversation_id)
        thread = ConversationId(conversation_id) if conversation_id else None
        now, told = world.clock.now(), {"run_type": RUN_TYPE}
        run = Run(world.ids.new(RunId), self.agent_id, RunStatus.running, now, conversation_id=thread, metadata=told)
        with self._live.using(conversation), logs.bind(agent_id=self.agent_id):
            position = JournalPosition(self._live.claim, run, 0, conversation_id)
            bounds = conversation.permissions(self._dependencies.policy)
            models = self._dependencies.models.of(self.organization_id)
            return await on_request(world, models, self._live, conversation, position, bounds, given)

    async def _repair(self, conversation: LiveConversation) -> None:
        """Stores the repairs that every prompt would need again. Raises StorageError."""
        claim, at = self._live.claim, self._dependencies.world.clock.now()

        def write(tx: Tx) -> list[str]:
            ownership_fence.advance(tx, claim)
            return repair(tx, claim.agent_id, conversation.conversation, at)

        done = await self._dependencies.world.database.transact(write)
        conversation.reread()
        if done:
            _log.warning(
                "history_repaired",
                "Message history repaired",
                agent_id=claim.agent_id,
                conversation=conversation.conversation,
                done=done,
            )


def _load(tx: Tx, claim: Claim, choose: Choose) -> tuple[LiveAgent, list[UnfinishedRun]]:
    agent = agents.get(tx, claim.agent_id)
    main = LiveConversation("", loaded_agent.load(tx, agent), choose, load_context(tx, agent, ""))
    return LiveAgent(claim, main), unfinished.unfinished_of(tx, agent.id)
