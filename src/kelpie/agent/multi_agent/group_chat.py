"""Group chat: one message to a group, and the answers of its members to it and to each other.

The members' turns are ordinary turns in their own lanes, each journalled by itself; the chat only decides which member
is asked what, and stores nothing. So a crash leaves no chat behind: the turns are resumed or closed like any other, and
their messages stay. When a member fails, the others get a note and continue.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from kelpie.agent.events.event_buffer import EVENTS_MAX
from kelpie.agent.events.turn_events import Lagged, MessageCommitted, TurnEnded, TurnEvent
from kelpie.agent.inbox.send import MessageSender
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.agents.agent import Agent
from kelpie.core.agents.groups import Group
from kelpie.core.conversations.messages import NewMessage, Role, Text, Usage
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import Conflict, InvariantBroken, KelpieError
from kelpie.core.ids import AgentId, GroupId, RunId

WORDS_MAX = 50_000  # characters of one member's turn that the others get
ENDING = frozenset({StopReason.cancelled, StopReason.requires_approval})  # a member's turn that ends the chat


@dataclass(frozen=True, slots=True)
class MemberEvent:
    """An event of a member's turn."""

    member: Agent
    run_id: RunId
    event: TurnEvent


@dataclass(frozen=True, slots=True)
class MemberFailed:
    """A member could not answer; the others continue."""

    member: Agent
    error: KelpieError
    run_id: RunId | None = None


@dataclass(frozen=True, slots=True)
class ChatEnded:
    """The last event of every group chat. With an error the chat could not continue."""

    stop_reason: StopReason
    usage: Usage
    step_count: int
    error: KelpieError | None = None
    run_ids: tuple[RunId, ...] = ()  # of companions, started by the members' turns


GroupChatEvent = MemberEvent | MemberFailed | ChatEnded


class Listener:
    """Event buffer of the client that wrote to the group: bounded, and the chat never waits for it."""

    def __init__(self, group_id: GroupId) -> None:
        self.group_id = group_id
        self._events: deque[GroupChatEvent] = deque()
        self._news = asyncio.Event()
        self._over = False

    def emit(self, event: GroupChatEvent) -> None:
        """Adds an event; after the last one, or for a listener that lags, it is dropped."""
        if self._over:
            return
        if len(self._events) >= EVENTS_MAX:
            self._events.clear()
            slow = Conflict("The client read the stream too slowly. The turns continue; read the agents' messages.")
            event = ChatEnded(StopReason.error, Usage(), 0, slow)
        self._events.append(event)
        self._over = isinstance(event, ChatEnded)
        self._news.set()

    async def events(self) -> AsyncGenerator[GroupChatEvent, None]:
        """The events so far and to come; ends after ChatEnded."""
        while True:
            while self._events:
                event = self._events.popleft()
                yield event
                if isinstance(event, ChatEnded):
                    return
            self._news.clear()
            await self._news.wait()


@dataclass(frozen=True, slots=True)
class Contribution:
    """Messages of one speaker: a member, or the user who wrote to the group (no `speaker`)."""

    speaker: AgentId | None
    messages: tuple[NewMessage, ...]


class GroupChat:
    """One chat of a group: its messages, how many of them each member has seen, and the turns of its members."""

    def __init__(
        self,
        sending: MessageSender,
        group: Group,
        members: Sequence[Agent],
        leader: Agent | None,
        send: SendRequest,
        listener: Listener,
    ) -> None:
        self.group = group
        self.members = tuple(members)
        self.leader = leader
        self.usage, self.step_count = Usage(), 0
        self.run_ids: tuple[RunId, ...] = ()
        self.stopped: StopReason | None = None  # why no member gets another turn
        self.failure: KelpieError | None = None  # of the member that failed last
        self._sending = sending
        self._send = send
        self._listener = listener
        self._said = [Contribution(None, tuple(replace(m, group_id=group.id) for m in send.messages))]
        self._heard: dict[AgentId, int] = {}

    def new_messages_for(self, member: Agent) -> tuple[NewMessage, ...]:
        """Messages since this member last spoke, without its own."""
        since = self._said[self._heard.get(member.id, 0) :]
        return tuple(message for said in since if said.speaker != member.id for message in said.messages)

    async def run_turn(self, member: Agent, note: str | None = None, *, aside: bool = False) -> str | None:
        """Runs one turn of a member on the messages that are new to it; returns its answer, or None when it failed.

        The note goes before the new messages. The other members do not get an answer given `aside`.
        """
        heard, self._heard[member.id] = self.new_messages_for(member), len(self._said)
        asked = (self._note(note),) if note is not None else ()
        words = await self._turn(member, (*asked, *heard))
        if words is None or not aside:
            told = f"[{member.name} could not answer.]" if words is None else f"[{member.name} says:]\n{words}"
            self._said.append(Contribution(member.id, (self._note(told, member),)))
        return words

    def _note(self, text: str, speaker: Agent | None = None) -> NewMessage:
        name, sender = (speaker.name, speaker.id) if speaker else (None, None)
        return NewMessage(Role.user, (Text(text),), name=name, sender_id=sender, group_id=self.group.id)

    async def _turn(self, member: Agent, messages: tuple[NewMessage, ...]) -> str | None:
        try:
            turn = await self._sending.send(member.id, replace(self._send, messages=messages, group_id=self.group.id))
        except KelpieError as error:
            return self._fail(MemberFailed(member, error))
        said = list[str]()
        async with aclosing(turn.events()) as events:
            async for event in events:
                if isinstance(event, TurnEnded):
                    return self._close(member, turn.run_id, event, said)
                if isinstance(event, Lagged):
                    raise InvariantBroken(f"{turn.run_id}: a group chat fell behind the turn of its own member")
                if isinstance(event, MessageCommitted) and event.message.role is Role.assistant:
                    said.append(event.message.said)
                self._listener.emit(MemberEvent(member, turn.run_id, event))
        raise InvariantBroken(f"{turn.run_id}: the events of a turn ended without its end")

    def _close(self, member: Agent, run_id: RunId, event: TurnEnded, said: Sequence[str]) -> str | None:
        self.usage, self.step_count = self.usage + event.usage, self.step_count + event.step_count
        self.run_ids += event.run_ids
        if event.error is not None:
            return self._fail(MemberFailed(member, event.error, run_id))
        if event.stop_reason in ENDING:
            self.stopped = event.stop_reason
        return "\n".join(text for text in said if text)[:WORDS_MAX]

    def _fail(self, failed: MemberFailed) -> None:
        self.failure = failed.error
        self._listener.emit(failed)

    def close(self, reason: StopReason, error: KelpieError | None = None) -> None:
        """Emits the end of the chat."""
        self._listener.emit(ChatEnded(self.stopped or reason, self.usage, self.step_count, error, self.run_ids))
