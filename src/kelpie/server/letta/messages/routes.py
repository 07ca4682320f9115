"""Sending of messages to an agent, as one answer or as a stream, and its message history."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from kelpie.agent.events.event_buffer import TurnStream
from kelpie.agent.events.turn_events import Compacting, Lagged, MessageCommitted, TurnEnded
from kelpie.core.conversations.messages import MessageQuery
from kelpie.core.errors import InvalidId, InvariantBroken, NotFound
from kelpie.core.ids import AgentId, MessageId
from kelpie.core.paging import PAGE_BYTES_MAX
from kelpie.server.http.errors import PartialFailure, Refused, Unprocessable
from kelpie.server.http.headers.sdk_version import SdkV1
from kelpie.server.http.json_answer import JsonAnswer, joined
from kelpie.server.http.paging import LIMIT_MAX, Order
from kelpie.server.http.path_ids import AgentPath, MessagePath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.sse import EventStream
from kelpie.server.letta.messages.background_stream import following
from kelpie.server.letta.messages.body import SendBody, send_command
from kelpie.server.letta.messages.encoded_page import encoded_page
from kelpie.server.letta.messages.shape import View, wire_messages
from kelpie.server.letta.messages.stream_shape import (
    StreamFrames,
    commit_messages,
    compaction_messages,
    stop_shape,
    usage_shape,
)

router = resource("", "messages")

WRITE_BYTES = 64 * 1024  # of frames that go out together

STREAMS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The agent's messages; with `streaming`, as server-sent events.",
        "content": {"text/event-stream": {}},
    }
}


@router.post("/agents/{agent_id}/messages", summary="Send messages to an agent", responses=STREAMS, response_model=None)
async def send_message(api: CallerApi, agent_id: AgentPath, body: SendBody, sdk_v1: SdkV1) -> Response:
    if body.streaming and not sdk_v1:
        raise Unprocessable("streaming: only clients of SDK 1.x may ask for it here; use /messages/stream")
    return await respond(api, agent_id, body, streaming=body.streaming)


@router.post(
    "/agents/{agent_id}/messages/stream",
    summary="Send messages to an agent and stream the answer",
    responses=STREAMS,
    response_model=None,
)
async def stream_message(api: CallerApi, agent_id: AgentPath, body: SendBody) -> Response:
    return await respond(api, agent_id, body, streaming=True)


@router.get("/agents/{agent_id}/messages", summary="List an agent's messages", response_model=None)
async def list_messages(
    api: CallerApi,
    agent_id: AgentPath,
    before: Annotated[str | None, Query(description="Return only messages older than this one.")] = None,
    after: Annotated[str | None, Query(description="Return only messages newer than this one.")] = None,
    limit: Annotated[int | None, Query(ge=0, le=LIMIT_MAX)] = 100,
    order: Annotated[Order, Query(description="Whether to return the newest or the oldest messages.")] = "desc",
    conversation_id: str | None = None,
    group_id: str | None = None,
    use_assistant_message: bool = True,
    assistant_message_tool_name: str = "send_message",
    assistant_message_tool_kwarg: str = "message",
    include_return_message_types: Annotated[list[str] | None, Query()] = None,
) -> JsonAnswer:
    query = MessageQuery(
        limit=100 if limit is None else limit,
        after=_cursor(after),
        before=_cursor(before),
        descending=order == "desc",
        conversation_id=conversation_id,
        bytes_max=PAGE_BYTES_MAX,
    )
    types = None if include_return_message_types is None else frozenset(include_return_message_types)
    view = View(use_assistant_message, assistant_message_tool_name, assistant_message_tool_kwarg, types)
    if group_id is None:
        return await encoded_page(api, agent_id, query, view)
    rows = await api.histories.messages(agent_id, query)
    wanted = [row for row in rows if row.group_id == group_id]
    return await joined(wanted, lambda row: wire_messages(row, view))


@router.patch(
    "/agents/{agent_id}/messages/{message_id}", summary="Not supported: messages cannot be changed", deprecated=True
)
async def edit_message(agent_id: AgentPath, message_id: MessagePath) -> None:
    raise Refused("method_not_allowed", "Messages cannot be edited; send a new one.")


@router.get("/messages/{message_id}", summary="Get a message", response_model=None)
async def retrieve_message(api: CallerApi, message_id: MessagePath) -> JsonAnswer:
    return JsonAnswer(wire_messages(await api.histories.message(message_id)))


async def respond(
    api: CallerApi, agent_id: AgentId, body: SendBody, *, streaming: bool, conversation: str | None = None
) -> Response:
    """Sends messages to an agent and returns its answer, as a stream or whole.

    A send that names a conversation is refused while a turn of that conversation runs. Raises what sending raises.
    """
    send = send_command(body, streaming=streaming, max_steps=api.settings.max_steps)
    if conversation is not None:
        send = replace(send, conversation=conversation, alone=True, run_type="send_conversation_message")
    if body.background:
        run = await api.background_runs.accept(agent_id, send)
        return following(api, run, include_pings=body.include_pings)
    turn = await api.sending.send(agent_id, send)
    return _streamed(api, agent_id, body, turn) if streaming else JsonAnswer(await _whole(turn, body.view))


async def _whole(turn: TurnStream, view: View) -> dict[str, Any]:
    """The answer to a send that is not streamed. Raises the error of the turn."""
    found: list[dict[str, Any]] = []
    began = False  # whether anything of the turn is in the history
    async with aclosing(turn.events()) as events:
        async for event in events:
            match event:
                case MessageCommitted():
                    began = True
                    found += commit_messages(event, view)
                case Compacting():
                    found += compaction_messages(event, view)
                case TurnEnded():
                    if event.error:
                        raise PartialFailure(event.error) if began or event.input_stored else event.error
                    return {
                        "messages": found,
                        "stop_reason": stop_shape(event.stop_reason, event.detail, event.budget),
                        "usage": usage_shape(event.usage, event.step_count, event.context_tokens, event.run_ids),
                        "logprobs": None,
                        "turns": None,
                    }
                case Lagged():
                    # A status that the SDKs do not retry: the turn goes on, and a second one would double it.
                    text = f"The answer is too large; list the messages of {event.run_id} instead."
                    raise Refused("answer_too_large", text)
                case _:
                    pass
    raise InvariantBroken(f"{turn.run_id}: the events of a turn ended without its end")


def _streamed(api: CallerApi, agent_id: AgentId, body: SendBody, turn: TurnStream) -> EventStream:
    frames = StreamFrames(agent_id, turn.run_id, body.view)
    world = api.world
    ping = (lambda: frames.ping(world.ids.uuid(), world.clock.now())) if body.include_pings else None
    settings = api.settings
    data = _until_left(turn, frames) if body.kelpie_stop_on_disconnect else _frames(turn, frames)
    return EventStream(data, ping=ping, ping_s=settings.ping_s, stall_s=settings.stall_s)


async def _until_left(turn: TurnStream, frames: StreamFrames) -> AsyncIterator[bytes]:
    """The same for a client that wants the turn to end with its stream."""
    try:
        async with aclosing(_frames(turn, frames)) as written:
            async for data in written:
                yield data
    finally:
        if not turn.has_ended:
            turn.cancellation.request()


async def _frames(turn: TurnStream, frames: StreamFrames) -> AsyncGenerator[bytes, None]:
    """Joins frames that are ready into one write: the busier the server, the fewer writes a turn needs."""
    pending = b""
    async with aclosing(turn.events()) as events:
        async for event in events:
            pending += b"".join(frames.of(event))
            if pending and not (turn.has_more and len(pending) < WRITE_BYTES):
                yield pending
                pending = b""


def _cursor(text: str | None) -> MessageId | None:
    try:
        return None if text is None else MessageId.parse(text)
    except InvalidId:
        raise NotFound("Message", text or "") from None
