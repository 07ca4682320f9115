"""Messaging tools: one agent asks others and waits for their answers.

A question goes through the other agent's mailbox like a client's message. While its sender waits it holds nothing but
its own lane, and the wait ends with the sender's turn, with the answer, or with the time allowed. A failure of
the other agent is the result of the sender's call and never ends the sender's turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from kelpie.actors.dispatcher import Dispatcher
from kelpie.agent.events.event_buffer import TurnStream, emit_failure
from kelpie.agent.events.turn_events import Lagged, MessageCommitted, TurnEnded
from kelpie.agent.inbox.wait_graph import WaitGraph
from kelpie.agent.turn.send_request import DEFAULT_LANE, SendRequest
from kelpie.core.conversations.messages import Role
from kelpie.core.errors import CallerError, KelpieError, StorageError, ToolError
from kelpie.core.ids import AgentId, RunId
from kelpie.core.settings.settings import Settings
from kelpie.core.tools.tools import Tool
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import by_tags as addressees
from kelpie.tools.calls import agent_letters
from kelpie.tools.calls.interface import CallContext, ExternalTool, Outcome
from kelpie.world.world import World

if TYPE_CHECKING:
    from kelpie.agent.turn.activation import Activation

REPLY_CHARS_MAX = 20_000  # of what one agent answers
ADDRESSEES_MAX = 100  # of one question to agents with certain tags
AT_ONCE = 10


@dataclass(slots=True)
class _Letter:
    """A question on its way. One that is withdrawn in time is never delivered."""

    turn: TurnStream
    begun: bool = False
    withdrawn: bool = False
    said: list[str] = field(default_factory=list[str])


class MessagingTools:
    """Carries questions between the agents of one organization."""

    def __init__(self, world: World, dispatcher: Dispatcher[Activation], waits: WaitGraph, settings: Settings) -> None:
        self._world = world
        self._dispatcher = dispatcher
        self._wait_s = settings.reply_s
        self._max_steps = settings.max_steps
        self._waits = waits

    def tools(self) -> Mapping[str, ExternalTool]:
        """The built-in tools that run here, by name."""
        return {
            "send_message_to_agent_and_wait_for_reply": self.ask_one,
            "send_message_to_agents_matching_tags": self.ask_tagged,
        }

    async def ask_one(self, tool: Tool, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
        """Asks one agent. Raises ToolError."""
        words, other = agent_letters.words(arguments["message"]), agent_letters.address(arguments["other_agent_id"])
        answer = await self._ask(call, other, words, _deadline(self._wait_s))
        return Outcome(orjson.dumps(answer).decode())

    async def ask_tagged(self, tool: Tool, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
        """Asks every agent that has the tags, a few at once; each answers or fails for itself. Raises ToolError."""
        words = agent_letters.words(arguments["message"])
        every, some = tuple(arguments["match_all"]), tuple(arguments["match_some"])
        if not every and not some:
            raise ToolError("Nothing was sent. Give at least one tag in 'match_all' or 'match_some'.")
        organization, sender = call.agent.organization_id, call.agent.id
        found = await self._world.database.read(
            lambda tx: addressees.tagged(tx, organization, sender, every, some, ADDRESSEES_MAX + 1)
        )
        if len(found) > ADDRESSEES_MAX:
            raise ToolError(
                f"Nothing was sent: more than {ADDRESSEES_MAX} agents have these tags. Use more specific tags."
            )
        return Outcome(orjson.dumps(await self._ask_all(call, found, words)).decode())

    async def _ask_all(self, call: CallContext, found: Sequence[AgentId], words: str) -> list[dict[str, Any]]:
        places, deadline = asyncio.Semaphore(AT_ONCE), _deadline(self._wait_s)

        async def one(other: AgentId) -> dict[str, Any]:
            async with places:
                try:
                    return await self._ask(call, other, words, deadline)
                except ToolError as error:
                    return {"agent_id": other, "error": str(error)}

        return list(await asyncio.gather(*(one(other) for other in found)))

    async def _ask(self, call: CallContext, other: AgentId, words: str, deadline: float) -> dict[str, Any]:
        """The other agent's answer. Raises ToolError."""
        agent_letters.refuse_endless(call.chain)
        agent_letters.refuse_ring(call.chain, call.agent.id, other)
        here, there = (call.agent.id, call.conversation_id or DEFAULT_LANE), (other, DEFAULT_LANE)
        with self._waits.waiting(here, there):
            send = SendRequest(
                (agent_letters.question(call.agent, words),),
                max_steps=self._max_steps,
                chain=call.chain.asked_by(call.agent.id),
            )
            letter = _Letter(TurnStream(self._world.ids.new(RunId)))
            try:
                async with asyncio.timeout_at(deadline):
                    await self._require(call, other)
                    self._hand_over(other, send, letter)
                    return await _answer(letter, other)
            except TimeoutError:
                raise ToolError(_late(letter, other, self._wait_s)) from None
            except (CallerError, StorageError) as error:
                raise ToolError(f"The message could not be sent to {other}: {error}") from error
            finally:
                letter.withdrawn = True

    async def _require(self, call: CallContext, other: AgentId) -> None:
        await self._world.database.read(lambda tx: row_ownership.agent(tx, call.agent.organization_id, other))

    def _hand_over(self, other: AgentId, send: SendRequest, letter: _Letter) -> None:
        async def deliver(activation: Activation) -> None:
            if letter.withdrawn:
                return  # its sender has stopped waiting, with the result that it would not arrive
            letter.begun = True
            await activation.turn(send, letter.turn)

        reply = self._dispatcher.submit(other, DEFAULT_LANE, deliver, letter.turn.run_id)
        reply.add_done_callback(partial(emit_failure, letter.turn))


