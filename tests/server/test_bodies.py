"""What clients send, translated; and what is refused."""

from typing import Any, get_args

import pytest
from letta_client.types import ProviderType
from pydantic import ValidationError

from kelpie.core.agents.agent import ToolRule
from kelpie.core.conversations.messages import ApprovalDecision, CallAnswer, Image, NewMessage, Role, Text, ToolReturn
from kelpie.core.errors import InvalidId, InvalidInput
from kelpie.llm.routing.providers import ALL_OFFERS
from kelpie.server.http.errors import Unprocessable
from kelpie.server.letta.agents.body import CreateAgent, UpdateAgent, agent_changes, new_agent
from kelpie.server.letta.blocks.body import CreateBlock, UpdateBlock, block_changes, new_block
from kelpie.server.letta.compatibility import unsupported
from kelpie.server.letta.messages.approval_body import ClientToolBody, client_tools
from kelpie.server.letta.messages.body import SendBody, send_command
from kelpie.server.letta.tools.routes import CreateTool, UpdateTool, new_tool, tool_changes

TOOL = "tool-00000000-0000-4000-8000-000000000001"
BLOCK = "block-00000000-0000-4000-8000-000000000001"


def create(**fields: Any) -> CreateAgent:
    return CreateAgent.model_validate(fields)


def update(**fields: Any) -> UpdateAgent:
    return UpdateAgent.model_validate(fields)


def send(**fields: Any) -> SendBody:
    return SendBody.model_validate(fields)


def test_an_empty_body_is_an_agent_with_all_defaults() -> None:
    new = new_agent(create())
    assert (new.name, new.model, new.tool_rules, new.initial_messages) == (None, None, None, None)
    assert new.include_base_tools and new.embedding_chunk_size == 300


def test_the_fields_of_an_agent_are_taken_over() -> None:
    new = new_agent(
        create(
            name="Ann",
            model="openai/gpt-4.1",
            tags=["a"],
            tools=["square"],
            tool_ids=[TOOL],
            block_ids=[BLOCK],
            secrets={"K": "v"},
            tool_exec_environment_variables={"K": "old", "L": "w"},
            memory_blocks=[{"label": "human", "value": None, "limit": 5, "tags": ["t"]}],
            tool_rules=[
                {"type": "max_count_per_step", "tool_name": "square", "max_count_limit": 2, "prompt_template": "x"}
            ],
            initial_message_sequence=[{"role": "user", "content": "hi"}],
            metadata={"k": 1},
            zzz="an unknown field",
        )
    )
    assert (new.name, new.model, new.tags, new.tools) == ("Ann", "openai/gpt-4.1", ("a",), ("square",))
    assert (new.tool_ids, new.block_ids) == ((TOOL,), (BLOCK,))
    assert new.secrets == {"K": "v", "L": "w"}
    assert (new.memory_blocks[0].label, new.memory_blocks[0].value, new.memory_blocks[0].limit) == ("human", "", 5)
    assert new.tool_rules == (ToolRule("max_count_per_step", "square", {"max_count_limit": 2}),)
    assert new.initial_messages == (NewMessage(Role.user, (Text("hi"),)),)


def test_an_empty_sequence_is_not_the_same_as_none() -> None:
    assert new_agent(create(initial_message_sequence=[])).initial_messages == ()


def test_the_old_ways_to_name_a_model_still_work() -> None:
    old = {"model": "gpt-4o", "model_endpoint_type": "openai", "context_window": 9000, "max_tokens": 7}
    embedding = {"embedding_model": "e", "embedding_endpoint_type": "openai", "embedding_dim": 3}
    new = new_agent(create(llm_config=old, embedding_config=embedding))
    assert (new.model, new.context_window_limit, new.max_tokens) == ("openai/gpt-4o", 9000, 7)
    assert new.embedding == "openai/e"
    assert new_agent(create(llm_config={**old, "handle": "my/one"}, model="other/two")).model == "other/two"


def test_sending_model_settings_brings_the_providers_defaults_along() -> None:
    settings = new_agent(create(model_settings={"provider_type": "openai", "strict": False})).model_settings
    assert settings == {
        "provider_type": "openai",
        "temperature": 0.7,
        "parallel_tool_calls": True,
        "reasoning": {"reasoning_effort": "high"},
        "strict": False,
    }


@pytest.mark.parametrize("kind", [*get_args(ProviderType), *(offer.name for offer in ALL_OFFERS), "kelpie"])
def test_settings_of_every_provider_are_understood(kind: str) -> None:
    """All that the SDK knows, and all of ours, by the name under which its models are listed."""
    settings = new_agent(create(model_settings={"provider_type": kind, "num_ctx": 9})).model_settings
    assert settings is not None and (settings["provider_type"], settings["num_ctx"]) == (kind, 9)


