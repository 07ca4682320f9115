"""Chat completions with agents as models, at OpenAI's path and at Letta's."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from kelpie.agent.client_histories.client_histories import ClientRequest
from kelpie.agent.events.turn_events import TurnEvent
from kelpie.core.errors import InvalidInput
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.messages.approval_body import ClientToolBody, client_tools
from kelpie.server.openai import unsupported
from kelpie.server.openai.chat_body import ChatBody, history_of, instructions_of
from kelpie.server.openai.chat_shape import ChatChunks, completion, head_of
from kelpie.server.openai.client import OpenAiClient
from kelpie.server.openai.router import openai_resource
from kelpie.server.openai.turns import begun, conversation_of, send_request, streamed, whole

SUMMARY = "Chat with an agent"
STREAMS: dict[int | str, dict[str, Any]] = {
    200: {"description": "A chat completion; with `stream`, its chunks.", "content": {"text/event-stream": {}}}
}

router: APIRouter = openai_resource("openai")
letta_router: APIRouter = resource("", "openai")


@router.post("/chat/completions", summary=SUMMARY, responses=STREAMS, response_model=None)
async def create_completion(client: OpenAiClient, body: ChatBody) -> Response:
    return await _completed(client, body)


@letta_router.post("/chat/completions", summary=SUMMARY, responses=STREAMS, response_model=None)
async def create_chat_completion(client: OpenAiClient, body: ChatBody) -> Response:
    return await _completed(client, body)


async def _completed(client: OpenAiClient, body: ChatBody) -> Response:
    unsupported.refuse(
        {name: getattr(body, name) for name in ("n", "logprobs", "top_logprobs", "modalities", "audio", "functions")}
        | {"function_call": body.function_call}
    )
    tools = client_tools(
        [ClientToolBody.model_validate(tool.function.model_dump()) for tool in body.tools or ()]
        if unsupported.offers_tools(body.tool_choice)
        else []
    )
    form = unsupported.response_format(body.response_format, "response_format")
    history, instructions = history_of(body.messages), instructions_of(body.messages)
    conversation, own = conversation_of(body.kelpie_conversation)
    if own and not body.user_key:
        raise InvalidInput("kelpie_conversation", "'user' needs the field 'user', whose conversation it is")
    agent_id = await client.agent(body.model)
    request = ClientRequest(
        history,
        user=body.user_key,
        sender_id=await client.identity(agent_id, body.user_key),
        retried=client.retried,
        idempotency_key=client.idempotency_key,
        conversation=conversation,
        own=own,
    )
    placed = await client.api.client_histories.place(agent_id, request)
    send = send_request(
        client, placed, tools=tools, instructions=instructions, deltas=bool(body.stream), response_format=form
    )
    turn = await begun(client, placed, send)
    head = head_of(placed.turn.id, body.model, client.api.world.clock.now())
    if not body.stream:
        return JsonAnswer(completion(head, await whole(turn)))
    chunks = ChatChunks(head, with_usage=body.with_usage)
    return streamed(client, _frames(turn, chunks))


async def _frames(turn: AsyncGenerator[TurnEvent, None], chunks: ChatChunks) -> AsyncIterator[bytes]:
    async with aclosing(turn) as events:
        async for event in events:
            if data := b"".join(chunks.of(event)):
                yield data
