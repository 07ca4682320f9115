"""An agent on the wire, checked by the SDK's own models."""

from typing import Any

import pytest
from letta_client.types import AgentState, BlockResponse, EmbeddingModel, Model, Step, Tool
from letta_client.types.agents import Run as SdkRun

from kelpie.core.agents import agent as core
from kelpie.core.agents.activation_state import ActivationState
from kelpie.core.agents.agent import ActivationStatus, Agent, AgentType, AgentView, ModelChoice, Secret, ToolRule
from kelpie.core.conversations.messages import Usage
from kelpie.core.conversations.runs import Run, RunStatus, StepStatus, StopReason
from kelpie.core.conversations.runs import Step as CoreStep
from kelpie.core.ids import DEFAULT_ORGANIZATION, BlockId, SecretId, ToolId
from kelpie.core.memory.blocks import Block
from kelpie.core.tools.tools import Tool as CoreTool
from kelpie.core.tools.tools import ToolType
from kelpie.llm.provider.interface import EmbeddingInfo, ModelInfo
from kelpie.server.letta.agents.shape import Facts, agent_shape
from kelpie.server.letta.blocks.shape import block_shape
from kelpie.server.letta.models.shape import embedding_shape, model_shape
from kelpie.server.letta.runs.shape import run_shape, step_shape
from kelpie.server.letta.tools.shape import tool_shape
from tests.server.rig import AGENT, AT, RUN, STEP

BLOCK = Block(BlockId("block-00000000-0000-4000-8000-000000000001"), "human", "Bob", AT, AT, tags=("t",))
TOOL = CoreTool(
    ToolId("tool-00000000-0000-4000-8000-000000000001"), "square", ToolType.custom, {"name": "square"}, AT, AT
)
SECRET = Secret(SecretId("agent-env-00000000-0000-4000-8000-000000000001"), "KEY", "value", AT, AT)
MODEL = ModelInfo("openai/gpt-4.1", "gpt-4.1", "openai", "openai", 128_000, "https://example.org/v1", 16_384)
EMBEDDING = EmbeddingInfo("openai/e", "e", "openai", "openai", 1536, "https://example.org/v1")
KNOWN = Facts({MODEL.handle: MODEL}.get, {EMBEDDING.handle: EMBEDDING})
NOTHING_KNOWN = Facts(lambda handle: None, {})

RULES = (
    ToolRule("run_first", "a"),
    ToolRule("constrain_child_tools", "a", {"children": ["b"]}),
    ToolRule("parent_last_tool", "a", {"children": ["b"]}),
    ToolRule("conditional", "a", {"child_output_mapping": {"x": "b"}}),
    ToolRule("max_count_per_step", "a", {"max_count_limit": 2}),
    ToolRule("exit_loop", "a"),
    ToolRule("continue_loop", "a"),
    ToolRule("required_before_exit", "a"),
    ToolRule("requires_approval", "a"),
)

ALWAYS = {
    "id", "name", "agent_type", "system", "message_ids", "tool_rules", "llm_config", "embedding_config",
    "model", "embedding", "model_settings", "compaction_settings", "response_format", "description", "metadata",
    "memory", "blocks", "tools", "sources", "tags", "tool_exec_environment_variables", "secrets", "project_id",
    "template_id", "base_template_id", "deployment_id", "entity_id", "identity_ids", "identities",
    "pending_approval", "message_buffer_autoclear", "enable_sleeptime", "multi_agent_group", "managed_group",
    "last_run_completion", "last_run_duration_ms", "last_stop_reason", "timezone", "max_files_open",
    "per_file_view_window_char_limit", "hidden", "created_by_id", "last_updated_by_id", "created_at",
    "updated_at", "kelpie_status", "kelpie_budget", "kelpie_facts", "kelpie_permissions",
    "kelpie_limits", "paused_until",
}  # fmt: skip


def agent(**fields: Any) -> Agent:
    given: dict[str, Any] = {
        "id": AGENT,
        "name": "Ann",
        "agent_type": AgentType.letta_v1_agent,
        "system": "Be kind.",
        "model": ModelChoice("openai/gpt-4.1", 32_000, max_tokens=100),
        "created_at": AT,
        "updated_at": AT,
    }
    return Agent(**given | fields)


def shape(known: Facts = KNOWN, **fields: Any) -> dict[str, Any]:
    return agent_shape(AgentView(agent(**fields)), known)


@pytest.mark.parametrize("known", [KNOWN, NOTHING_KNOWN])
@pytest.mark.parametrize("agent_type", list(AgentType))
def test_a_bare_agent_has_every_key_and_the_sdk_accepts_it(agent_type: AgentType, known: Facts) -> None:
    found = shape(known, agent_type=agent_type)
    assert set(found) == ALWAYS
    AgentState.model_validate(found)
    assert (found["embedding_config"], found["last_run_completion"]) == (None, None)
    assert found["created_at"] == "2023-11-14T22:13:20.123456Z"


