"""Another model or prompt for one turn: it goes by it to its end, over a crash too, and nothing of it stays."""

import asyncio
from dataclasses import replace

import pytest

from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.agents.agent import AgentType, ModelChoice, NewAgent
from kelpie.core.agents.turn_overrides import Skill, TurnOverrides
from kelpie.core.conversations.messages import NewMessage, Role, Text
from kelpie.core.conversations.runs import RunQuery, RunStatus
from kelpie.core.errors import ModelError, ModelFault, NotFound
from kelpie.llm.provider.interface import ModelInfo
from kelpie.storage.runs.turn_overrides import override_from_json, override_to_json
from tests.agent.conftest import Rig, ScriptModel, ended, says

OTHER = "test/other"
THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


class TwoModels(ScriptModel):
    """One that is asked for its thoughts, and one that has its own."""

    def describe(self, name: str) -> ModelInfo:
        settings = THINKING if name == "other" else {}
        return replace(super().describe(name), handle=f"test/{name}", settings=settings)

    async def models(self):
        return [self.describe("script"), self.describe("other")]


@pytest.fixture
async def rig(tmp_path):
    made = Rig(tmp_path / "kelpie.db")
    made.model = TwoModels()
    await made.start()
    yield made
    await made.stop()


def test_it_is_stored_as_it_is():
    choice = ModelChoice("a/b", 1000, 10, 0.5, True, {"x": 1})
    for override in (TurnOverrides(choice, "s", (Skill("n", "d", "l"),)), TurnOverrides(), TurnOverrides(system="")):
        assert override_from_json(override_to_json(override)) == override
    assert override_from_json(None) is None


async def test_one_turn_has_it_and_the_next_does_not(rig: Rig):
    agent = (
        await rig.kelpie.api().agents.create(NewAgent(name="a", system="Own.", response_format={"type": "text"}))
    ).agent
    own = TurnOverrides(system="Another.", skills=(Skill("sail", "Sails.", "s.md"),))
    await rig.say(agent.id, "one", override=own, override_model=OTHER)
    await rig.say(agent.id, "two")
    first, second = rig.model.requests
    assert (first.model, second.model) == ("other", "script")
    assert first.system.startswith("Another.") and "sail" in first.system and second.system.startswith("Own.")
    assert first.options["thinking"] == THINKING["thinking"] and "thinking" not in second.options
    assert [row.message.text for row in second.messages] == ["one", "ok", "two"]
    with pytest.raises(NotFound, match="test/none"):
        await rig.say(agent.id, "x", override_model="test/none")


async def test_nothing_of_it_stays_after_a_turn_that_fails(rig: Rig):
    """Also where the agent is not loaded again: the provider refused, or the client cancelled."""
    agent = (await rig.kelpie.api().agents.create(NewAgent(name="a", system="Own."))).agent
    rig.model.script = [ModelError(ModelFault.bad_request, "The model refused.")]
    told = await rig.say(agent.id, "one", override=TurnOverrides(system="Another."), override_model=OTHER)
    assert ended(told).error is not None
    await rig.say(agent.id, "two")
    failed, second = rig.model.requests[0], rig.model.requests[-1]
    assert (failed.model, second.model) == ("other", "script")
    assert failed.system.startswith("Another.") and second.system.startswith("Own.")


async def test_the_history_has_the_form_of_the_model_that_reads_it(rig: Rig):
    """The thoughts of an older type stand in its calls, but not for a model that thinks by itself."""
    new = NewAgent(name="m", agent_type=AgentType.memgpt_agent)
    agent_id = (await rig.kelpie.api().agents.create(new)).agent.id
    call = ("send_message", {"thinking": "hm", "message": "hello"})
    rig.model.script = [says("", call), says("", ("send_message", {"message": "there"})), says("", call)]
    for model in (None, OTHER, None):
        assert ended(await rig.say(agent_id, "hi", override_model=model)).error is None
    inner = [
        any('"thinking"' in c.arguments for r in q.messages for c in r.message.tool_calls) for q in rig.model.requests
    ]
    assert inner == [True, False, True]  # the first messages of the type have a thought too
    offered = ["thinking" in q.tools[0].parameters["properties"] for q in rig.model.requests]
    assert offered == [True, False, True]


async def test_a_turn_in_the_background_has_it_still_after_a_crash(rig: Rig):
    agent_id = (await rig.kelpie.api().agents.create(NewAgent(name="a"))).agent.id
    said = (NewMessage(Role.user, (Text("go"),)),)
    send = SendRequest(said, override=TurnOverrides(system="Another."), override_model=OTHER)
    rig.model.hold = asyncio.Event()
    await rig.kelpie.api().background_runs.accept(agent_id, send)
    async with asyncio.timeout(10):
        while not rig.model.requests:  # noqa: ASYNC110 - the model is asked in its own time
            await asyncio.sleep(0.005)
    await rig.stop()  # in the middle of the model call
    rig.model.hold, asked = None, len(rig.model.requests)
    await rig.start()
    async with asyncio.timeout(10):
        while [run.status for run in await rig.kelpie.api().runs.page(RunQuery())] != [RunStatus.completed]:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    again = rig.model.requests[asked]
    assert (again.model, again.system) == ("other", "Another.")
