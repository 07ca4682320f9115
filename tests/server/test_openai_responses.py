"""Responses of agents: what OpenAI's SDK gets, chains of responses, and what is stored of them."""

import asyncio
from array import array
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from kelpie.app import Kelpie
from tests.server.rig import Puppet, called, client_of, make_agent, open_rig, said
from tests.server.test_openai_chat import seen, threads

URL = "http://127.0.0.1:8283/openai/v1"
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}


def sdk_of(http: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="none", base_url=URL, http_client=http, max_retries=0)


@pytest.fixture
async def sdk(kelpie: Kelpie) -> AsyncIterator[openai.AsyncOpenAI]:
    async with client_of(kelpie, {}) as http:
        yield sdk_of(http)


@pytest.fixture
async def agent(client: httpx.AsyncClient) -> str:
    return (await make_agent(client, name="bea"))["id"]


def kinds(events: list[Any]) -> list[str]:
    return [event.type for event in events]


async def streamed(stream: Any) -> list[Any]:
    """The events, each accepted by the SDK's own model and numbered without a gap."""
    events = [event async for event in stream]
    for event in events:
        EVENT.validate_python(event.model_dump(by_alias=True))
    first = events[0].sequence_number
    assert [event.sequence_number for event in events] == list(range(first, first + len(events)))
    return events


async def test_a_response_has_the_shape_that_the_sdk_declares(
    sdk: openai.AsyncOpenAI, puppet: Puppet, agent: str
) -> None:
    puppet.script.append(said("Hello Bob"))
    raw = await sdk.responses.with_raw_response.create(model="bea", input="hi", metadata={"a": "b"})
    made = Response.model_validate_json(raw.content)
    assert made.output_text == "Hello Bob" and made.status == "completed" and made.model == "bea"
    assert made.usage is not None and made.usage.total_tokens == 12 and made.metadata == {"a": "b"}
    again = await sdk.responses.retrieve(made.id)
    assert again.output_text == "Hello Bob" and again.output[0].id == made.output[0].id
    assert again.usage == made.usage and again.metadata == {"a": "b"}


