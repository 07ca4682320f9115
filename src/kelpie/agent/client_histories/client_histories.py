"""Client histories API: from the messages that a client sends, again and again, to what is new and where it belongs.

The rule: the messages after the last one of the assistant are new. What comes before is looked up by its fingerprint.
If it is known and nothing followed it, the conversation goes on. If something did, as when a client regenerates an
answer or changes an earlier message, a copy of the conversation up to there goes on instead. What is not known becomes
input of a new conversation. So no conversation ever holds what its client does not show, and none is answered twice.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from kelpie.agent.client_histories import lookup
from kelpie.agent.client_histories.lookup import AnsweredTurn, KnownHistory
from kelpie.agent.resources.conversations.conversations import Conversations
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.conversations.client_histories import ClientMessage, ClientTurn, chain, scope
from kelpie.core.conversations.conversations import NewConversation
from kelpie.core.conversations.messages import Message, NewMessage, Part, Role, Text, ToolReturn
from kelpie.core.conversations.runs import Run
from kelpie.core.errors import AgentStopped, InvalidInput, NotFound, PendingApproval
from kelpie.core.ids import AgentId, ConversationId
from kelpie.storage.agents import agents
from kelpie.storage.conversations import approvals, client_turns, conversations, messages
from kelpie.storage.runs import unfinished
from kelpie.storage.runs.input import RunInput
from kelpie.world.database import Tx
from kelpie.world.world import World

TITLE_CHARS = 80
PIECE_CHARS = 256 * 1024  # of a history that are hashed in one go
ANCHOR = -1  # `known` of a row that names the lasting conversation of a user


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request with its history. `user` keeps the histories of a client's users apart.

    `after` is the turn that it follows, instead of a history; `conversation` is the one that it names, where an empty
    text stands for the agent's default one; `own` asks for the lasting conversation of the user.
    """

    messages: tuple[ClientMessage, ...]
    user: str = ""
    sender_id: str | None = None
    retried: bool = False  # whether the client says that it has sent this before
    idempotency_key: str | None = None
    after: str | None = None
    conversation: str | None = None
    own: bool = False
    stored: Mapping[str, Any] | None = None  # what the client may read again


