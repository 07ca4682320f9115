"""The input of a run comes back from its stored form as it was: a run is resumed with what its client asked for."""

from dataclasses import MISSING, fields, replace
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


def test_every_field_comes_back_by_itself() -> None:
    """Also where none of the others is given, which may decide whether it is stored."""
    plain = RunInput(messages=(NewMessage(Role.user, (Text("Hello"),)),), max_steps=50)
    chains = [AgentChain((), 3), AgentChain((AgentId(f"agent-{ID}5"),), 0)]
    names = [each.name for each in fields(GIVEN) if each.name != "partial"]  # which says something of answers only
    alone = [replace(plain, **{name: getattr(GIVEN, name)}) for name in names]
    for given in (*alone, *(replace(plain, chain=chain) for chain in chains)):
        assert run_input_from_json(orjson.loads(orjson.dumps(run_input_to_json(given)))) == given


def test_every_override_comes_back_by_itself() -> None:
    assert GIVEN.override is not None
    for each in fields(TurnOverrides):
        own = TurnOverrides(**{**vars_of(TurnOverrides()), each.name: getattr(GIVEN.override, each.name)})
        given = RunInput((), 1, override=own)
        assert run_input_from_json(orjson.loads(orjson.dumps(run_input_to_json(given)))) == given


def vars_of(value: TurnOverrides) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value)}