@pytest.mark.parametrize("field", sorted(unsupported.AGENT_FIELDS))
def test_what_is_not_carried_out_yet_is_refused_by_name(field: str) -> None:
    values = {"memory_variables": {"a": "b"}, "from_template": "t", "enable_sleeptime": True, "template": True}
    values |= {"include_multi_agent_tools": True, "include_default_source": True}
    with pytest.raises(InvalidInput, match=field):
        new_agent(create(**{field: values.get(field, ["source-1"])}))


def test_false_and_empty_ask_for_nothing() -> None:
    new_agent(create(folder_ids=[], identity_ids=None, enable_sleeptime=False, template=False))


@pytest.mark.parametrize(
    "fields",
    [
        {"memory_blocks": "x"},
        {"agent_type": "bogus"},
        {"embedding": "noslash"},
        {"model": 5},
        {"context_window_limit": -5},
        {"model_settings": {"provider_type": "bogus"}},
        {"model_settings": {"provider_type": "anthropic", "thinking": {"type": "sometimes"}}},
        {"model_settings": {"provider_type": "anthropic", "thinking": {"type": "enabled", "budget_tokens": 1023}}},
        {"model_settings": {}},
        {"tool_rules": [{"type": "constrain_child_tools", "tool_name": "a"}]},
        {"tool_rules": [{"type": "bogus", "tool_name": "a"}]},
        {"memory_blocks": [{"value": "x"}]},
        {"initial_message_sequence": [{"role": "user"}]},
    ],
)
def test_bodies_that_do_not_validate(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        create(**fields)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_files_open": 5000}, "max_files_open"),
        ({"max_tokens": 100, "max_reasoning_tokens": 500}, "max_reasoning_tokens"),
        ({"initial_message_sequence": [{"role": "user", "content": ""}]}, "content"),
    ],
)
def test_values_that_cannot_be(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        new_agent(create(**fields))


def test_ids_in_bodies_are_checked() -> None:
    with pytest.raises(InvalidId):
        new_agent(create(tool_ids=["bogus"]))


def test_an_update_changes_only_what_is_given_and_not_null() -> None:
    assert agent_changes(update()) == {}
    assert agent_changes(update(name="n", description=None, tags=[], agent_type="x")) == {"name": "n", "tags": ()}
    assert agent_changes(update(tool_rules=[], secrets={}, hidden=False)) == {
        "tool_rules": (),
        "secrets": {},
        "hidden": False,
    }


def test_only_max_tokens_is_cleared_by_null() -> None:
    assert agent_changes(update(max_tokens=None)) == {"max_tokens": None}
    assert agent_changes(update(max_tokens=5)) == {"max_tokens": 5}


def test_blocks() -> None:
    new = new_block(CreateBlock.model_validate({"label": "a", "value": None, "metadata": None, "tags": ["t"]}))
    assert (new.value, dict(new.metadata), new.tags) == ("", {}, ("t",))
    changes = block_changes(
        UpdateBlock.model_validate({"value": "v", "description": None, "tags": ["t"], "read_only": False})
    )
    assert changes == {"value": "v", "tags": ("t",), "read_only": False}


def test_tools() -> None:
    new = new_tool(CreateTool(source_code="def f(): ...", tags=["t"], pip_requirements=None))
    assert (new.tags, new.pip_requirements) == (("t",), None)
    changes = tool_changes(
        UpdateTool.model_validate({"tags": [], "metadata_": {"a": 1}, "pip_requirements": [{"name": "x"}]})
    )
    assert changes == {"tags": (), "metadata": {"a": 1}, "pip_requirements": ({"name": "x", "version": None},)}


@pytest.mark.parametrize("fields", [{"name": "zzz"}, {"return_char_limit": 0}, {"source_type": "typescript"}])
def test_tools_that_do_not_validate(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CreateTool.model_validate({"source_code": "x", **fields})


# --- sending ----------------------------------------------------------------------------------------------------------


def test_input_is_a_users_message() -> None:
    command = send_command(send(input="hi", max_steps=3), streaming=False)
    assert command.messages == (NewMessage(Role.user, (Text("hi"),)),)
    assert (command.max_steps, command.deltas, command.run_type) == (3, False, "send_message")


def test_parts_and_roles() -> None:
    image = {"type": "url", "url": "https://example.org/x.png"}
    body = send(
        messages=[
            {"role": "system", "content": "note"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "see"}, {"type": "image", "source": image}],
                "otid": "o",
            },
            {"type": "message", "role": "assistant", "content": "me"},
        ]
    )
    system, user, assistant = send_command(body, streaming=False).messages
    assert (system.role, assistant.role) == (Role.system, Role.assistant)
    assert (user.content, user.otid) == ((Text("see"), Image(image)), "o")