@dataclass(frozen=True, slots=True)
class PlacedTurn:
    """Where a request belongs: its turn, and what of it is new there."""

    turn: ClientTurn
    messages: tuple[NewMessage, ...]
    answers: tuple[ToolReturn, ...]
    partial: bool = False  # whether other calls wait for a person meanwhile
    made: bool = False  # whether its conversation was made for it, and goes with it
    follows: str | None = None  # the turn before it, which only one may follow


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A turn that its client may read again: what was asked, and the run with its messages once it has begun."""

    turn: ClientTurn
    request: Mapping[str, Any]
    run: Run | None = None
    given: RunInput | None = None
    rows: tuple[Message, ...] = ()


class ClientHistories:
    """Client histories of the caller's organization."""

    def __init__(self, world: World, conversations: Conversations, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._conversations = conversations
        self._organization = caller.organization_id
        self._user = caller.user_id or ""

    async def place(self, agent_id: AgentId, request: ClientRequest) -> PlacedTurn:
        """Stores a turn with the conversation that it belongs to, which may be a new one.

        Raises NotFound, InvalidInput, AgentStopped, PendingApproval, StorageError.
        """
        said = request.messages
        if not said or said[-1].role == "assistant":
            raise InvalidInput("messages", "the last message must be one of the user, or the result of a tool")
        agent = await self._world.database.read(lambda tx: agents.owned(tx, self._organization, agent_id))
        if agent.stopped:
            raise AgentStopped(f"{agent_id} is stopped. Start it before sending messages.")
        start, parent = await self._start(agent_id, request)
        prints = await _fingerprints(start, said)
        new = ClientTurn(
            id=self._world.ids.uuid(),
            agent_id=agent_id,
            conversation="",
            fingerprint=prints[-1],
            known=0,
            created_at=self._world.clock.now(),
            idempotency_key=request.idempotency_key,
        )
        if (request.retried or request.idempotency_key) and (
            same := await self._world.database.transact(lambda tx: _repeated(tx, new, request))
        ):
            return _placed(same, request)
        if request.own or request.conversation is not None:
            thread = request.conversation
            new = replace(new, conversation=await self._own(new, request.user) if thread is None else thread)
            length = next(iter(lookup.boundaries(said)), 0)
            results = _results(said[length:])
            new = replace(new, known=length, call_id=results[0].call_id if results else None)
            return await self._store(new, request)
        if parent is not None:
            placed = await self._continue(new, request, [KnownHistory(0, parent)])
            if placed is None:
                raise InvalidInput(
                    "previous_response_id",
                    "the conversation has gone on, and what it was then is no longer available; send the whole history",
                )
            return placed
        placed = await self._continue(new, request, await self._known(new, said, prints))
        if placed is not None:
            return placed
        title = said[0].text.strip()[:TITLE_CHARS] or None
        opened = await self._conversations.create(agent_id, NewConversation(summary=title))
        return replace(await self._store(replace(new, conversation=opened.id), request), made=request.stored is None)

    async def withdraw(self, placed: PlacedTurn) -> None:
        """Deletes the conversation that was made for a turn in which nothing was said. Raises StorageError."""
        turn_id = placed.turn.id
        if placed.made and await self._world.database.transact(lambda tx: client_turns.withdraw(tx, turn_id)):
            with suppress(NotFound):
                await self._conversations.delete(ConversationId(placed.turn.conversation))

    async def release(self, placed: PlacedTurn) -> None:
        """Lets another turn follow the one before a turn that was refused. Raises StorageError."""
        turn_id, before = placed.turn.id, placed.follows

        def write(tx: Tx) -> None:
            found = client_turns.find(tx, self._organization, turn_id)
            told = found is not None and found[1] is not None  # its client may read it again
            if before is not None and (told or client_turns.withdraw(tx, turn_id)):
                client_turns.release(tx, before, turn_id)

        if before is not None:
            await self._world.database.transact(write)

    # --- turns that a client reads again ----------------------------------------------------------------------------

    async def find(self, turn_id: str) -> StoredTurn:
        """A turn that the client may read again. Raises NotFound."""

        def read(tx: Tx) -> StoredTurn:
            found = client_turns.find(tx, self._organization, turn_id)
            turn, request = found if found is not None else (None, None)
            if turn is None or request is None:
                raise NotFound("Response", turn_id)
            run = lookup.run_of(tx, turn)
            if run is None:
                return StoredTurn(turn, request)
            return StoredTurn(turn, request, run, unfinished.given(tx, run.id), tuple(messages.of_run(tx, run.id)))

        return await self._world.database.read(read)

    async def delete(self, turn_id: str) -> None:
        """Deletes what is stored of a turn for its client; the conversation stays. Raises NotFound."""

        def write(tx: Tx) -> None:
            found = client_turns.find(tx, self._organization, turn_id)
            if found is None or found[1] is None:
                raise NotFound("Response", turn_id)
            client_turns.forget_request(tx, turn_id)

        await self._world.database.transact(write)

    # --- where a request belongs ------------------------------------------------------------------------------------

    async def _start(self, agent_id: AgentId, request: ClientRequest) -> tuple[str, AnsweredTurn | None]:
        """The fingerprint before the request's own messages, and the turn that it names as the one before."""
        start = scope(agent_id, self._user, request.user)
        if request.after is None:
            return start, None
        try:
            turn = (await self.find(request.after)).turn
        except NotFound:
            raise InvalidInput("previous_response_id", f"there is no response resp_{request.after[:80]}") from None
        known = await self._world.database.read(lambda tx: lookup.answered(tx, turn))
        if turn.agent_id != agent_id:
            raise InvalidInput("previous_response_id", "the response is one of another agent; use the same model")
        if known is None or not known.rows:
            raise InvalidInput("previous_response_id", "the response has no answer yet; wait until it has ended")
        told = ClientMessage("assistant", (Text(known.answer.shown),), known.answer.calls)
        return chain(turn.fingerprint, (told,))[-1], known

    async def _known(self, new: ClientTurn, said: Sequence[ClientMessage], prints: Sequence[str]) -> list[KnownHistory]:
        wanted = [prints[at - 1] for at in lookup.boundaries(said)]
        if not wanted:
            return []

        def read(tx: Tx) -> list[KnownHistory]:
            return lookup.known_histories(tx, lookup.find_turns(tx, new, wanted), said, prints)

        return await self._world.database.read(read)

    async def _continue(
        self, new: ClientTurn, request: ClientRequest, found: Sequence[KnownHistory]
    ) -> PlacedTurn | None:
        """The turn after the first of these histories that it can follow; None when it can follow none."""
        for known in found:
            placed = await self._follow(new, request, known)
            if placed is not None:
                return placed
        return None

    async def _follow(self, new: ClientTurn, request: ClientRequest, known: KnownHistory) -> PlacedTurn | None:
        before = known.answered
        results = _results(request.messages[known.length :])
        if before.answer.calls and not results:
            return None  # its calls are never answered; what comes now belongs to another copy
        here = replace(new, conversation=before.turn.conversation, known=known.length)
        here = replace(here, call_id=results[0].call_id if before.answer.calls else None)
        placed = replace(_placed(here, request), partial=bool(before.answer.awaits_approval), follows=before.turn.id)

        def write(tx: Tx) -> PlacedTurn | None:
            pending = approvals.get(tx, here.agent_id, here.conversation)
            if pending is not None and not before.answer.calls and lookup.awaits_client(tx, before):
                raise PendingApproval(pending.request)
            if before.answer.calls and not lookup.awaits_client(tx, before):
                return self._answered_again(tx, new, request)
            if not lookup.is_head(tx, before) or not client_turns.continue_once(tx, before.turn.id):
                return None
            client_turns.add(tx, self._organization, here, request.stored)
            return placed

        stored = await self._world.database.transact(write)
        if stored is not None or before.answer.calls:
            return stored
        return await self._copy(here, request, before)

    def _answered_again(self, tx: Tx, new: ClientTurn, request: ClientRequest) -> PlacedTurn | None:
        """The same results once more: the turn that they were before, whose answer is given again."""
        same = next(iter(lookup.find_turns(tx, new, [new.fingerprint])), None)
        return None if same is None else _placed(same, request)

    async def _copy(self, new: ClientTurn, request: ClientRequest, before: AnsweredTurn) -> PlacedTurn | None:
        """The turn in a copy of the conversation up to the answer before it; None when that is no longer there."""
        origin = ConversationId(new.conversation) if new.conversation else new.agent_id
        try:
            made = await self._conversations.fork(origin, up_to=before.last)
        except NotFound:  # deleted, or summarized since
            return None
        return replace(await self._store(replace(new, conversation=made.id), request), made=request.stored is None)

    async def _store(self, turn: ClientTurn, request: ClientRequest) -> PlacedTurn:
        """Raises NotFound for a conversation of another agent."""

        def write(tx: Tx) -> None:
            if turn.conversation:
                thread = conversations.get(tx, self._organization, ConversationId(turn.conversation))
                if thread.agent_id != turn.agent_id:
                    raise NotFound("Conversation", turn.conversation)
            client_turns.add(tx, self._organization, turn, request.stored)

        await self._world.database.transact(write)
        return _placed(turn, request)

    async def _own(self, new: ClientTurn, user: str) -> str:
        """The lasting conversation of a user, made when it is first asked for."""
        mark = scope("own", new.agent_id, self._user, user)

        def look(tx: Tx) -> str | None:
            turns = client_turns.by_fingerprints(tx, new.agent_id, [mark], lookup.CANDIDATES_MAX)
            return next((turn.conversation for turn in turns if conversations.is_live(tx, turn.conversation)), None)

        if (found := await self._world.database.read(look)) is not None:
            return found
        made = await self._conversations.create(new.agent_id, NewConversation(summary=user[:TITLE_CHARS]))
        anchor = replace(new, id=self._world.ids.uuid(), conversation=made.id, fingerprint=mark, known=ANCHOR)

        def write(tx: Tx) -> str:
            if (there := look(tx)) is not None:
                return there
            client_turns.add(tx, self._organization, replace(anchor, idempotency_key=None), None)
            return made.id

        kept = await self._world.database.transact(write)
        if kept != made.id:  # another request was faster
            await self._conversations.delete(made.id)
        return kept


async def _fingerprints(start: str, said: Sequence[ClientMessage]) -> list[str]:
    """The fingerprints of the history after each of its messages; others get a turn between pieces of a long one."""
    found, waiting = [start], 0
    for message in said:
        found.append(chain(found[-1], (message,))[-1])
        waiting += len(message.text)
        if waiting > PIECE_CHARS:
            await asyncio.sleep(0)
            waiting = 0
    return found


def _repeated(tx: Tx, new: ClientTurn, request: ClientRequest) -> ClientTurn | None:
    """The turn that the client has sent before."""
    for turn in lookup.find_turns(tx, new, [new.fingerprint]):
        if turn.known == ANCHOR or (turn.conversation and not conversations.is_live(tx, turn.conversation)):
            continue
        if turn.idempotency_key == request.idempotency_key and not lookup.failed_halfway(tx, turn):
            client_turns.repeat(tx, turn.id)
            return turn
    return None


def _placed(turn: ClientTurn, request: ClientRequest) -> PlacedTurn:
    """The turn with the messages that are new in its conversation."""
    left = request.messages[turn.known :]
    answers = () if turn.call_id is None else _results(left)
    new = [message for one in left[len(answers) :] if (message := _new_message(one)) is not None]
    named = [
        replace(one, otid=turn.id if at == 0 else f"{turn.id}-{at}", sender_id=request.sender_id)
        for at, one in enumerate(new)
    ]
    return PlacedTurn(turn, tuple(named), answers)


def _results(said: Sequence[ClientMessage]) -> tuple[ToolReturn, ...]:
    """The results of tools at the beginning of these messages."""
    found: list[ToolReturn] = []
    for message in said:
        if message.role != "tool":
            break
        parts = message.content if any(not isinstance(part, Text) for part in message.content) else ()
        found.append(ToolReturn(message.call_id, "", True, message.text, content=parts))
    return tuple(found)


def _new_message(said: ClientMessage) -> NewMessage | None:
    """A message as input; calls and results of tools that the conversation does not know are told in words."""
    parts: tuple[Part, ...] = said.content
    if said.role == "user":
        return NewMessage(Role.user, parts)
    told = [f"[Called {call.name} with {call.arguments}]" for call in said.calls]
    if said.role == "tool":
        told = [f"[Result of the call {said.call_id}: {said.text}]"]
        parts = ()
    parts = (*parts, *(Text(text) for text in told))
    has_text = any(isinstance(part, Text) and part.text.strip() for part in parts)
    return NewMessage(Role.assistant, parts) if has_text else None