async def _answer(letter: _Letter, other: AgentId) -> dict[str, Any]:
    """Listens until the other agent's turn is over. Raises ToolError when it failed."""
    async with aclosing(letter.turn.events()) as events:
        async for event in events:
            match event:
                case MessageCommitted():
                    if event.message.role is Role.assistant and (text := event.message.said):
                        letter.said.append(text)
                case TurnEnded():
                    if event.error is not None:
                        raise ToolError(_failed(other, event.error))
                    return _reply(letter, other, event.stop_reason)
                case Lagged():
                    raise ToolError(f"{other} sent too many messages to read. It is still working, in {event.run_id}.")
                case _:
                    pass
    raise AssertionError("unreachable: the events of a turn end with its end")


def _reply(letter: _Letter, other: AgentId, stop_reason: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"agent_id": other, "response": _bounded(letter.said)}
    if not letter.said:
        answer["note"] = f"The agent ended its turn without a reply ({stop_reason})."
    elif stop_reason == "requires_approval":
        answer["note"] = "The agent is waiting for a person to approve a tool call before it continues."
    return answer


def _bounded(said: Sequence[str]) -> list[str]:
    """The texts up to the limit, with a note if something is left out."""
    kept, left = list[str](), REPLY_CHARS_MAX
    for text in said:
        if len(text) > left:
            kept.append(f"{text[:left]} [truncated: the whole reply is longer than {REPLY_CHARS_MAX} characters]")
            break
        kept.append(text)
        left -= len(text)
    return kept


def _failed(other: AgentId, error: KelpieError) -> str:
    return f"{other} could not answer: {error}"


def _late(letter: _Letter, other: AgentId, wait_s: float) -> str:
    if not letter.begun:
        return f"{other} was busy for {wait_s:g} seconds and did not read your message. The message was withdrawn."
    return f"{other} did not answer within {wait_s:g} seconds. It is still working, in {letter.turn.run_id}."


def _deadline(wait_s: float) -> float:
    return asyncio.get_running_loop().time() + wait_s