def test_tokens_are_asked_for_only_when_streaming_them() -> None:
    command = send_command(send(input="hi", stream_tokens=True), streaming=True)
    assert command.deltas and command.run_type == "send_message_streaming"
    assert not send_command(send(input="hi"), streaming=True).deltas


@pytest.mark.parametrize("fields", [{}, {"input": "a", "messages": []}, {"input": "a", "max_steps": -1}, {"input": 5}])
def test_sends_that_do_not_validate(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        send(**fields)


@pytest.mark.parametrize("fields", [{"role": "robot", "content": "x"}, {"role": "user"}, {"content": "x"}])
def test_messages_that_do_not_validate(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        send(messages=[fields])


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": []},
        {"input": "a", "stream_tokens": True},
        {"input": "a", "background": True},
        {"input": "a", "include_pings": False},
    ],
)
def test_contradictions(fields: dict[str, Any]) -> None:
    with pytest.raises(Unprocessable):
        send_command(send(**fields), streaming=False)


@pytest.mark.parametrize("content", ["", [], [{"type": "text", "text": ""}]])
def test_nothing_cannot_be_sent(content: Any) -> None:
    with pytest.raises(InvalidInput, match="must not be empty"):
        send_command(send(input=content), streaming=False)


@pytest.mark.parametrize("part", [{"type": "tool_call"}, {"type": "text"}, {"type": "image", "source": {}}, {}])
def test_other_parts_are_refused(part: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        send_command(send(input=[part]), streaming=False)


@pytest.mark.parametrize("field", sorted(unsupported.SEND_FIELDS))
def test_send_options_not_carried_out_yet_are_refused_by_name(field: str) -> None:
    values: dict[str, Any] = {"top_logprobs": 2}
    with pytest.raises(InvalidInput, match=field):
        send_command(send(input="a", **{field: values.get(field, True)}), streaming=True)


@pytest.mark.parametrize(
    "message",
    [{"type": "approval", "approvals": []}, {"type": "tool_return", "tool_returns": []}, {"type": "approval"}],
)
def test_answers_without_any_are_refused(message: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="approvals"):
        send_command(send(messages=[message]), streaming=False)


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ({"approvals": [{"tool_call_id": "a", "approve": True}]}, ApprovalDecision("a", True)),
        (
            {"type": "approval", "approve": False, "approval_request_id": "m", "reason": "no"},
            ApprovalDecision("m", False, "no"),
        ),
        (
            {"approvals": [{"tool_call_id": "a", "approve": True, "arguments": {"x": 1}}]},
            ApprovalDecision("a", True, arguments='{"x":1}'),
        ),
        (
            {"tool_returns": [{"tool_call_id": "a", "tool_return": "r", "status": "error", "stdout": ["o"]}]},
            ToolReturn("a", "", False, "r", ("o",)),
        ),
        (
            {"approvals": [{"tool_call_id": "a", "tool_return": "r", "status": "success"}]},
            ToolReturn("a", "", True, "r"),
        ),
    ],
)
def test_answers_are_known_by_what_they_hold(message: dict[str, Any], answer: CallAnswer) -> None:
    made = send_command(send(messages=[message, {"role": "user", "content": "b"}]), streaming=False)
    assert made.answers == (answer,) and [m.content for m in made.messages] == [(Text("b"),)]


def test_client_tools_are_named_once() -> None:
    tool = {"name": "t", "parameters": {"type": "object"}}
    assert [t.name for t in send_command(send(input="a", client_tools=[tool]), streaming=False).client_tools] == ["t"]
    with pytest.raises(InvalidInput, match="t"):
        send_command(send(input="a", client_tools=[tool, tool]), streaming=False)


def test_parameters_of_a_client_tool_are_an_object() -> None:
    (plain,) = client_tools([ClientToolBody(name="look", parameters={"properties": {"q": {"type": "string"}}})])
    assert plain.parameters == {"type": "object", "properties": {"q": {"type": "string"}}}
    with pytest.raises(InvalidInput, match="parameters of 'look' must be a JSON schema of type object"):
        client_tools([ClientToolBody(name="look", parameters={"type": "string"})])
