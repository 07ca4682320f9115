"""Sending of messages: from a client to the lane of a conversation. It waits for no turn, and a message to an agent in
memory reads nothing from the database on its way."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from kelpie.actors.dispatcher import Dispatcher
from kelpie.agent.events.event_buffer import TurnStream, emit_failure
from kelpie.agent.inbox import send_preparation
from kelpie.agent.inbox.busy_check import require_free
from kelpie.agent.inbox.send_from_page import check_page
from kelpie.agent.inbox.send_from_tool import on_behalf, wait
from kelpie.agent.inbox.wait_graph import WaitGraph
from kelpie.agent.turn import duplicate_sends
from kelpie.agent.turn.active_turns import ActiveTurns
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, RunId
from kelpie.core.settings.settings import Settings
from kelpie.llm.routing.models import Models
from kelpie.storage.accounts import row_ownership
from kelpie.world.world import World

if TYPE_CHECKING:
    from kelpie.agent.turn.activation import Activation


class MessageSender:
    """Sends messages to agents of the caller's organization."""

    def __init__(
        self,
        world: World,
        models: Models,
        dispatcher: Dispatcher[Activation],
        underway: ActiveTurns,
        waits: WaitGraph,
        settings: Settings,
        caller: Caller = DEFAULT_CALLER,
    ) -> None:
        self._world = world
        self._models = models
        self._dispatcher = dispatcher
        self._underway = underway
        self._waits = waits
        self._settings = settings
        self._organization = caller.organization_id
        self._passport = caller.passport
        self._web_page = caller.web_page

    async def send(self, agent_id: AgentId, send: SendRequest) -> TurnStream:
        """Hands messages to the agent; the turn continues when the client disconnects.

        The same messages under the same ids are the turn they were before, running or over.

        Raises NotFound, Forbidden, AgentStopped, ConversationBusy, MailboxFull, Overloaded, ActivationFailed,
        StorageError, or Conflict for tool code that sends to an agent which waits for it, if that is known before the
        turn begins; a later failure is in the last event.
        """
        await self._require(agent_id)
        if self._passport is not None:
            send = on_behalf(send, agent_id, self._passport)
        if self._web_page:
            check_page(send, self._settings.max_steps)
        if not send_preparation.is_plain(send):
            shared = self._world, self._models, self._settings, self._organization
            send = await send_preparation.prepare(*shared, agent_id, send, self._passport)
        named = not send.answers and duplicate_sends.can_come_again(send)  # answers are known by their calls
        if named and (known := await self._known(agent_id, send)) is not None:
            return known
        if send.alone:
            await require_free(self._world.database, self._dispatcher, agent_id, send.conversation)
        turn = TurnStream(self._world.ids.new(RunId), send.messages if named else ())
        if live := self._dispatcher.handler(agent_id):
            live.check(send)
        reply = self._submit(agent_id, send, turn)
        work = self._underway.add(agent_id, send.conversation, turn, send)
        reply.add_done_callback(partial(emit_failure, turn))
        reply.add_done_callback(partial(self._underway.ended, work))
        if live is None:
            heard = asyncio.ensure_future(turn.opened())
            try:
                await asyncio.wait((reply, heard), return_when=asyncio.FIRST_COMPLETED)
            finally:
                heard.cancel()
            if reply.done() and not turn.has_opened:
                reply.result()
        return turn

    def _submit(self, agent_id: AgentId, send: SendRequest, turn: TurnStream) -> asyncio.Future[None]:
        lane = send.conversation
        if self._passport is None:
            return self._dispatcher.submit(agent_id, lane, lambda activation: activation.turn(send, turn), turn)
        with wait(self._waits, self._passport, agent_id, lane, self._world.clock.now()) as waits:
            reply = self._dispatcher.submit(agent_id, lane, lambda activation: activation.turn(send, turn), turn)
            reply.add_done_callback(partial(_over, waits.pop_all()))
        return reply

    async def _known(self, agent_id: AgentId, send: SendRequest) -> TurnStream | None:
        """The turn that these messages are already. Raises Overloaded, StorageError."""
        if (running := self._running(agent_id, send)) is None:
            if replay := await duplicate_sends.find_replay(self._world.database, agent_id, send):
                replay.emit(turn := TurnStream(replay.run.id))
                return turn
            running = self._running(agent_id, send)  # nothing is awaited from here to the dispatcher
        return running.join() if running else None

    def _running(self, agent_id: AgentId, send: SendRequest) -> TurnStream | None:
        return duplicate_sends.running(self._dispatcher.kept_by(agent_id, send.conversation), send)

    async def _require(self, agent_id: AgentId) -> None:
        """Raises NotFound when the agent is not the caller's. An agent in memory is asked itself, without a read."""
        live = self._dispatcher.handler(agent_id)
        if live is None:
            await self._world.database.read(lambda tx: row_ownership.agent(tx, self._organization, agent_id))
        elif live.organization_id != self._organization:
            raise NotFound("Agent", agent_id)


def _over(waits: ExitStack, _reply: asyncio.Future[None]) -> None:
    waits.close()
