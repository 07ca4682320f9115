"""Usage, cost and budgets, forms of answers, images, thoughts, and another model for one turn, as users of letta-client
see them: over the wires of OpenAI and Anthropic, streamed and not."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from letta_client import BadRequestError, NotFoundError, UnprocessableEntityError

from tests.acceptance.sdk import every, got, sdk_client
from tests.acceptance.served import Served
from tests.acceptance.wire_model import ANTHROPIC, HANDLES, OPENAI, WireModel, wire_model

WAYS = ("whole", "steps", "tokens")
THINKER, BLIND = "anthropic/claude-sonnet-4-5-20250929", "openai/gpt-4"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
FORM = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
COUNTS = {
    '{"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}': {
        "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100,
        "prompt_tokens_details": {"cached_tokens": 600}, "completion_tokens_details": {"reasoning_tokens": 40},
    },
    '{"input_tokens": 9, "output_tokens": 3}': {
        "input_tokens": 300, "output_tokens": 100, "cache_read_input_tokens": 600, "cache_creation_input_tokens": 100,
    },
    '"usage": {"output_tokens": 3}': None,  # the end of Anthropic's stream says nothing new here
}  # fmt: skip
COSTS = {OPENAI: 0.00038, ANTHROPIC: 0.000788}


class Counting(WireModel):
    """Counts many tokens, and thinks where it is asked to."""

    def answer(self, path: str, body: dict[str, Any]) -> tuple[str, bytes]:
        kind, raw = super().answer(path, body)
        text = raw.decode()
        for plain, counted in COUNTS.items():
            text = text.replace(plain, '"usage": {}' if counted is None else json.dumps(counted))
        if body.get("thinking") and not body.get("stream"):
            whole = json.loads(text)
            thought = {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}
            whole["content"] = [thought, {"type": "redacted_thinking", "data": "b3BhcXVl"}, *whole["content"]]
            text = json.dumps(whole)
        return kind, text.encode()


@pytest.fixture(scope="module")
def model() -> Iterator[WireModel]:
    with wire_model(Counting(), (*HANDLES, THINKER, BLIND)) as made:
        yield made


@pytest.fixture
async def client(server: Served) -> AsyncIterator[Any]:
    async with sdk_client("async", server.url) as made:
        yield made


async def new(client: Any, handle: str, **more: Any) -> Any:
    return await client.agents.create(name="Counted", model=handle, include_base_tools=False, memory_blocks=[], **more)


async def say(client: Any, agent: Any, way: str = "whole", **more: Any) -> tuple[list[Any], Any, Any]:
    """The messages of a turn, why it stopped, and what it used."""
    said = {"input": "go"} | more
    if way == "whole":
        answer = await client.agents.messages.create(agent.id, **said)
        return answer.messages, answer.stop_reason, answer.usage
    asked = client.agents.messages.create(agent.id, streaming=True, stream_tokens=way == "tokens", **said)
    events = await every(await got(asked))
    ends = {one.message_type: one for one in events if one.message_type in ("stop_reason", "usage_statistics")}
    rest = [one for one in events if one.message_type not in (*ends, "ping")]
    return rest, ends["stop_reason"], ends.get("usage_statistics")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("handle", HANDLES)
async def test_tokens_and_cost_are_the_same_everywhere(client: Any, model: WireModel, handle: str, way: str) -> None:
    agent = await new(client, handle, tools=["conversation_search"])
    model.will([("conversation_search", {"query": "x"})], "done")
    _, stop, usage = await say(client, agent, way)
    assert stop.stop_reason == "end_turn"
    assert (usage.step_count, usage.prompt_tokens, usage.completion_tokens) == (2, 2000, 200)
    assert usage.cached_input_tokens == 1200
    assert usage.cache_write_tokens == (None if handle == OPENAI else 200)
    assert usage.reasoning_tokens == (80 if handle == OPENAI else None)
    assert usage.kelpie_cost_usd == pytest.approx(2 * COSTS[handle])
    run = (await client.runs.list(agent_id=agent.id)).items[0]
    assert run.kelpie_cost_usd == pytest.approx(2 * COSTS[handle])
    counted = await client.runs.usage.retrieve(run.id)
    assert (counted.prompt_tokens, counted.prompt_tokens_details.cached_tokens) == (2000, 1200)
    steps = (await client.runs.steps.list(run.id)).items
    assert [step.kelpie_cost_usd for step in steps] == pytest.approx([COSTS[handle]] * 2)
    assert all(step.cached_input_tokens == 600 for step in steps)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("handle", HANDLES)
async def test_a_budget_ends_turns_until_it_is_raised(client: Any, model: WireModel, handle: str, way: str) -> None:
    agent = await new(client, handle, extra_body={"kelpie_budget": {"usd": 0.0003, "period": "month"}})
    assert agent.kelpie_budget == {"usd": 0.0003, "tokens": None, "period": "month"}
    model.will()
    assert (await say(client, agent, way))[1].stop_reason == "end_turn"
    messages, stop, usage = await say(client, agent, way)
    assert (messages, stop.stop_reason, stop.kelpie_stop_reason) == ([], "insufficient_credits", "budget")
    assert stop.kelpie_budget["frees_at"] and "raise" in stop.kelpie_budget["message"]
    assert usage.total_tokens == 0 and len(model.asked) == 1
    assert len([one async for one in await got(client.agents.messages.list(agent.id))]) == 3  # system, go, ok
    changed = await client.agents.update(agent.id, extra_body={"kelpie_budget": {"usd": 5}})
    assert changed.kelpie_budget["usd"] == 5
    assert (await say(client, agent, way))[1].stop_reason == "end_turn"
    assert (await client.agents.update(agent.id, extra_body={"kelpie_budget": None})).kelpie_budget is None


@pytest.mark.parametrize("budget", [{}, {"usd": -1}, {"tokens": 0}, {"usd": 1, "period": "year"}, {"euros": 3}])
async def test_a_budget_that_bounds_nothing_is_refused(client: Any, budget: dict[str, Any]) -> None:
    with pytest.raises(UnprocessableEntityError):
        await new(client, OPENAI, extra_body={"kelpie_budget": budget})


def form_in(body: dict[str, Any]) -> Any:
    """The schema that a model is held to, by either wire."""
    if "response_format" in body:
        return body["response_format"]["json_schema"]["schema"]
    return body.get("output_config", {}).get("format", {}).get("schema")


@pytest.mark.parametrize("handle", [OPENAI, THINKER])
async def test_answers_have_the_form_of_the_agent_or_of_its_model_or_of_the_conversation(
    client: Any, model: WireModel, handle: str
) -> None:
    kind, other = handle.partition("/")[0], {**SCHEMA, "description": "other"}
    by_agent = await new(client, handle, response_format=FORM)
    settings = {"provider_type": kind, "response_format": {"type": "json_schema", "json_schema": {"schema": other}}}
    by_model = await new(client, handle, response_format=FORM, model_settings=settings)
    model.will()
    await say(client, by_agent)
    await say(client, by_model, "tokens")
    talk = await client.conversations.create(agent_id=by_agent.id, model_settings=settings)
    await got(client.conversations.messages.create(talk.id, input="go", streaming=False))
    assert [form_in(body) for body in model.asked] == [SCHEMA, other, other]


async def test_a_model_that_cannot_be_held_to_a_schema_is_told_it(client: Any, model: WireModel) -> None:
    agent = await new(client, ANTHROPIC, response_format=FORM)
    model.will()
    await say(client, agent)
    assert form_in(model.asked[0]) is None and json.dumps(SCHEMA, separators=(",", ":")) in str(
        model.asked[0]["system"]
    )


@pytest.mark.parametrize(
    "form", [{"type": "yaml"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {}}]
)
async def test_a_form_that_cannot_be_is_refused_when_it_is_written(client: Any, form: dict[str, Any]) -> None:
    agent = await new(client, OPENAI)
    for fields in ({"response_format": form}, {"model_settings": {"provider_type": "openai", "response_format": form}}):
        with pytest.raises(UnprocessableEntityError):
            await new(client, OPENAI, **fields)
        with pytest.raises(UnprocessableEntityError):
            await client.agents.update(agent.id, **fields)


def picture(**source: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": "what is this"}, {"type": "image", "source": source}]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("handle", HANDLES)
async def test_images_reach_the_model_and_stay_in_the_history(
    client: Any, model: WireModel, handle: str, way: str
) -> None:
    agent = await new(client, handle)
    model.will()
    await say(client, agent, way, input=picture(type="base64", media_type="image/png", data=PNG))
    await say(client, agent, way, input=picture(type="url", url="https://example.com/x.png"))
    sent = json.dumps(model.asked[-1]["messages"])
    assert PNG in sent and "https://example.com/x.png" in sent
    listed = [one async for one in await got(client.agents.messages.list(agent.id, order="asc"))]
    assert listed[1].content[1].source.data == PNG


@pytest.mark.parametrize(
    ("handle", "parts", "told"),
    [
        (OPENAI, picture(type="url", url="http://127.0.0.1:1/x.png"), "not a public address"),
        (OPENAI, picture(type="url", url="http://[::ffff:10.0.0.1]/x.png"), "not a public address"),
        (OPENAI, picture(type="letta", file_id="file-1"), "file id"),
        (OPENAI, picture(type="base64", media_type="image/bmp", data=PNG), "image/bmp"),
        (OPENAI, picture(type="base64", media_type="image/png", data="no base64!"), "not base64"),
        (OPENAI, picture(type="base64", media_type="image/png", data=PNG) * 21, "more than 20 images"),
        (BLIND, picture(type="base64", media_type="image/png", data=PNG), "does not accept images"),
    ],
)
async def test_images_that_cannot_be_shown_are_refused_before_the_turn(
    client: Any, model: WireModel, handle: str, parts: list[dict[str, Any]], told: str
) -> None:
    agent = await new(client, handle)
    model.will()
    for way in WAYS[:2]:
        with pytest.raises(BadRequestError, match=told):
            await say(client, agent, way, input=parts)
    assert model.asked == []
    assert (await say(client, agent))[1].stop_reason == "end_turn"


async def test_an_agent_with_images_answers_on_a_model_that_cannot_see(client: Any, model: WireModel) -> None:
    agent = await new(client, OPENAI)
    await say(client, agent, input=picture(type="base64", media_type="image/png", data=PNG))
    await client.agents.update(agent.id, model=BLIND)
    model.will()
    assert (await say(client, agent))[1].stop_reason == "end_turn"
    assert PNG not in json.dumps(model.asked[0]) and "cannot see images" in json.dumps(model.asked[0])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("own", "other"), [HANDLES, HANDLES[::-1]])
async def test_another_model_answers_one_turn_with_the_same_history(
    client: Any, model: WireModel, own: str, other: str, way: str
) -> None:
    agent = await new(client, own)
    model.will("first", "second", "third")
    await say(client, agent, input="one")
    await say(client, agent, way, input="two", override_model=other)
    await say(client, agent, input="three")
    assert [body["model"] for body in model.asked] == [h.partition("/")[2] for h in (own, other, own)]
    assert ("system" in model.asked[1]) == (other == ANTHROPIC)  # its own wire
    assert all(word in json.dumps(model.asked[2]["messages"]) for word in ("one", "first", "two", "second", "three"))
    assert (await client.agents.retrieve(agent.id)).model == own
    run = (await client.runs.list(agent_id=agent.id)).items[1]
    assert (await client.runs.steps.list(run.id)).items[0].model_handle == other
    with pytest.raises(NotFoundError, match="openai/nope"):
        await say(client, agent, way, override_model="openai/nope")


async def test_a_turn_may_have_its_own_prompt_and_skills(client: Any, model: WireModel) -> None:
    agent = await new(client, OPENAI, system="Be yourself.")
    model.will()
    skill = {"name": "sail", "description": "Sails a boat.", "location": "skills/sail.md"}
    await say(client, agent, override_system="Be brief.", client_skills=[skill])
    await say(client, agent)
    first, second = (body["messages"][0]["content"] for body in model.asked)
    assert first.startswith("Be brief.") and "sail: Sails a boat." in first and "Be yourself." not in first
    assert second.startswith("Be yourself.") and "sail" not in second


async def test_thoughts_go_back_to_who_signed_them_and_outlive_a_change_of_models(
    client: Any, model: WireModel
) -> None:
    agent = await new(client, THINKER, tools=["conversation_search"])
    model.will([("conversation_search", {"query": "x"})], "done")
    messages, _, _ = await say(client, agent)
    kinds = [one.message_type for one in messages]
    assert kinds[:3] == ["reasoning_message", "hidden_reasoning_message", "tool_call_message"]
    assert (messages[0].signature, messages[1].state, messages[1].hidden_reasoning) == ("c2ln", "redacted", "b3BhcXVl")
    thought = {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}
    again = model.asked[1]["messages"][1]["content"]
    assert again[:2] == [thought, {"type": "redacted_thinking", "data": "b3BhcXVl"}] and again[2]["type"] == "tool_use"
    model.will()
    await say(client, agent, override_model=OPENAI)
    await say(client, agent)
    assert "Let me see." not in json.dumps(model.asked[0]) and "c2ln" in json.dumps(model.asked[1])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("handle", HANDLES)
async def test_a_clients_tool_may_give_back_an_image(client: Any, model: WireModel, handle: str, way: str) -> None:
    agent = await new(client, handle)
    tool = {"name": "snap", "description": "Takes a picture.", "parameters": {"type": "object", "properties": {}}}
    model.will([("snap", {})], "a dot")
    messages, stop, _ = await say(client, agent, way, client_tools=[tool])
    assert stop.stop_reason == "requires_approval"
    call_id = messages[-1].tool_call.tool_call_id
    parts = picture(type="base64", media_type="image/png", data=PNG)
    answer = {"type": "tool", "tool_call_id": call_id, "tool_return": parts, "status": "success"}
    body = {"messages": [{"type": "approval", "approvals": [answer]}], "client_tools": [tool]}
    said = await client.agents.messages.create(agent.id, **body)
    assert said.messages[-1].content == "a dot"
    listed = [one async for one in await got(client.agents.messages.list(agent.id, order="asc"))]
    result = next(one for one in listed if one.message_type == "tool_return_message")
    assert result.tool_return == "what is this" and result.tool_returns[0].tool_return[1].source.data == PNG
    rows = model.asked[-1]["messages"]
    if handle == ANTHROPIC:
        given = next(part for part in rows[-1]["content"] if part["type"] == "tool_result")
        assert given["content"][1]["source"]["data"] == PNG
    else:
        assert [row["role"] for row in rows[-2:]] == ["tool", "user"]
        assert rows[-1]["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PNG}"