def test_a_full_agent_is_accepted_by_the_sdk() -> None:
    full = agent(
        embedding="openai/e",
        tool_rules=RULES,
        tags=("a", "b"),
        metadata={"k": 1},
        compaction_settings={"mode": "sliding_window", "model": "openai/gpt-4.1"},
        response_format={"type": "text"},
        last_run_completion=AT,
        last_run_duration_ms=5,
        last_stop_reason=StopReason.end_turn,
    )
    status = ActivationStatus(ActivationState.failed, "could not load", AT, 3, AT)
    view = AgentView(full, blocks=(BLOCK,), tools=(TOOL,), secrets=(SECRET,), status=status)
    found = agent_shape(view, KNOWN)
    state = AgentState.model_validate(found)
    assert [block.label for block in state.memory.blocks] == ["human"] == [block.label for block in state.blocks]
    assert [tool.name for tool in state.tools] == ["square"]
    assert state.secrets and state.secrets[0].value == "value" and state.secrets[0].agent_id == AGENT
    assert state.tool_rules and [rule.type for rule in state.tool_rules] == [rule.type for rule in RULES]
    assert found["embedding_config"]["embedding_dim"] == 1536
    assert found["kelpie_status"]["state"] == "failed" and found["kelpie_status"]["error"] == "could not load"
    assert found["kelpie_status"]["failed_at"] == "2023-11-14T22:13:20.123456Z"


def test_rules_show_the_fields_of_their_type() -> None:
    shown = {rule["type"]: rule for rule in shape(tool_rules=RULES)["tool_rules"]}
    assert shown["run_first"] == {"tool_name": "a", "type": "run_first", "prompt_template": None, "args": None}
    assert shown["conditional"]["require_output_mapping"] is False and shown["conditional"]["default_child"] is None
    assert shown["constrain_child_tools"]["children"] == ["b"]


def test_the_model_is_told_in_three_ways_that_agree() -> None:
    settings = {
        "provider_type": "openai",
        "reasoning": {"reasoning_effort": "high"},
        "strict": True,
        "verbosity": "low",
    }
    choice = ModelChoice("openai/gpt-4.1", 32_000, 100, 0.2, True, settings)
    found = shape(model=choice)
    config, told = found["llm_config"], found["model_settings"]
    assert found["model"] == config["handle"] == "openai/gpt-4.1"
    assert (config["model"], config["model_endpoint"]) == ("gpt-4.1", "https://example.org/v1")
    assert config["context_window"] == 32_000
    assert config["max_tokens"] == told["max_output_tokens"] == 100
    assert config["temperature"] == told["temperature"] == 0.2
    assert config["parallel_tool_calls"] is told["parallel_tool_calls"] is True
    assert config["reasoning_effort"] == told["reasoning"]["reasoning_effort"] == "high"
    assert config["strict"] is told["strict"] is True


def test_defaults_of_a_model_nobody_asked_settings_for() -> None:
    told = shape()["model_settings"]
    assert told == {
        "max_output_tokens": 100,
        "parallel_tool_calls": True,
        "provider_type": "openai",
        "temperature": 1.0,
        "reasoning": {"reasoning_effort": "minimal"},
        "response_format": None,
        "strict": False,
    }


@pytest.mark.parametrize(("kind", "inner"), [(AgentType.letta_v1_agent, False), (AgentType.memgpt_agent, True)])
def test_who_is_asked_for_thoughts_in_arguments(kind: AgentType, inner: bool) -> None:
    assert shape(agent_type=kind)["llm_config"]["put_inner_thoughts_in_kwargs"] is inner


def test_everything_of_an_agent_has_a_place_on_the_wire() -> None:
    """A new field of the domain must be shown or be left out on purpose."""
    hidden = {"organization_id", "version", "stopped", "paused_at", "embedding_chunk_size"}
    hidden |= {"budget", "facts", "permits", "quota"}  # these have names of our own
    own = {field for field in core.Agent.__dataclass_fields__ if field not in hidden}
    assert own <= set(shape())


def test_the_other_shapes_are_accepted_by_the_sdk() -> None:
    BlockResponse.model_validate(block_shape(BLOCK))
    Tool.model_validate(tool_shape(TOOL))
    Model.model_validate(model_shape(MODEL))
    EmbeddingModel.model_validate(embedding_shape(EMBEDDING))
    run = Run(RUN, AGENT, RunStatus.completed, AT, AT, stop_reason=StopReason.end_turn, metadata={"run_type": "x"})
    SdkRun.model_validate(run_shape(run))
    step = CoreStep(STEP, RUN, AGENT, AT, StepStatus.failed, usage=Usage(1, 2, 3, 4), error={"type": "t"})
    shown = step_shape(step, DEFAULT_ORGANIZATION)
    Step.model_validate(shown)
    assert shown["error_type"] == "t" and shown["prompt_tokens_details"]["cached_tokens"] == 4
    assert shown["organization_id"] == DEFAULT_ORGANIZATION
