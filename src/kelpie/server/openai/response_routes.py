"""Responses of agents: create, read again, delete, cancel, and list what was asked."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Path, Query
from starlette.responses import Response

from kelpie.agent.client_histories.client_histories import ClientRequest, StoredTurn
from kelpie.agent.events.turn_events import TurnEvent
from kelpie.core.conversations.runs import UNFINISHED, Run
from kelpie.core.errors import InvalidId, InvalidInput, KelpieError, NotFound
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.letta.messages.approval_body import client_tools
from kelpie.server.openai import item_shape, unsupported
from kelpie.server.openai.client import OpenAiClient
from kelpie.server.openai.content import joined
from kelpie.server.openai.error_shape import facts_of
from kelpie.server.openai.response_body import ResponseBody, history_of, tool_bodies
from kelpie.server.openai.response_events import ResponseEvents
from kelpie.server.openai.response_shape import ended, response_shape, stored_shape, turn_id_of
from kelpie.server.openai.router import openai_resource
from kelpie.server.openai.turns import accepted, begun, conversation_of, send_request, streamed, whole

STREAMS: dict[int | str, dict[str, Any]] = {
    200: {"description": "A response; with `stream`, its events.", "content": {"text/event-stream": {}}}
}
REFERENCES_MAX = 500  # items of earlier responses that one request may refer to
ITEMS_MAX = 100

router = openai_resource("openai")

ResponsePath = Annotated[
    str, Path(max_length=100, pattern=r"^resp_[0-9a-f-]{1,64}$", description="The id of the response: `resp_<uuid>`.")
]


@router.post("/responses", summary="Get a response of an agent", responses=STREAMS, response_model=None)
async def create_response(client: OpenAiClient, body: ResponseBody) -> Response:
    body.check()
    tools = client_tools(tool_bodies(body.tools or ()) if unsupported.offers_tools(body.tool_choice) else [])
    form = unsupported.response_format(body.format, "text.format")
    unsupported.refuse({"top_logprobs": body.top_logprobs})
    agent_id = await client.agent(body.model)
    given = body.input if isinstance(body.input, str) else await _resolved(client, body.input)
    history, told = history_of(given)
    instructions = joined([text for text in (body.instructions, told) if text])
    conversation, own = conversation_of(body.named_conversation)
    if own and not body.user_key:
        raise InvalidInput("conversation", "'user' needs the field 'user', whose conversation it is")
    stored = _stored(body)
    request = ClientRequest(
        history,
        user=body.user_key,
        sender_id=await client.identity(agent_id, body.user_key),
        retried=client.retried,
        idempotency_key=client.idempotency_key,
        after=None if body.previous_response_id is None else turn_id_of(body.previous_response_id),
        conversation=conversation,
        own=own,
        stored=None if body.store is False else stored,
    )
    placed = await client.api.client_histories.place(agent_id, request)
    shape = partial(response_shape, placed.turn.id, stored, placed.turn.created_at)
    deltas = bool(body.stream or body.background)
    send = send_request(client, placed, tools=tools, instructions=instructions, deltas=deltas, response_format=form)
    if body.background:
        run = await accepted(client, placed, send)
        if body.stream:
            return streamed(client, _followed(client, run, ResponseEvents(shape, queued=True)))
        return JsonAnswer(shape(status="queued"))
    turn = await begun(client, placed, send)
    if body.stream:
        return streamed(client, _played(turn, ResponseEvents(shape)))
    told = await whole(turn)
    facts = {"rows": told.rows, "usage": told.usage, "stop": told.stop_reason}
    return JsonAnswer(shape(**ended(told.stop_reason), **facts, completed_at=client.api.world.clock.now()))


@router.get("/responses/{response}", summary="Get a response again", responses=STREAMS, response_model=None)
async def retrieve_response(
    client: OpenAiClient,
    response: ResponsePath,
    stream: bool = False,
    starting_after: Annotated[int | None, Query(ge=0, description="Leave out the events up to this number.")] = None,
) -> Response:
    found = await _found(client, response)
    if not stream:
        return JsonAnswer(stored_shape(found, client.api.world.clock.now()))
    if found.run is None or not found.run.background:
        raise InvalidInput("stream", "only a response that was created with 'background' can be streamed again")
    run = await client.api.background_runs.find(found.run.id)
    shape = partial(response_shape, found.turn.id, found.request, found.turn.created_at)
    events = ResponseEvents(shape, queued=True, after=-1 if starting_after is None else starting_after)
    return streamed(client, _followed(client, run, events))


@router.delete("/responses/{response}", summary="Delete a response", response_model=None)
async def delete_response(client: OpenAiClient, response: ResponsePath) -> JsonAnswer:
    """Deletes the response; what was said stays in the history of the agent."""
    found = await _found(client, response, "DELETE")
    await client.api.client_histories.delete(found.turn.id)
    return JsonAnswer({"id": response, "object": "response", "deleted": True})


@router.post("/responses/{response}/cancel", summary="Cancel a response in the background", response_model=None)
async def cancel_response(client: OpenAiClient, response: ResponsePath) -> JsonAnswer:
    found = await _found(client, response, "POST")
    if found.run is None or not found.run.background:
        raise InvalidInput("response", "only a response that was created with 'background' can be cancelled")
    if found.run.status in UNFINISHED:
        await client.api.cancellations.of_agent(found.turn.agent_id, [found.run.id])
        found = await client.api.client_histories.find(found.turn.id)
    return JsonAnswer(stored_shape(found, client.api.world.clock.now()))


@router.get("/responses/{response}/input_items", summary="List what a response was asked with", response_model=None)
async def list_input_items(
    client: OpenAiClient,
    response: ResponsePath,
    limit: Annotated[int, Query(ge=1, le=ITEMS_MAX)] = 20,
    order: Literal["asc", "desc"] = "desc",
    after: Annotated[str | None, Query(max_length=200, description="Return only items after this one.")] = None,
) -> JsonAnswer:
    found = await _found(client, response)
    given = found.given
    items = [] if given is None else item_shape.input_items(found.turn.id, given.messages, given.answers)
    items = items if order == "asc" else items[::-1]
    if after is not None:
        at = next((at for at, item in enumerate(items) if item["id"] == after), None)
        if at is None:
            raise InvalidInput("after", "the response has no such item")
        items = items[at + 1 :]
    page = items[:limit]
    ends = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
    return JsonAnswer({"object": "list", "data": page, **ends, "has_more": len(items) > len(page)})


async def _found(client: OpenAiClient, response: str, method: str = "GET") -> StoredTurn:
    """The stored turn of a response, if the credential covers its agent. Raises NotFound, Forbidden."""
    try:
        found = await client.api.client_histories.find(turn_id_of(response))
    except NotFound:
        raise NotFound("Response", response) from None
    await client.agent(found.turn.agent_id, method)
    return found


def _stored(body: ResponseBody) -> dict[str, Any]:
    """The fields of the request that the response repeats."""
    named = body.named_conversation
    return {
        "model": body.model,
        "instructions": body.instructions,
        "metadata": body.metadata or {},
        "tools": [_tool(tool) for tool in body.tools or ()],
        "tool_choice": body.tool_choice or "auto",
        "text": {"format": dict(body.format or {"type": "text"})},
        "previous_response_id": body.previous_response_id,
        "conversation": None if named is None else {"id": named},
        "store": body.store is not False,
        "background": bool(body.background),
        "user": body.user,
        "safety_identifier": body.safety_identifier,
    }


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: tool.get(name) for name in ("type", "name", "description", "parameters")}
    return kept | {"strict": bool(tool.get("strict"))}


async def _resolved(client: OpenAiClient, items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The items, with those that are only referred to. Raises InvalidInput."""
    references = sum(item.get("type") == "item_reference" for item in items)
    if references > REFERENCES_MAX:
        raise InvalidInput("input", f"has more than {REFERENCES_MAX} references; send the items themselves")
    found: list[Mapping[str, Any]] = []
    for at, item in enumerate(items):
        if item.get("type") == "item_reference" or (set(item) == {"id"}):
            referred = await _referred(client, str(item.get("id")), f"input[{at}]")
            found += [] if referred is None else [referred]
        else:
            found.append(item)
    return found


