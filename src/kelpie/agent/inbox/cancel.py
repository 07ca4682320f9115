"""Cancellation API: by agent, by run, by conversation, in whatever phase a run is.

A turn that this process runs gets a request and ends itself; a run that no turn plays is ended here, in one
transaction. Either way the database decides: a run that has ended takes no commit of its turn any more. The client is
answered when nothing later can have an effect.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kelpie.actors.dispatcher import Dispatcher
from kelpie.agent.events.event_buffer import TurnStream
from kelpie.agent.events.event_notifier import RunNotifier
from kelpie.agent.events.turn_events import MessageCommitted, TurnEnded
from kelpie.agent.journal import run_endings
from kelpie.agent.journal.message_rows import tool_row
from kelpie.agent.prompt.synthetic_results import cancelled
from kelpie.agent.prompt.wellformed_history import LeftOpen, left_open
from kelpie.agent.tool_calls.approval_withdrawal import withdraw
from kelpie.agent.turn.activation import Activation
from kelpie.agent.turn.active_turns import ActiveTurn, ActiveTurns
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.conversations.messages import Message, Usage
from kelpie.core.conversations.runs import Run, RunStatus, StopReason
from kelpie.core.errors import Conflict
from kelpie.core.ids import AgentId, ConversationId, MessageId, OrganizationId, RunId
from kelpie.core.time import Micros
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents
from kelpie.storage.agents.ownership_fence import Node
from kelpie.storage.conversations import approvals, conversations, messages
from kelpie.storage.runs import runs, tool_calls, unfinished
from kelpie.storage.runs.unfinished import UnfinishedRun
from kelpie.tools.calls.stable_ids import stable_uuid
from kelpie.world.database import Tx
from kelpie.world.world import World

WAIT_S = 30.0  # for a turn to end; only a tool that does not let go takes longer than a moment
ENDED, NOT_ENDED = "cancelled", "failed"
WITHDRAWN = "The user cancelled the request before answering it."
_NOWHERE = Node("", 0)
_ALL_ENDED = "All of its runs have ended."

Wanted = Callable[[RunId, str], bool]


@dataclass(frozen=True, slots=True)
class _Closed:
    """Runs that no turn played and that have ended now; `said` is true if the history has grown by it."""

    ids: tuple[RunId, ...]
    said: bool


class Cancellations:
    """Runs of the caller's organization."""

    def __init__(
        self,
        world: World,
        dispatcher: Dispatcher[Activation],
        underway: ActiveTurns,
        broadcast: RunNotifier,
        caller: Caller = DEFAULT_CALLER,
    ) -> None:
        self._world = world
        self._dispatcher = dispatcher
        self._underway = underway
        self._broadcast = broadcast
        self._organization = caller.organization_id

    async def of_agent(self, agent_id: AgentId, run_ids: Sequence[str] | None = None) -> dict[str, str]:
        """Ends the runs with these ids, or all of the agent's that have not ended, and reports each.

        "cancelled" means that the run is over and does nothing more, also when it was over before; "failed" that there
        is no such run, or that it could not be ended in time. Raises NotFound, StorageError, and Conflict when none are
        named and none is under way.
        """
        await self._world.database.read(lambda tx: row_ownership.agent(tx, self._organization, agent_id))
        if run_ids is None:
            if not (ended := await self._cancel(agent_id, lambda _run_id, _conversation: True)):
                raise Conflict(f"{_none_active('agent', agent_id)}. {_ALL_ENDED}")
            return ended
        wanted = list(dict.fromkeys(run_ids))
        ended = await self._cancel(agent_id, lambda run_id, _conversation: run_id in wanted)
        rest = [run_id for run_id in wanted if run_id not in ended]
        over = await self._world.database.read(lambda tx: _existing(tx, agent_id, rest))
        return {run_id: ended.get(run_id, ENDED if run_id in over else NOT_ENDED) for run_id in wanted}

    async def of_conversation(self, conversation_id: ConversationId) -> dict[str, str]:
        """Ends what is under way in a conversation. Raises NotFound, Conflict when there is nothing, StorageError."""

        def read(tx: Tx) -> AgentId:
            return conversations.get(tx, self._organization, conversation_id).agent_id

        agent_id = await self._world.database.read(read)
        return await self._of_thread(agent_id, conversation_id, _none_active("conversation", conversation_id))

    async def of_default(self, agent_id: AgentId) -> dict[str, str]:
        """The same for the conversation that every agent has."""
        await self._world.database.read(lambda tx: row_ownership.agent(tx, self._organization, agent_id))
        return await self._of_thread(agent_id, "", f"{_none_active('agent', agent_id)} in its default conversation")

    async def _of_thread(self, agent_id: AgentId, conversation: str, nothing: str) -> dict[str, str]:
        ended = await self._cancel(agent_id, lambda _run_id, its: its == conversation)
        if not ended:
            raise Conflict(f"{nothing}. {_ALL_ENDED}")
        return ended

    # --- how it is done ------------------------------------------------------------------------------------------

    async def _cancel(self, agent_id: AgentId, wanted: Wanted) -> dict[str, str]:
        told = await self._end_live(agent_id, wanted)
        held = [work for work in told if work.has_begun and not work.over.is_set()]
        unborn = [work for work in told if not work.has_begun and work.send is not None]
        closed = await self._close_rest(agent_id, wanted, unborn, {work.run_id for work in held})
        # A turn that has begun meanwhile finds its run ended, and is cancelled as well.
        told += await self._end_live(agent_id, lambda run_id, _: run_id in closed.ids)
        failed = {work.run_id for work in told if work.has_begun and not work.over.is_set()}
        every = dict.fromkeys([*(work.run_id for work in told), *closed.ids])
        return {str(run_id): NOT_ENDED if run_id in failed else ENDED for run_id in every}

    async def _end_live(self, agent_id: AgentId, wanted: Wanted) -> list[ActiveTurn]:
        """Asks turns of this process to end, and waits until those that have begun are over."""
        works = [work for work in self._underway.of(agent_id) if wanted(work.run_id, work.conversation)]
        for work in works:
            work.listener.cancellation.request()
        begun = [asyncio.ensure_future(work.over.wait()) for work in works if work.has_begun]
        if begun:
            _, late = await asyncio.wait(begun, timeout=WAIT_S)
            for waiting in late:
                waiting.cancel()
        return works

    async def _close_rest(
        self, agent_id: AgentId, wanted: Wanted, unborn: Sequence[ActiveTurn], held: set[RunId]
    ) -> _Closed:
        """Ends the runs that no turn plays. Raises StorageError."""
        at = self._world.clock.now()

        def write(tx: Tx) -> _Closed:
            row_ownership.agent(tx, self._organization, agent_id)
            for work in unborn:
                _open(tx, work, self._organization, at)
            left = [
                found
                for found in unfinished.unfinished_of(tx, agent_id)
                if found.run.id not in held and wanted(found.run.id, found.run.conversation_id or "")
            ]
            said = [_close(tx, found, at) for found in left]
            waiting = [p for p in approvals.of_agent(tx, agent_id) if wanted(p.runs[-1], p.conversation)]
            said += [withdraw(tx, pending, WITHDRAWN, at) for pending in waiting]
            return _Closed((*(found.run.id for found in left), *(p.runs[-1] for p in waiting)), any(said))

        closed = await self._world.database.transact(write)
        if closed.said:
            self._dispatcher.notify(agent_id, Activation.forget_context)
        for run_id in closed.ids:
            self._broadcast.news(run_id)
        for work in unborn:
            if isinstance(work.listener, TurnStream):
                work.listener.emit(TurnEnded(work.run_id, StopReason.cancelled, Usage(), 0, None))
        return closed


