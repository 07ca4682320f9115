"""The request to the model has the settings of the agent, and those that a turn has of its own go before them."""

import pytest

from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.agents.agent import NewAgent
from kelpie.core.agents.turn_overrides import TurnOverrides
from kelpie.core.conversations.messages import NewMessage, Role, Text
from tests.agent.conftest import Rig

FORM = {"type": "json_schema", "json_schema": {"name": "one", "schema": {"type": "object"}}}
OTHER = {"type": "json_object"}


async def say(rig: Rig, agent_id, **options):
    turn = await rig.kelpie.api().sending.send(
        agent_id, SendRequest((NewMessage(Role.user, (Text("hi"),)),), **options)
    )
    events = [event async for event in turn.events()]
    assert events
    return rig.model.requests[-1]


@pytest.mark.parametrize("parallel", [False, True])
async def test_a_request_has_the_settings_of_its_agent(rig: Rig, parallel: bool):
    settings = {"temperature": 0.25, "max_output_tokens": 321, "parallel_tool_calls": parallel}
    agent = (await rig.kelpie.api().agents.create(NewAgent(model_settings=settings))).agent
    asked = await say(rig, agent.id)
    told = (asked.model, asked.temperature, asked.max_tokens, asked.parallel_tool_calls, asked.user)
    assert told == ("script", 0.25, 321, parallel, agent.id)
    assert asked.consumer == agent.consumer and not asked.deltas


async def test_the_form_of_answers_of_a_turn_goes_before_that_of_the_agent(rig: Rig):
    agent = (await rig.kelpie.api().agents.create(NewAgent(response_format=FORM))).agent
    assert (await say(rig, agent.id)).options["response_format"] == FORM
    own = await say(rig, agent.id, override=TurnOverrides(response_format=OTHER))
    assert own.options["response_format"] == OTHER
    assert (await say(rig, agent.id)).options["response_format"] == FORM, "and is for this turn only"


async def test_the_form_in_the_settings_of_the_model_goes_before_that_of_the_agent(rig: Rig):
    new = NewAgent(response_format=FORM, model_settings={"response_format": OTHER})
    agent = (await rig.kelpie.api().agents.create(new)).agent
    assert (await say(rig, agent.id)).options["response_format"] == OTHER


async def test_a_turn_of_no_steps_asks_nobody_and_stores_nothing(rig: Rig):
    agent = (await rig.kelpie.api().agents.create(NewAgent())).agent
    turn = await rig.kelpie.api().sending.send(
        agent.id, SendRequest((NewMessage(Role.user, (Text("hi"),)),), max_steps=0)
    )
    assert [event async for event in turn.events()] and rig.model.requests == []
    asked = await say(rig, agent.id)
    assert [entry.message.text for entry in asked.messages] == ["hi"]
