"""Each provider that is set up: it lists models, answers whole and in pieces, calls a tool, and goes on after it."""

import json
from contextlib import aclosing
from dataclasses import replace

import pytest

from kelpie.core.conversations.messages import Message, Role, Text, ToolReturn
from kelpie.core.ids import AgentId, MessageId
from kelpie.llm.provider.interface import PreparedMessage, Reply, Request, TextDelta, ToolSchema
from kelpie.world.ids import RandomIds
from tests.live.conftest import chosen, made

pytestmark = pytest.mark.live

ROLL = ToolSchema(
    "roll_dice",
    "Rolls a die and gives the number.",
    {"type": "object", "properties": {"sides": {"type": "integer"}}, "required": ["sides"]},
)
TOKENS_MAX = 2000  # room for a model that thinks first


def said(text: str) -> PreparedMessage:
    ids = RandomIds()
    return PreparedMessage(Message(ids.new(MessageId), ids.new(AgentId), Role.user, 0, (Text(text),)))


def text_of(reply: Reply) -> str:
    return "".join(part.text for part in reply.content if isinstance(part, Text))


async def test_a_model_is_listed_with_what_it_can_do(provider: str) -> None:
    models = made()
    try:
        model = await chosen(models, provider)
        assert model.handle.startswith(f"{provider}/")
        assert model.context_window > 0
        assert (await models.resolve(model.handle)).handle == model.handle
        assert await models.check(model.handle)
    finally:
        await models.close()


@pytest.mark.parametrize("deltas", [False, True], ids=["whole", "streamed"])
async def test_it_answers(provider: str, deltas: bool) -> None:
    models = made()
    try:
        model = await chosen(models, provider)
        speaker, name = models.provider(model.handle)
        question = said("What is the capital of France? Answer with one word.")
        request = Request(
            model=name, system="You answer briefly.", messages=[question], max_tokens=TOKENS_MAX, deltas=deltas
        )
        async with aclosing(speaker.stream(request)) as events:
            heard = [event async for event in events]
        reply = heard[-1]
        assert isinstance(reply, Reply)
        assert "paris" in text_of(reply).lower()
        assert reply.usage.completion_tokens > 0
        pieces = "".join(event.text for event in heard if isinstance(event, TextDelta))
        assert pieces == (text_of(reply) if deltas else "")
    finally:
        await models.close()


async def test_it_calls_a_tool(provider: str) -> None:
    models = made()
    try:
        model = await chosen(models, provider)
        if not model.tools:
            pytest.skip(f"{model.handle} calls no tools")
        speaker, name = models.provider(model.handle)
        request = Request(
            model=name,
            system="Use the tools you have.",
            messages=[said("Roll a die with 20 sides.")],
            tools=[ROLL],
            tool_choice="required",
            max_tokens=TOKENS_MAX,
        )
        async with aclosing(speaker.stream(request)) as events:
            reply = [event async for event in events][-1]
        assert isinstance(reply, Reply)
        assert reply.tool_calls[0].name == "roll_dice"
        assert json.loads(reply.tool_calls[0].arguments)["sides"] == 20
    finally:
        await models.close()


@pytest.mark.parametrize("deltas", [False, True], ids=["whole", "streamed"])
async def test_its_thoughts_are_taken_back_after_a_tool_call(provider: str, deltas: bool) -> None:
    """A provider checks that the thoughts before a call are its own; a wrong one would be refused."""
    models = made()
    try:
        model = await chosen(models, provider)
        if not (model.reasoning and model.tools):
            pytest.skip(f"{model.handle} does not reason and call tools; choose another with LIVE_MODEL_...")
        speaker, name = models.provider(model.handle)
        history = [said("Call the tool roll_dice with 20 sides, then tell me the number.")]
        for _ in range(2):
            request = Request(
                model=name,
                system="Use the tools you have.",
                messages=history,
                tools=[ROLL],
                max_tokens=2 * TOKENS_MAX,
                deltas=deltas,
                options=model.settings,
            )
            async with aclosing(speaker.stream(request)) as events:
                reply = [event async for event in events][-1]
            assert isinstance(reply, Reply)
            if not reply.tool_calls:
                break
            asked = replace(history[0].message, role=Role.assistant, content=reply.content, tool_calls=reply.tool_calls)
            results = tuple(ToolReturn(call.id, call.name, True, "17") for call in reply.tool_calls)
            given = replace(history[0].message, role=Role.tool, content=(), tool_returns=results)
            history += [PreparedMessage(asked), PreparedMessage(given)]
        assert len(history) == 3, "no tool was called"
        assert "17" in text_of(reply)
    finally:
        await models.close()
