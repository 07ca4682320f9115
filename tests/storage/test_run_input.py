"""The input of a run comes back from its stored form as it was: a run is resumed with what its client asked for."""

from dataclasses import MISSING, fields
from typing import Any

import orjson

from kelpie.core.agents.agent import ModelChoice
from kelpie.core.agents.turn_overrides import Skill, TurnOverrides
from kelpie.core.conversations.agent_chain import AgentChain
from kelpie.core.conversations.approvals import ClientTool
from kelpie.core.conversations.messages import ApprovalDecision, NewMessage, Role, Text
from kelpie.core.ids import AgentId, MessageId, RunId
from kelpie.storage.runs.input import RunInput, run_input_from_json, run_input_to_json

ID = "00000000-0000-4000-8000-00000000000"
GIVEN = RunInput(
    messages=(NewMessage(Role.user, (Text("Hello"),), "bea", "otid-1", f"agent-{ID}1", "group-1"),),
    max_steps=7,
    answers=(ApprovalDecision("call-1", approve=False, reason="no", arguments='{"a": 1}'),),
    partial=True,
    request=MessageId(f"message-{ID}2"),
    earlier=(RunId(f"run-{ID}3"), RunId(f"run-{ID}4")),
    client_tools=(ClientTool("look", "Looks.", {"type": "object", "properties": {}}),),
    chain=AgentChain((AgentId(f"agent-{ID}5"),), 2),
    override=TurnOverrides(
        model=ModelChoice("openai/gpt-4.1-mini", 8000, 500, 0.3, True, {"thinking": {"type": "enabled"}}, True),
        system="Be brief.",
        skills=(Skill("tea", "Makes tea.", "skills/tea"),),
        instructions="Answer in verse.",
        response_format={"type": "json_object"},
    ),
    group_id="group-2",
    deltas=True,
)


def differs_from_its_default(value: Any, field: Any) -> bool:
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return default is MISSING or value != default


def test_every_field_comes_back_as_it_was() -> None:
    for whole in (GIVEN, GIVEN.messages[0], GIVEN.override, GIVEN.override and GIVEN.override.model, GIVEN.chain):
        assert whole is not None
        same = [each.name for each in fields(whole) if not differs_from_its_default(getattr(whole, each.name), each)]
        assert not same, "a field that has its default would come back although it is not stored"
    stored = orjson.dumps(run_input_to_json(GIVEN))
    assert run_input_from_json(orjson.loads(stored)) == GIVEN


def test_an_input_with_nothing_special_comes_back_as_it_was() -> None:
    plain = RunInput(messages=(NewMessage(Role.user, (Text("Hello"),)),), max_steps=50)
    assert run_input_from_json(orjson.loads(orjson.dumps(run_input_to_json(plain)))) == plain