async def _referred(client: OpenAiClient, named: str, field: str) -> Mapping[str, Any] | None:
    """The item with this id; None for thoughts, which the agent has in its history."""
    try:
        kind, message_id, place = item_shape.message_of(named)
        row = await client.api.histories.message(message_id)
    except (InvalidId, NotFound):
        raise InvalidInput(field, f"there is no item '{named[:80]}'; send the item itself") from None
    if not row.is_reply:
        raise InvalidInput(field, f"there is no item '{named[:80]}'; send the item itself")
    await client.agent(row.agent_id, "GET")
    if kind == "rs":
        return None
    if kind == "msg":
        return {"role": "assistant", "content": row.said if not place else item_shape.answer_of((row,)).note}
    calls = item_shape.client_calls(row)
    if place >= len(calls):
        raise InvalidInput(field, f"there is no item '{named[:80]}'; send the item itself")
    return item_shape.call_item(row.id, place, calls[place])


async def _played(turn: AsyncGenerator[TurnEvent, None], made: ResponseEvents) -> AsyncIterator[bytes]:
    yield b"".join(made.opening())
    async with aclosing(turn) as events:
        async for event in events:
            if data := b"".join(made.of(event)):
                yield data


async def _followed(client: OpenAiClient, run: Run, made: ResponseEvents) -> AsyncIterator[bytes]:
    if data := b"".join(made.opening()):
        yield data
    try:
        async with aclosing(client.api.background_runs.follow(run.id)) as events:
            async for event in events:
                if data := b"".join(made.of(event)):
                    yield data
    except KelpieError as error:
        message, _, code = facts_of(error)
        yield b"".join(made.broken(message, code))
