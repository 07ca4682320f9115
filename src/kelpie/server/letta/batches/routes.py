"""Batches of messages: for one agent (Kelpie), and Letta's for several agents. Both are run by the same runner."""

import hashlib
from typing import Annotated, Any

from fastapi import Header, Query
from pydantic import BaseModel

from kelpie.batches.batches import RepeatableRequest
from kelpie.core.access.hosts import check_callback
from kelpie.core.agents.agent import Include
from kelpie.core.conversations.batches import ITEMS_MAX, REQUESTS_MAX
from kelpie.core.conversations.messages import Message
from kelpie.core.errors import KelpieError
from kelpie.core.ids import AgentId, JobId
from kelpie.server.http.errors import PartialFailure
from kelpie.server.http.json_answer import JsonAnswer, built, listed
from kelpie.server.http.paging import Page50, Page100
from kelpie.server.http.path_ids import AgentPath, JobPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.agent_files.message_document import message_document
from kelpie.server.letta.batches.body import CreateBatch, MessageBatchBody, message_items, request_items
from kelpie.server.letta.batches.shape import batch_shape, excerpt_shape, whole_batch
from kelpie.server.letta.runs.job_routes import job_shape

router = resource("", "batches")
kelpie_router = resource("/kelpie/batches", "batches")

WAIT_S = 300.0
WAIT_MAX_S = 3600.0
KEY_CHARS_MAX = 255
_BATCH = "/agents/{agent_id}/messages/batch"

Background = Annotated[bool, Query(description="Answer at once with 202.")]
Wait = Annotated[
    float, Query(ge=0, le=WAIT_MAX_S, description="Seconds to wait for the end; after that the answer is a 202.")
]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=KEY_CHARS_MAX,
        description="A name for this request. The same request under the same name again returns the same batch.",
    ),
]
Active = Annotated[bool, Query(description="Return only batches that have not ended.")]


@router.post(_BATCH, summary="Send a batch of messages to an agent (Kelpie)", response_model=None)
async def send_batch(
    api: CallerApi,
    agent_id: AgentPath,
    body: MessageBatchBody,
    background: Background = False,
    wait_s: Wait = WAIT_S,
    key: Key = None,
) -> JsonAnswer:
    _check_callback(api, body.callback_url)
    items = message_items(agent_id, body, api.settings.max_steps)
    job = await api.batches.create(
        items,
        agent_id=agent_id,
        parallel=body.parallel,
        callback_url=body.callback_url,
        repeatable=_repeatable(key, body),
    )
    try:
        ended = not background and await api.batches.wait(job.id, wait_s)
        shown = await _whole(api, agent_id, job.id)
    except KelpieError as error:
        raise PartialFailure(error) from error  # the batch goes on; the same request again would be a second one
    if not ended:
        return JsonAnswer(shown, 202)
    return JsonAnswer(shown, 200 if shown["completed"] == shown["total"] else 207)


@router.get(_BATCH + "/{batch_id}", summary="Get a batch and its results (Kelpie)", response_model=None)
async def get_batch(api: CallerApi, agent_id: AgentPath, batch_id: JobPath) -> JsonAnswer:
    return JsonAnswer(await _whole(api, agent_id, batch_id))


@router.post(_BATCH + "/{batch_id}/cancel", summary="Cancel a batch (Kelpie)", response_model=None)
async def cancel_batch(api: CallerApi, agent_id: AgentPath, batch_id: JobPath) -> JsonAnswer:
    await api.batches.cancel(agent_id, batch_id)
    return JsonAnswer(await _whole(api, agent_id, batch_id))


@router.post("/messages/batches", summary="Send requests to several agents", response_model=None)
async def create_batch(api: CallerApi, body: CreateBatch, key: Key = None) -> JsonAnswer:
    _check_callback(api, body.callback_url)
    items = request_items(body, api.settings.max_steps)
    made = await api.batches.create(items, callback_url=body.callback_url, repeatable=_repeatable(key, body))
    return JsonAnswer(job_shape(made))