async def test_a_chain_goes_on_where_it_was(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    puppet.script += [said("Hello"), said("Fine"), said("Great")]
    first = await sdk.responses.create(model=agent, input="hi")
    second = await sdk.responses.create(model=agent, input="how are you?", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert [text for _, text in seen(puppet)[-1]] == ["hi", "Hello", "how are you?"]
    assert len(await threads(client, agent)) == 1
    await sdk.responses.create(model=agent, input="where are you?", previous_response_id=first.id)
    assert [text for _, text in seen(puppet)[-1]] == ["hi", "Hello", "where are you?"]
    assert len(await threads(client, agent)) == 2


async def test_a_chain_survives_a_restart(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as (kelpie, puppet), client_of(kelpie, {}) as http:
        agent = (await make_agent(http))["id"]
        puppet.script.append(said("Hello"))
        first = await sdk_of(http).responses.create(model=agent, input="hi")
    async with open_rig(tmp_path) as (kelpie, puppet), client_of(kelpie, {}) as http:
        sdk = sdk_of(http)
        assert (await sdk.responses.retrieve(first.id)).output_text == "Hello"
        await sdk.responses.create(model=agent, input="again", previous_response_id=first.id)
        assert [text for _, text in seen(puppet)[-1]] == ["hi", "Hello", "again"]


async def test_the_events_of_a_stream_are_those_that_the_sdk_declares(
    sdk: openai.AsyncOpenAI, puppet: Puppet, agent: str
) -> None:
    puppet.script.append(said("Hello Bob"))
    events = await streamed(await sdk.responses.create(model=agent, input="hi", stream=True))
    assert kinds(events) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    done = events[-1].response
    assert done.output[0].id == events[2].item.id and done.output_text == "Hello Bob"
    assert (await sdk.responses.retrieve(done.id)).output[0].id == done.output[0].id


@pytest.mark.parametrize("stream", [False, True])
async def test_the_clients_functions_are_called_by_the_client(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str, stream: bool
) -> None:
    puppet.script += [called("get_weather", '{"city": "Oslo"}'), said("Rain in Oslo")]
    asked: Any = {"model": agent, "input": "weather?", "tools": [WEATHER]}
    if stream:
        events = await streamed(await sdk.responses.create(**asked, stream=True))
        assert "response.function_call_arguments.done" in kinds(events)
        first = events[-1].response
    else:
        first = await sdk.responses.create(**asked)
    call: Any = first.output[-1]
    assert (call.type, call.name, call.arguments) == ("function_call", "get_weather", '{"city": "Oslo"}')
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    second = await sdk.responses.create(model=agent, input=[result], tools=[WEATHER], previous_response_id=first.id)
    assert second.output_text == "Rain in Oslo"
    assert len(await threads(client, agent)) == 1
    items = [item async for item in sdk.responses.input_items.list(second.id)]
    assert [item.type for item in items] == ["function_call_output"]


async def test_a_client_that_resends_items_continues_its_conversation(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    """As the Vercel AI SDK does: with the items themselves, or with references to them."""
    puppet.script += [said("Hello"), called("get_weather", "{}"), said("Rain"), said("Bye")]
    history: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
    first = await sdk.responses.create(model=agent, input=history, store=False)
    history += [item.model_dump() for item in first.output]
    history.append({"role": "user", "content": "weather?"})
    second = await sdk.responses.create(model=agent, input=history, tools=[WEATHER])
    call: Any = second.output[-1]
    history += [{"type": "item_reference", "id": call.id}]
    history.append({"type": "function_call_output", "call_id": call.call_id, "output": "rain"})
    third = await sdk.responses.create(model=agent, input=history, tools=[WEATHER])
    assert third.output_text == "Rain"
    history += [{"type": "item_reference", "id": third.output[0].id}, {"role": "user", "content": "bye"}]
    assert (await sdk.responses.create(model=agent, input=history)).output_text == "Bye"
    assert len(await threads(client, agent)) == 1
    assert [role for role, _ in seen(puppet)[-1]][-4:] == ["assistant", "tool", "assistant", "user"]


async def test_a_response_can_be_deleted_or_never_stored(sdk: openai.AsyncOpenAI, agent: str) -> None:
    kept = await sdk.responses.create(model=agent, input="hi")
    await sdk.responses.delete(kept.id)
    unkept = await sdk.responses.create(model=agent, input="hi", store=False)
    for gone in (kept.id, unkept.id):
        with pytest.raises(openai.NotFoundError):
            await sdk.responses.retrieve(gone)
        with pytest.raises(openai.BadRequestError) as raised:
            await sdk.responses.create(model=agent, input="go on", previous_response_id=gone)
        assert raised.value.param == "previous_response_id"


async def test_a_named_conversation_is_continued(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    thread = (await client.post("/v1/conversations/", params={"agent_id": agent}, json={})).json()["id"]
    for text in ("one", "two"):
        made = await sdk.responses.create(model=agent, input=text, conversation=thread)
        assert made.conversation is not None and made.conversation.id == thread
    assert [text for _, text in seen(puppet)[-1]] == ["one", "ok", "two"]


async def test_a_response_in_the_background_is_polled_streamed_and_resumed(
    sdk: openai.AsyncOpenAI, puppet: Puppet, agent: str
) -> None:
    puppet.script.append(said("Hello Bob"))
    made = await sdk.responses.create(model=agent, input="hi", background=True)
    assert made.status == "queued" and made.output == []
    async with asyncio.timeout(20):
        while (now := await sdk.responses.retrieve(made.id)).status in ("queued", "in_progress"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert now.status == "completed" and now.output_text == "Hello Bob"
    events = await streamed(await sdk.responses.retrieve(made.id, stream=True))
    assert kinds(events)[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert events[-1].type == "response.completed" and events[-1].response.output_text == "Hello Bob"
    rest = await streamed(await sdk.responses.retrieve(made.id, stream=True, starting_after=4))
    assert [event.model_dump() for event in rest] == [event.model_dump() for event in events[5:]]


async def test_a_response_in_the_background_is_cancelled(sdk: openai.AsyncOpenAI, puppet: Puppet, agent: str) -> None:
    puppet.script.append(asyncio.Event())
    made = await sdk.responses.create(model=agent, input="hi", background=True)
    async with asyncio.timeout(20):
        await puppet.waiting.wait()
        cancelled = await sdk.responses.cancel(made.id)
        while cancelled.status != "cancelled":
            await asyncio.sleep(0.01)
            cancelled = await sdk.responses.retrieve(made.id)


async def test_what_agents_cannot_do_is_refused(sdk: openai.AsyncOpenAI, agent: str) -> None:
    search: Any = {"type": "web_search"}
    with pytest.raises(openai.BadRequestError) as raised:
        await sdk.responses.create(model=agent, input="hi", tools=[search])
    assert (raised.value.param, raised.value.code) == ("tools", "unsupported_parameter")
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        await sdk.responses.create(model=agent, input="hi", previous_response_id="resp_1", conversation="default")


async def test_models_are_agents_and_embeddings_have_their_own(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, agent: str
) -> None:
    found = [model async for model in sdk.models.list()]
    assert [(model.id, model.object, model.owned_by) for model in found] == [("bea", "model", "kelpie")]
    assert (await sdk.models.retrieve(agent)).id == agent
    twin = await make_agent(client, name="bea")
    assert {model.id async for model in sdk.models.list()} == {agent, twin["id"]}
    with pytest.raises(openai.NotFoundError):
        await sdk.models.retrieve("nobody")


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_texts_are_embedded(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, monkeypatch: pytest.MonkeyPatch, encoding: Any
) -> None:
    async def embed(_: Any, texts: Any, **_given: Any) -> list[bytes]:
        return [array("f", [len(text), *[0.5] * 7]).tobytes() for text in texts]

    monkeypatch.setattr(puppet, "embed", embed, raising=False)
    agent = await make_agent(client, name="reader", embedding="fake/embed")
    for model in ("fake/embed", "embed", "reader", agent["id"]):
        made = await sdk.embeddings.create(model=model, input=["a", "bcd"], encoding_format=encoding)
        got = [one.embedding for one in made.data]
        shown = [array("f", b64decode(one)).tolist() if isinstance(one, str) else one for one in got]
        assert [one[:2] for one in shown] == [[1.0, 0.5], [3.0, 0.5]] and made.model == model
        assert [one.index for one in made.data] == [0, 1] and made.usage.total_tokens == 2
    assert (await sdk.embeddings.create(model="embed", input="a")).data[0].embedding == [1.0, *[0.5] * 7]
    refused: Any = ({"input": []}, {"input": [1, 2]}, {"input": ""}, {"input": "a", "dimensions": 3})
    for wrong in refused:
        with pytest.raises(openai.BadRequestError):
            await sdk.embeddings.create(model="embed", **wrong)
    with pytest.raises(openai.NotFoundError, match="fake/embed"):
        await sdk.embeddings.create(model="nothing", input="a")


async def test_a_chain_goes_on_from_responses_of_its_own_agent_and_organization_alone(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    other = (await make_agent(client, name="other"))["id"]
    first = await sdk.responses.create(model=agent, input="hi")
    with pytest.raises(openai.BadRequestError, match="another agent"):
        await sdk.responses.create(model=other, input="go on", previous_response_id=first.id)
    organization = (await client.post("/v1/admin/orgs/", json={"name": "other"})).json()
    account = {"name": "u", "organization_id": organization["id"]}
    stranger = {"user_id": (await client.post("/v1/admin/users/", json=account)).json()["id"]}
    theirs = (await client.post("/v1/agents/", json={"name": "one"}, headers=stranger)).json()["id"]
    with pytest.raises(openai.BadRequestError, match="there is no response"):
        await sdk.responses.create(model=theirs, input="go on", previous_response_id=first.id, extra_headers=stranger)
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.retrieve(first.id, extra_headers=stranger)
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.delete(first.id, extra_headers=stranger)
    assert (await sdk.responses.retrieve(first.id)).output_text == "ok" and len(puppet.asked) == 1
    assert await threads(client, other) == []


async def test_two_that_follow_one_response_at_once_do_not_hear_each_other(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    first = await sdk.responses.create(model=agent, input="hi")
    gate = asyncio.Event()
    puppet.script.append(gate)
    slow = asyncio.ensure_future(sdk.responses.create(model=agent, input="one", previous_response_id=first.id))
    async with asyncio.timeout(10):
        await puppet.waiting.wait()
        quick = await sdk.responses.create(model=agent, input="two", previous_response_id=first.id)
        gate.set()
        await slow
    assert [[text for _, text in prompt] for prompt in seen(puppet)[1:]] == [["hi", "ok", "one"], ["hi", "ok", "two"]]
    await sdk.responses.create(model=agent, input="more", previous_response_id=quick.id)
    assert [text for _, text in seen(puppet)[-1]] == ["hi", "ok", "two", "ok", "more"]


async def test_a_chain_does_not_go_on_from_what_is_not_there(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    gate = asyncio.Event()
    puppet.script.append(gate)
    running = await sdk.responses.create(model=agent, input="hi", background=True)
    async with asyncio.timeout(10):
        await puppet.waiting.wait()
    with pytest.raises(openai.BadRequestError, match="no answer yet"):
        await sdk.responses.create(model=agent, input="go on", previous_response_id=running.id)
    gate.set()
    async with asyncio.timeout(10):
        while (await sdk.responses.retrieve(running.id)).status != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    following = await sdk.responses.create(model=agent, input="go on", previous_response_id=running.id)
    await sdk.responses.delete(running.id)
    with pytest.raises(openai.BadRequestError, match="there is no response"):
        await sdk.responses.create(model=agent, input="again", previous_response_id=running.id)
    await sdk.responses.create(model=agent, input="and on", previous_response_id=following.id)
    assert [text for _, text in seen(puppet)[-1]] == ["hi", "ok", "go on", "ok", "and on"]
    unkept = await sdk.responses.create(model=agent, input="forget", store=False)
    with pytest.raises(openai.BadRequestError, match="there is no response"):
        await sdk.responses.create(model=agent, input="again", previous_response_id=unkept.id)
