"""A meeting: one message to a group, and what its members say to it and to each other.

The members' turns are ordinary turns in their own lanes, each journalled by itself; the meeting only decides who is
asked what, and keeps nothing. So a crash leaves no meeting behind that anybody would have to end: the turns are taken
up or closed like any other, and what was said stays. A member that fails is told to the others, and the rest go on.
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

WORDS_MAX = 50_000  # characters of one member's turn that the others are told
ENDING = frozenset({StopReason.cancelled, StopReason.requires_approval})  # a member's turn that ends the meeting


@dataclass(frozen=True, slots=True)
class Spoke:
    """Something happened in a member's turn."""

    member: Agent
    run_id: RunId
    event: TurnEvent


@dataclass(frozen=True, slots=True)
class Failed:
    """A member could not answer; the others go on."""

    member: Agent
    error: KelpieError
    run_id: RunId | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The last event of every meeting. With an error nothing more could be said."""

    stop_reason: StopReason
    usage: Usage
    step_count: int
    error: KelpieError | None = None
    run_ids: tuple[RunId, ...] = ()  # of companions that the members' turns gave something to do


MeetingEvent = Spoke | Failed | Ended


class Listener:
    """The ear of whoever wrote to the group: bounded, and never waited for."""

    def __init__(self, group_id: GroupId) -> None:
        self.group_id = group_id
        self._events: deque[MeetingEvent] = deque()
        self._news = asyncio.Event()
        self._over = False

    def tell(self, event: MeetingEvent) -> None:
        """Adds an event; after the last one, or for a listener that lags, it is dropped."""
        if self._over:
            return
        if len(self._events) >= EVENTS_MAX:
            self._events.clear()
            slow = Conflict("The client read the stream too slowly. The turns continue; read the agents' messages.")
            event = Ended(StopReason.error, Usage(), 0, slow)
        self._events.append(event)
        self._over = isinstance(event, Ended)
        self._news.set()

    async def events(self) -> AsyncGenerator[MeetingEvent, None]:
        """The events so far and to come; ends after Ended."""
        while True:
            while self._events:
                event = self._events.popleft()
                yield event
                if isinstance(event, Ended):
                    return
            self._news.clear()
            await self._news.wait()


@dataclass(frozen=True, slots=True)
class Said:
    """What somebody contributed: the person who wrote to the group (no `speaker`), or a member."""

    speaker: AgentId | None
    messages: tuple[NewMessage, ...]


class GroupChat:
    """What the ways of leading a group have in common: who has heard what, and how a member is given the word."""

    def __init__(
        self,
        sending: MessageSender,
        group: Group,
        members: Sequence[Agent],
        leader: Agent | None,
        send: SendRequest,
        ear: Listener,
    ) -> None:
        self.group = group
        self.members = tuple(members)
        self.leader = leader
        self.usage, self.step_count = Usage(), 0
        self.run_ids: tuple[RunId, ...] = ()
        self.stopped: StopReason | None = None  # why nobody is given the word any more
        self.failure: KelpieError | None = None  # of whoever failed last
        self._sending = sending
        self._send = send
        self._ear = ear
        self._said = [Said(None, tuple(replace(m, group_id=group.id) for m in send.messages))]
        self._heard: dict[AgentId, int] = {}

    def news_for(self, member: Agent) -> tuple[NewMessage, ...]:
        """What was said since this member last spoke, its own words left out."""
        since = self._said[self._heard.get(member.id, 0) :]
        return tuple(message for said in since if said.speaker != member.id for message in said.messages)

    async def give_word(self, member: Agent, note: str | None = None, *, aside: bool = False) -> str | None:
        """One turn of a member on what is new to it; gives what it said, or None when it failed.

        The note goes before what is new. What is said aside is not told to the others.
        """
        heard, self._heard[member.id] = self.news_for(member), len(self._said)
        asked = (self._note(note),) if note is not None else ()
        words = await self._turn(member, (*asked, *heard))
        if words is None or not aside:
            told = f"[{member.name} could not answer.]" if words is None else f"[{member.name} says:]\n{words}"
            self._said.append(Said(member.id, (self._note(told, member),)))
        return words

    def _note(self, text: str, speaker: Agent | None = None) -> NewMessage:
        name, sender = (speaker.name, speaker.id) if speaker else (None, None)
        return NewMessage(Role.user, (Text(text),), name=name, sender_id=sender, group_id=self.group.id)

    async def _turn(self, member: Agent, messages: tuple[NewMessage, ...]) -> str | None:
        try:
            turn = await self._sending.send(member.id, replace(self._send, messages=messages, group_id=self.group.id))
        except KelpieError as error:
            return self._fail(Failed(member, error))
        said = list[str]()
        async with aclosing(turn.events()) as events:
            async for event in events:
                if isinstance(event, TurnEnded):
                    return self._close(member, turn.run_id, event, said)
                if isinstance(event, Lagged):
                    raise InvariantBroken(f"{turn.run_id}: a group chat fell behind the turn of its own member")
                if isinstance(event, MessageCommitted) and event.message.role is Role.assistant:
                    said.append(event.message.said)
                self._ear.tell(Spoke(member, turn.run_id, event))
        raise InvariantBroken(f"{turn.run_id}: the events of a turn ended without its end")

    def _close(self, member: Agent, run_id: RunId, event: TurnEnded, said: Sequence[str]) -> str | None:
        self.usage, self.step_count = self.usage + event.usage, self.step_count + event.step_count
        self.run_ids += event.run_ids
        if event.error is not None:
            return self._fail(Failed(member, event.error, run_id))
        if event.stop_reason in ENDING:
            self.stopped = event.stop_reason
        return "\n".join(text for text in said if text)[:WORDS_MAX]

    def _fail(self, failed: Failed) -> None:
        self.failure = failed.error
        self._ear.tell(failed)

    def close(self, reason: StopReason, error: KelpieError | None = None) -> None:
        """The meeting is over."""
        self._ear.tell(Ended(self.stopped or reason, self.usage, self.step_count, error, self.run_ids))