@router.get("/messages/batches", summary="List batches that have not ended", response_model=None)
async def list_batches(api: CallerApi, page: Page100) -> JsonAnswer:
    return await listed(await api.batches.page(page, active_only=True), lambda found: job_shape(found[0]))


@router.get("/messages/batches/{batch_id}", summary="Get a batch", response_model=None)
async def retrieve_batch(api: CallerApi, batch_id: JobPath) -> JsonAnswer:
    return JsonAnswer(job_shape((await api.batches.get(None, batch_id))[0]))


@router.patch("/messages/batches/{batch_id}/cancel", summary="Cancel a batch", response_model=None)
async def cancel_any_batch(api: CallerApi, batch_id: JobPath) -> JsonAnswer:
    return JsonAnswer(job_shape((await api.batches.cancel(None, batch_id))[0]))


@router.get("/messages/batches/{batch_id}/messages", summary="List the messages of a batch", response_model=None)
async def list_batch_messages(
    api: CallerApi, batch_id: JobPath, page: Page100, agent_id: str | None = None
) -> JsonAnswer:
    of_agent = None if agent_id is None else AgentId.parse(agent_id)
    found = await api.batches.messages(batch_id, of_agent, page)
    models: dict[AgentId, str] = {}
    for each in sorted({message.agent_id for message in found}):
        models[each] = (await api.agents.get(each, Include())).agent.model.handle.partition("/")[2]
    return JsonAnswer({"messages": await built(found, lambda message: _stored(message, models[message.agent_id]))})


@kelpie_router.get("", summary="List batches (Kelpie)", response_model=None)
async def list_all_batches(api: CallerApi, page: Page50, active: Active = False) -> JsonAnswer:
    return await listed(await api.batches.page(page, active_only=active), lambda found: batch_shape(*found))


@kelpie_router.get("/{batch_id}", summary="Get a batch of any agents and its results (Kelpie)", response_model=None)
async def get_any_batch(
    api: CallerApi,
    batch_id: JobPath,
    results: Annotated[bool, Query(description="Whether to return the results of the items.")] = True,
) -> JsonAnswer:
    if not results:
        return JsonAnswer(batch_shape(*await api.batches.get(None, batch_id)))
    return JsonAnswer(await _whole(api, None, batch_id))


@kelpie_router.get("/{batch_id}/items", summary="List the items of a batch in pages (Kelpie)", response_model=None)
async def list_items(
    api: CallerApi,
    batch_id: JobPath,
    after: Annotated[int, Query(ge=-1, le=REQUESTS_MAX, description="Return only items after this index.")] = -1,
    limit: Annotated[int, Query(ge=1, le=ITEMS_MAX, description="Maximum number of items.")] = 50,
) -> JsonAnswer:
    """Each item has the first 2,000 characters of what was asked (`input`) and answered (`output`)."""
    return await listed(await api.batches.excerpts(batch_id, after, limit), excerpt_shape)


@kelpie_router.post("/{batch_id}/cancel", summary="Cancel a batch of any agents (Kelpie)", response_model=None)
async def cancel_batch_of_any(api: CallerApi, batch_id: JobPath) -> JsonAnswer:
    await api.batches.cancel(None, batch_id)
    return JsonAnswer(await _whole(api, None, batch_id))


def _check_callback(api: CallerApi, url: str | None) -> None:
    if url is not None:
        check_callback(url, private=api.settings.callback_private)


def _repeatable(key: str | None, body: BaseModel) -> RepeatableRequest | None:
    if key is None:
        return None
    return RepeatableRequest(key, hashlib.sha256(body.model_dump_json().encode()).hexdigest())


async def _whole(api: CallerApi, agent_id: AgentId | None, batch_id: JobId) -> dict[str, Any]:
    return whole_batch(*await api.batches.results(agent_id, batch_id))


def _stored(message: Message, model: str) -> dict[str, Any]:
    """A message as it is stored, in Letta's shape."""
    groups = {message.group_id: message.group_id} if message.group_id else {}
    shown = message_document(message, message.id, message.agent_id, model, groups, thoughts_in_calls=False)
    return shown | {"step_id": message.step_id, "run_id": message.run_id, "conversation_id": message.conversation_id}
