"""Turns of OpenAI's clients: from a request with its history to a turn of an agent in one of its conversations."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

from kelpie.agent.client_histories.client_histories import PlacedTurn
from kelpie.agent.events.event_buffer import TurnStream
from kelpie.agent.events.turn_events import Lagged, MessageCommitted, TurnEnded, TurnEvent
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.agents.turn_overrides import TurnOverrides
from kelpie.core.conversations.approvals import ClientTool
from kelpie.core.conversations.client_histories import ClientAnswer, answer_of
from kelpie.core.conversations.messages import Message, Usage
from kelpie.core.conversations.runs import Run, StopReason
from kelpie.core.errors import InvariantBroken, KelpieError, StorageError
from kelpie.core.ids import ConversationId
from kelpie.server.http.errors import PartialFailure, Refused
from kelpie.server.http.sse import EventStream
from kelpie.server.openai.client import Client

PING = b": the agent is still working\n\n"
DEFAULT, OWN = "default", "user"  # instead of the id of a conversation


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """The answer of a turn that has ended."""

    answer: ClientAnswer
    rows: tuple[Message, ...]
    stop_reason: StopReason
    usage: Usage


def conversation_of(named: str | None) -> tuple[str | None, bool]:
    """The conversation that a client names, and whether it asks for the one of its user. Raises InvalidId."""
    if named is None or named == OWN:
        return None, named == OWN
    return ("" if named == DEFAULT else ConversationId.parse(named)), False


def send_request(
    client: Client,
    placed: PlacedTurn,
    *,
    tools: Sequence[ClientTool],
    instructions: str | None,
    deltas: bool,
    response_format: Mapping[str, Any] | None = None,
) -> SendRequest:
    """What is sent to the agent."""
    return SendRequest(
        placed.messages,
        answers=placed.answers,
        partial=placed.partial,
        client_tools=tuple(tools),
        conversation=placed.turn.conversation,
        max_steps=client.api.settings.max_steps,
        deltas=deltas,
        once=True,
        run_type="send_message_streaming" if deltas else "send_message",
        override=_override(instructions, response_format),
    )


def _override(instructions: str | None, response_format: Mapping[str, Any] | None) -> TurnOverrides | None:
    if instructions is None and response_format is None:
        return None
    return TurnOverrides(instructions=instructions, response_format=response_format)


async def begun(client: Client, placed: PlacedTurn, send: SendRequest) -> AsyncGenerator[TurnEvent, None]:
    """Sends, and returns the events of the turn, which goes on when the client leaves. Raises what sending raises."""
    try:
        turn = await client.api.sending.send(placed.turn.agent_id, send)
    except KelpieError as error:
        await _withdraw(client, placed)
        await _release(client, placed, error)
        raise
    return _events(client, placed, turn)


async def accepted(client: Client, placed: PlacedTurn, send: SendRequest) -> Run:
    """Sends, and returns the run, which nobody waits for. Raises what sending raises."""
    try:
        return await client.api.background_runs.accept(placed.turn.agent_id, send)
    except KelpieError as error:
        await _release(client, placed, error)
        raise


async def _events(client: Client, placed: PlacedTurn, turn: TurnStream) -> AsyncGenerator[TurnEvent, None]:
    said = False
    async with aclosing(turn.events()) as events:
        async for event in events:
            said = said or isinstance(event, MessageCommitted)
            if isinstance(event, TurnEnded) and event.error is not None and not (said or event.input_stored):
                await _withdraw(client, placed)
                await _release(client, placed, event.error)
            yield event


async def _withdraw(client: Client, placed: PlacedTurn) -> None:
    """Removes the conversation of a turn that said nothing; where the disk fails, it stays, empty."""
    with suppress(StorageError):
        await client.api.client_histories.withdraw(placed)


async def _release(client: Client, placed: PlacedTurn, refused: KelpieError) -> None:
    """Lets the client send something else instead of a turn that was refused. After a failure of the disk nobody knows
    whether it was."""
    if isinstance(refused, StorageError):
        return
    with suppress(StorageError):
        await client.api.client_histories.release(placed)


async def whole(turn: AsyncGenerator[TurnEvent, None]) -> WholeAnswer:
    """Waits for the end of a turn. Raises its error."""
    rows: list[Message] = []
    async with aclosing(turn) as events:
        async for event in events:
            match event:
                case MessageCommitted():
                    rows.append(event.message)
                case TurnEnded():
                    if event.error:
                        raise PartialFailure(event.error) if rows or event.input_stored else event.error
                    return WholeAnswer(answer_of(rows), tuple(rows), event.stop_reason, event.usage)
                case Lagged():
                    text = f"The answer is too large; list the messages of {event.run_id} instead."
                    raise Refused("answer_too_large", text)
                case _:
                    pass
    raise InvariantBroken("the events of a turn ended without its end")


def streamed(client: Client, frames: AsyncIterator[bytes]) -> EventStream:
    """The answer as server-sent events; a comment, which clients skip, keeps a quiet connection alive."""
    settings = client.api.settings
    return EventStream(frames, ping=lambda: PING, ping_s=settings.ping_s, stall_s=settings.stall_s, greets=False)
