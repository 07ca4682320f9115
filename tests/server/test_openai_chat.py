"""Chat completions with agents as models: what OpenAI's SDK gets, and which messages of a resent history are new."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from kelpie.app import Kelpie
from kelpie.core.errors import ModelError, ModelFault
from tests.server.rig import Puppet, called, client_of, make_agent, said

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture
async def sdk(kelpie: Kelpie) -> AsyncIterator[openai.AsyncOpenAI]:
    async with client_of(kelpie, {}) as http:
        inside: Any = http  # of another package than the SDK declares, and alike
        url = "http://127.0.0.1:8283/openai/v1"
        yield openai.AsyncOpenAI(api_key="none", base_url=url, http_client=inside, max_retries=0)


@pytest.fixture
async def agent(client: httpx.AsyncClient) -> str:
    return (await make_agent(client, name="bea"))["id"]


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def assistant(text: str, **fields: Any) -> Any:
    return {"role": "assistant", "content": text, **fields}


def seen(puppet: Puppet) -> list[list[tuple[str, str]]]:
    """The messages of each request to the model, without the instructions."""
    return [
        [(one.message.role.value, one.message.text) for one in asked.messages if one.message.role.value != "system"]
        for asked in puppet.asked
    ]


async def threads(client: httpx.AsyncClient, agent: str) -> list[str]:
    return [one["id"] for one in (await client.get("/v1/conversations/", params={"agent_id": agent})).json()]


async def test_a_completion_has_the_shape_that_the_sdk_declares(
    sdk: openai.AsyncOpenAI, puppet: Puppet, agent: str
) -> None:
    puppet.script.append(said("Hello Bob"))
    raw = await sdk.chat.completions.with_raw_response.create(model="bea", messages=[user("hi")])
    made = ChatCompletion.model_validate_json(raw.content, strict=True)
    assert made.choices[0].message.content == "Hello Bob"
    assert made.choices[0].finish_reason == "stop"
    assert made.model == "bea" and made.usage is not None
    assert (made.usage.prompt_tokens, made.usage.completion_tokens, made.usage.total_tokens) == (10, 2, 12)


async def test_a_stream_has_the_chunks_that_the_sdk_declares(
    sdk: openai.AsyncOpenAI, puppet: Puppet, agent: str
) -> None:
    puppet.script.append(said("Hello Bob"))
    stream = await sdk.chat.completions.create(
        model=agent, messages=[user("hi")], stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk.model_dump(), strict=True)
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "HelloBob"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage is not None and chunks[-1].usage.total_tokens == 12


async def test_a_resent_history_continues_its_conversation(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    puppet.script += [said("Hello"), said("Fine"), said("Bye")]
    history = [user("hi")]
    for text in ("how are you?", "bye", ""):
        made = await sdk.chat.completions.create(model=agent, messages=history)
        history += [assistant(made.choices[0].message.content or ""), user(text)]
    assert len(await threads(client, agent)) == 1
    assert seen(puppet)[-1] == [
        ("user", "hi"),
        ("assistant", "Hello"),
        ("user", "how are you?"),
        ("assistant", "Fine"),
        ("user", "bye"),
    ]


async def test_a_regenerated_answer_goes_on_in_a_copy(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    puppet.script += [said("Hello"), said("Fine"), said("Great"), said("After great"), said("After fine")]
    first = [user("hi"), assistant("Hello"), user("how are you?")]
    await sdk.chat.completions.create(model=agent, messages=[user("hi")])
    await sdk.chat.completions.create(model=agent, messages=first)
    await sdk.chat.completions.create(model=agent, messages=first)
    assert seen(puppet)[-1] == [("user", "hi"), ("assistant", "Hello"), ("user", "how are you?")]
    assert len(await threads(client, agent)) == 2
    await sdk.chat.completions.create(model=agent, messages=[*first, assistant("Great"), user("and now?")])
    assert seen(puppet)[-1][-2:] == [("assistant", "Great"), ("user", "and now?")]
    await sdk.chat.completions.create(model=agent, messages=[*first, assistant("Fine"), user("and now?")])
    assert seen(puppet)[-1][-2:] == [("assistant", "Fine"), ("user", "and now?")]
    assert len(await threads(client, agent)) == 2


async def test_an_edited_message_goes_on_from_the_answer_before_it(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    puppet.script += [said("Hello"), said("Fine"), said("Paris")]
    await sdk.chat.completions.create(model=agent, messages=[user("hi")])
    await sdk.chat.completions.create(model=agent, messages=[user("hi"), assistant("Hello"), user("how are you?")])
    edited = [user("hi"), assistant("Hello"), user("where are you?")]
    made = await sdk.chat.completions.create(model=agent, messages=edited)
    assert made.choices[0].message.content == "Paris"
    assert seen(puppet)[-1] == [("user", "hi"), ("assistant", "Hello"), ("user", "where are you?")]
    assert len(await threads(client, agent)) == 2


async def test_an_unknown_history_becomes_the_input_of_a_new_conversation(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    puppet.script += [said("Hello"), said("Indeed")]
    await sdk.chat.completions.create(model=agent, messages=[user("hi")])
    await sdk.chat.completions.create(model=agent, messages=[user("hi"), assistant("Changed"), user("really?")])
    assert seen(puppet)[-1] == [("user", "hi"), ("assistant", "Changed"), ("user", "really?")]
    assert len(await threads(client, agent)) == 2


async def test_equal_chats_are_never_mixed(sdk: openai.AsyncOpenAI, puppet: Puppet, agent: str) -> None:
    puppet.script += [said("Hello"), said("Hello"), said("A"), said("B"), said("A2"), said("B2")]
    begin = [user("hi")]
    await sdk.chat.completions.create(model=agent, messages=begin)
    await sdk.chat.completions.create(model=agent, messages=begin)
    for name in ("A", "B"):
        await sdk.chat.completions.create(model=agent, messages=[*begin, assistant("Hello"), user(f"I am {name}")])
    for name in ("A", "B"):
        told = [*begin, assistant("Hello"), user(f"I am {name}"), assistant(name), user("who am I?")]
        await sdk.chat.completions.create(model=agent, messages=told)
        assert [text for _, text in seen(puppet)[-1]] == ["hi", "Hello", f"I am {name}", name, "who am I?"]


async def test_instructions_hold_for_their_request_only(sdk: openai.AsyncOpenAI, puppet: Puppet, agent: str) -> None:
    puppet.script += [said("Hello"), said("Fine")]
    system: Any = {"role": "system", "content": "Speak like a pirate."}
    await sdk.chat.completions.create(model=agent, messages=[system, user("hi")])
    assert "Speak like a pirate." in puppet.asked[-1].system
    await sdk.chat.completions.create(model=agent, messages=[user("hi"), assistant("Hello"), user("again")])
    assert "pirate" not in puppet.asked[-1].system
    assert len(seen(puppet)[-1]) == 3


async def test_the_clients_tools_are_called_by_the_client(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    puppet.script += [called("get_weather", '{"city": "Oslo"}'), said("Rain in Oslo"), said("You are welcome")]
    history = [user("weather?")]
    made = await sdk.chat.completions.create(model=agent, messages=history, tools=[WEATHER])
    choice = made.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls
    call: Any = choice.message.tool_calls[0]
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"city": "Oslo"}')
    history += [choice.message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    made = await sdk.chat.completions.create(model=agent, messages=history, tools=[WEATHER])
    assert made.choices[0].message.content == "Rain in Oslo" and made.choices[0].finish_reason == "stop"
    again = await sdk.chat.completions.create(model=agent, messages=history, tools=[WEATHER])
    assert again.choices[0].message.content == "Rain in Oslo"  # the same results are the same turn
    history += [assistant("Rain in Oslo"), user("thanks")]
    await sdk.chat.completions.create(model=agent, messages=history, tools=[WEATHER])
    assert len(await threads(client, agent)) == 1
    assert [role for role, _ in seen(puppet)[-1]] == ["user", "assistant", "tool", "assistant", "user"]


async def test_a_retry_of_the_sdk_is_the_turn_that_it_was(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    puppet.script += [said("Hello"), said("never said")]
    first = await sdk.chat.completions.create(model=agent, messages=[user("hi")])
    again = await sdk.chat.completions.create(
        model=agent, messages=[user("hi")], extra_headers={"x-stainless-retry-count": "1"}
    )
    assert again.choices[0].message.content == first.choices[0].message.content == "Hello"
    assert len(puppet.asked) == 1 and len(await threads(client, agent)) == 1


async def test_a_user_becomes_an_identity(sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, agent: str) -> None:
    for _ in range(2):
        await sdk.chat.completions.create(model=agent, messages=[user("hi")], user="bob@example.com")
    found = (await client.get("/v1/identities/", params={"identifier_key": "bob@example.com"})).json()
    linked = (await client.get(f"/v1/agents/{agent}", params={"include": "agent.identities"})).json()
    assert [one["id"] for one in found] == [one["id"] for one in linked["identities"]]
    sent = (await client.get(f"/v1/agents/{agent}/messages", params={"order": "desc"})).json()
    assert {one["sender_id"] for one in sent if one["message_type"] == "user_message"} == {found[0]["id"]}


async def test_a_user_has_a_lasting_conversation_on_request(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    own: Any = {"kelpie_conversation": "user"}
    for name in ("bob", "eve", "bob"):
        await sdk.chat.completions.create(model=agent, messages=[user(f"I am {name}")], user=name, extra_body=own)
    assert [text for _, text in seen(puppet)[-1]] == ["I am bob", "ok", "I am bob"]
    assert len(await threads(client, agent)) == 2


async def test_a_response_format_holds_for_its_request_only(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    form: Any = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": True}}
    puppet.script += [said('{"city": "Oslo"}'), said('{"city": "Rome"}')]
    made = await sdk.chat.completions.create(model=agent, messages=[user("where?")], response_format=form)
    assert made.choices[0].message.content == '{"city": "Oslo"}'
    assert puppet.asked[0].options["response_format"]["json_schema"]["schema"] == schema
    flat: Any = {"format": {"type": "json_schema", "name": "place", "schema": schema, "strict": True}}
    answer = await sdk.responses.create(model=agent, input="where?", text=flat)
    assert answer.output_text == '{"city": "Rome"}' and answer.text is not None
    assert puppet.asked[1].options["response_format"]["json_schema"]["schema"] == schema
    await sdk.chat.completions.create(model=agent, messages=[user("and now?")])
    assert "response_format" not in puppet.asked[2].options
    wrong: Any = {"type": "json_schema"}
    with pytest.raises(openai.BadRequestError) as raised:
        await sdk.chat.completions.create(model=agent, messages=[user("where?")], response_format=wrong)
    assert raised.value.param == "response_format"


async def test_two_that_go_on_from_one_answer_at_once_do_not_hear_each_other(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    gate = asyncio.Event()
    puppet.script += [said("Hello"), gate]
    await sdk.chat.completions.create(model=agent, messages=[user("hi")])
    begin = [user("hi"), assistant("Hello")]
    first = asyncio.ensure_future(sdk.chat.completions.create(model=agent, messages=[*begin, user("one")]))
    async with asyncio.timeout(10):
        await puppet.waiting.wait()
        puppet.script.append(said("Two"))
        second = await sdk.chat.completions.create(model=agent, messages=[*begin, user("two")])
        puppet.script.append(said("One"))
        gate.set()
        assert (await first).choices[0].message.content == "One"
    assert second.choices[0].message.content == "Two"
    assert [[text for _, text in prompt] for prompt in seen(puppet)[1:]] == [
        ["hi", "Hello", "one"],
        ["hi", "Hello", "two"],
    ]
    for name in ("One", "Two"):
        told = [*begin, user(name.lower()), assistant(name), user("and now?")]
        await sdk.chat.completions.create(model=agent, messages=told)
        assert [text for _, text in seen(puppet)[-1]] == ["hi", "Hello", name.lower(), name, "and now?"]
    assert len(await threads(client, agent)) == 2


async def test_histories_of_other_users_and_other_agents_are_unknown(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    other = (await make_agent(client, name="other"))["id"]
    puppet.script.append(said("Hello"))
    await sdk.chat.completions.create(model=agent, messages=[user("hi")], user="bob")
    told = [user("hi"), assistant("Hello"), user("go on")]
    await sdk.chat.completions.create(model=agent, messages=told, user="eve")
    await sdk.chat.completions.create(model=agent, messages=told)
    await sdk.chat.completions.create(model=other, messages=told, user="bob")
    assert (len(await threads(client, agent)), len(await threads(client, other))) == (3, 1)
    await sdk.chat.completions.create(model=agent, messages=told, user="bob")
    assert (len(await threads(client, agent)), len(await threads(client, other))) == (3, 1)


async def test_a_deleted_conversation_begins_anew_with_the_whole_history(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    puppet.script.append(said("Hello"))
    await sdk.chat.completions.create(model=agent, messages=[user("hi")])
    (old,) = await threads(client, agent)
    await client.delete(f"/v1/conversations/{old}")
    await sdk.chat.completions.create(model=agent, messages=[user("hi"), assistant("Hello"), user("go on")])
    (new,) = await threads(client, agent)
    assert new != old and [text for _, text in seen(puppet)[-1]] == ["hi", "Hello", "go on"]
    again: Any = {"extra_headers": {"x-stainless-retry-count": "1"}}
    await client.delete(f"/v1/conversations/{new}")
    await sdk.chat.completions.create(model=agent, messages=[user("hi")], **again)
    assert len(puppet.asked) == 3 and len(await threads(client, agent)) == 1  # what was said is no longer there


async def test_a_turn_that_said_nothing_leaves_no_conversation(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    puppet.script.append(ModelError(ModelFault.bad_request, "No."))
    with pytest.raises(openai.APIError):
        await sdk.chat.completions.create(model=agent, messages=[user("hi")])
    assert await threads(client, agent) == []
    await sdk.chat.completions.create(model=agent, messages=[user("hi")])
    puppet.script.append(ModelError(ModelFault.bad_request, "No."))
    told = [user("hi"), assistant("ok"), user("go on")]
    with pytest.raises(openai.APIError):
        await sdk.chat.completions.create(model=agent, messages=told)
    assert len(await threads(client, agent)) == 1  # one that others have used stays
    made = await sdk.chat.completions.create(model=agent, messages=told)
    assert made.choices[0].message.content == "ok" and [text for _, text in seen(puppet)[-1]] == ["hi", "ok", "go on"]


async def test_a_retry_while_the_turn_runs_waits_for_it(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    gate = asyncio.Event()
    puppet.script.append(gate)
    first = asyncio.ensure_future(sdk.chat.completions.create(model=agent, messages=[user("hi")]))
    async with asyncio.timeout(10):
        await puppet.waiting.wait()
        again = asyncio.ensure_future(
            sdk.chat.completions.create(
                model=agent, messages=[user("hi")], extra_headers={"x-stainless-retry-count": "1"}
            )
        )
        other = asyncio.ensure_future(
            sdk.chat.completions.create(model=agent, messages=[user("hi")], extra_headers={"Idempotency-Key": "k"})
        )
        puppet.script.append(said("Other"))
        assert (await other).choices[0].message.content == "Other"  # another key is another turn
        puppet.script.append(said("Hello"))
        gate.set()
        answers = [(await each).choices[0].message.content for each in (first, again)]
    assert answers == ["Hello", "Hello"] and len(puppet.asked) == 2 and len(await threads(client, agent)) == 2
    key: Any = {"extra_headers": {"Idempotency-Key": "k"}}
    same = await sdk.chat.completions.create(model=agent, messages=[user("hi")], **key)
    assert same.choices[0].message.content == "Other" and len(puppet.asked) == 2
    await sdk.chat.completions.create(model=agent, messages=[user("other words")], **key)
    assert len(puppet.asked) == 3


async def test_two_first_requests_of_a_user_share_one_lasting_conversation(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    own: Any = {"kelpie_conversation": "user"}
    asked = (
        sdk.chat.completions.create(model=agent, messages=[user(f"I am {n}")], user="bob", extra_body=own)
        for n in range(3)
    )
    await asyncio.gather(*asked)
    assert len(await threads(client, agent)) == 1
    await sdk.chat.completions.create(model=agent, messages=[user("who?")], user="bob", extra_body=own)
    assert len(seen(puppet)[-1]) == 7


async def test_white_space_does_not_matter_and_every_other_letter_does(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    puppet.script += [said("First line.\n\nSecond  line."), said("Fine")]
    await sdk.chat.completions.create(model=agent, messages=[user("hi there")])
    told = [user(" hi\nthere "), assistant("First line. Second line."), user("go on")]
    await sdk.chat.completions.create(model=agent, messages=told)
    assert len(await threads(client, agent)) == 1 and len(seen(puppet)[-1]) == 3
    for other in (
        [user("hi There"), *told[1:]],
        [told[0], assistant("First line. Second line"), told[2]],
        [user("hi"), user("there"), *told[1:]],
        [assistant("hi there"), *told[1:]],
    ):
        count = len(await threads(client, agent))
        await sdk.chat.completions.create(model=agent, messages=other)
        assert len(await threads(client, agent)) == count + 1, other


async def test_calls_and_results_of_an_unknown_history_are_told_in_words(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    call: Any = {"id": "call_9", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": 1}'}}
    told: Any = [
        user("weather?"),
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_9", "content": "rain"},
        assistant("It rains."),
        user("thanks"),
    ]
    await sdk.chat.completions.create(model=agent, messages=told, tools=[WEATHER])
    said_so = "\n".join(text for _, text in seen(puppet)[-1])
    assert said_so.startswith("weather?") and '[Called get_weather with {"city": 1}]' in said_so
    assert "[Result of the call call_9: rain]" in said_so and said_so.endswith("thanks")
    assert len(await threads(client, agent)) == 1


async def test_a_call_that_was_never_answered_does_not_hold_up_another_question(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    puppet.script += [said("Hello"), called("get_weather", "{}"), said("Sunny")]
    begin = [user("hi"), assistant("Hello")]
    await sdk.chat.completions.create(model=agent, messages=[user("hi")], tools=[WEATHER])
    asked = await sdk.chat.completions.create(model=agent, messages=[*begin, user("weather?")], tools=[WEATHER])
    assert asked.choices[0].finish_reason == "tool_calls"
    other = await sdk.chat.completions.create(model=agent, messages=[*begin, user("never mind")], tools=[WEATHER])
    assert other.choices[0].message.content == "Sunny" and len(await threads(client, agent)) == 2
    assert [text for _, text in seen(puppet)[-1]] == ["hi", "Hello", "never mind"]
    (call,) = asked.choices[0].message.tool_calls or ()
    results: Any = [asked.choices[0].message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    puppet.script.append(said("Rain"))
    late = await sdk.chat.completions.create(
        model=agent, messages=[*begin, user("weather?"), *results], tools=[WEATHER]
    )
    assert late.choices[0].message.content == "Rain"
    assert [text for _, text in seen(puppet)[-1]][:3] == ["hi", "Hello", "weather?"]
    assert [role for role, _ in seen(puppet)[-1]] == ["user", "assistant", "user", "assistant", "tool"]


async def test_a_named_conversation_is_one_of_the_agent(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    other = (await make_agent(client, name="other"))["id"]
    stray = (await client.post("/v1/conversations/", params={"agent_id": other}, json={})).json()["id"]
    with pytest.raises(openai.NotFoundError):
        await sdk.chat.completions.create(model=agent, messages=[user("hi")], extra_body={"kelpie_conversation": stray})
    await client.delete(f"/v1/conversations/{stray}")
    with pytest.raises(openai.NotFoundError):
        await sdk.chat.completions.create(model=other, messages=[user("hi")], extra_body={"kelpie_conversation": stray})
    assert puppet.asked == [] and await threads(client, agent) == await threads(client, other) == []
    default: Any = {"kelpie_conversation": "default"}
    for text in ("one", "two"):
        await sdk.chat.completions.create(model=agent, messages=[user(text)], extra_body=default)
    assert [text for _, text in seen(puppet)[-1]] == ["one", "ok", "two"] and await threads(client, agent) == []


async def test_a_lasting_conversation_that_was_deleted_is_made_anew(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    own: Any = {"kelpie_conversation": "user"}
    await sdk.chat.completions.create(model=agent, messages=[user("one")], user="bob", extra_body=own)
    (first,) = await threads(client, agent)
    await client.delete(f"/v1/conversations/{first}")
    for text in ("two", "three"):
        await sdk.chat.completions.create(model=agent, messages=[user(text)], user="bob", extra_body=own)
    assert [text for _, text in seen(puppet)[-1]] == ["two", "ok", "three"]
    assert len(await threads(client, agent)) == 1


async def test_a_stopped_agent_takes_no_history_and_leaves_no_conversation(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    await client.post(f"/v1/agents/{agent}/stop")
    with pytest.raises(openai.ConflictError, match="stopped"):
        await sdk.chat.completions.create(model=agent, messages=[user("hi")])
    assert await threads(client, agent) == [] and puppet.asked == []
    with pytest.raises(openai.BadRequestError):
        await sdk.chat.completions.create(model=agent, messages=[user("hi"), assistant("Hello")])