def _none_active(kind: str, key: str) -> str:
    """Error text that clients match when there is nothing to cancel."""
    return f"No active runs to cancel for {kind} {key}"


def _open(tx: Tx, work: ActiveTurn, organization: OrganizationId, at: Micros) -> None:
    """Records a run that was accepted and has not begun, so that it can be ended like the others."""
    send = work.send
    assert send is not None
    run = Run(
        id=work.run_id,
        agent_id=work.agent_id,
        status=RunStatus.created,
        created_at=at,
        conversation_id=ConversationId(work.conversation) if work.conversation else None,
        metadata=send.metadata,
        request_config=send.request_config,
    )
    if not runs.get_many(tx, [run.id]):
        runs.open_run(tx, run, organization, send.given, _NOWHERE)


def _close(tx: Tx, left: UnfinishedRun, at: Micros) -> bool:
    """Ends one run and answers what it left open; True when the history has changed by it."""
    run, conversation = run_endings.ended(left.run, StopReason.cancelled, at), left.run.conversation_id or ""
    if left.run.status is RunStatus.created:  # it never came to its lane, where another turn may be at work
        run_endings.finish_waiting(tx, run)
        return False
    orphans: list[Message] = []
    if (opened := _open_calls(tx, left)) is not None:
        reply, calls = opened
        row_id = MessageId(f"{MessageId.prefix}-{stable_uuid(run.id, reply.id, ENDED)}")
        orphans.append(tool_row(run, row_id, reply.step_id, tuple(cancelled(call) for call in calls), at))
        messages.append(tx, orphans, conversation)
    agent = agents.get(tx, run.agent_id)
    tool_calls.add(tx, run_endings.orphan_records(agent.organization_id, run, orphans, at))
    told = [MessageCommitted(row) for row in orphans]
    cleared = run_endings.finish(tx, run, agent, conversation, events=told)
    return cleared or bool(orphans)


def _open_calls(tx: Tx, left: UnfinishedRun) -> LeftOpen | None:
    """Calls that a run was about to answer. Calls whose answers it has not committed yet keep waiting."""
    run_id, given = left.run.id, left.given
    if given.request is not None and not messages.has_run(tx, run_id):
        return None
    return left_open(messages.of_runs(tx, (*given.earlier, run_id)))


def _existing(tx: Tx, agent_id: AgentId, ids: Sequence[str]) -> set[str]:
    """Those of the ids that are runs of the agent."""
    return {run.id for run in runs.get_many(tx, ids) if run.agent_id == agent_id}
