"""Manual runs of tools: one of an agent's, or a source that is not stored. A tool that fails is a 200 all the same."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kelpie.agent.resources.manual_tool_runs import ManualToolResult
from kelpie.core.tools.tools import NewTool
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.limits.free_json import Arguments as ToolArguments
from kelpie.server.http.limits.free_json import JsonSchema
from kelpie.server.http.path_ids import AgentPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.times import date
from kelpie.server.letta.tools.body import Requirements, SourceType, requirements
from kelpie.server.letta.tools.confinement_body import ToolSandboxBody
from kelpie.server.letta.tools.field_aliases import unaliased

VARIABLES_MAX = 256
NOWHERE = "null"  # the text that Letta gives as the id of what is not stored

router = resource("/tools", "tools")
agent_router = resource("/agents/{agent_id}/tools", "tools")

Variable = Annotated[str, Field(pattern=r"^[^=\s\x00]{1,256}$")]
Value = Annotated[str, Field(max_length=100_000, pattern=r"^[^\x00]*$")]


class RunTool(BaseModel):
    """A source to run once, with its arguments."""

    model_config = ConfigDict(extra="forbid")

    source_code: str
    args: ToolArguments
    env_vars: Annotated[dict[Variable, Value], Field(max_length=VARIABLES_MAX)] | None = None
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$")] | None = Field(
        None, description="The function to run, if the source code has several."
    )
    source_type: SourceType | None = None
    args_json_schema: JsonSchema | None = None
    json_schema: JsonSchema | None = None
    pip_requirements: Requirements | None = None
    npm_requirements: Requirements | None = None
    kelpie_sandbox: ToolSandboxBody | None = None

    @model_validator(mode="before")
    @classmethod
    def _aliases(cls, given: Any) -> Any:
        return unaliased(given)


class Arguments(BaseModel):
    args: ToolArguments = Field(default_factory=dict[str, Any])


@router.post("/run", summary="Run a tool's source code without storing it", response_model=None)
async def run_source(api: CallerApi, body: RunTool) -> JsonAnswer:
    schema = body.json_schema
    if schema is None and body.source_type == "typescript":
        schema = await api.tools.sources.typescript_schema(body.source_code)
    tried = await api.manual_tool_runs.attempt(_tool(body, schema), body.name, body.args, body.env_vars or {})
    return JsonAnswer(_message_shape(tried, api.world.clock.now()))


@agent_router.post("/{tool_name}/run", summary="Run a tool of an agent", response_model=None)
async def run_tool(api: CallerApi, agent_id: AgentPath, tool_name: str, body: Arguments) -> JsonAnswer:
    tried = await api.manual_tool_runs.run(agent_id, tool_name, body.args)
    return JsonAnswer(
        {
            "status": _status(tried),
            "func_return": tried.value,
            "agent_state": None,
            "stdout": _pieces(tried.outcome.stdout),
            "stderr": _pieces(tried.outcome.stderr),
            "sandbox_config_fingerprint": (tried.tool.metadata or {}).get("tool_hash"),
        }
    )


def _tool(body: RunTool, schema: dict[str, Any] | None) -> NewTool:
    return NewTool(
        body.source_code,
        schema,
        body.args_json_schema,
        source_type=body.source_type,
        pip_requirements=requirements(body.pip_requirements),
        npm_requirements=requirements(body.npm_requirements),
        sandbox=body.kelpie_sandbox.stored() if body.kelpie_sandbox else {},
    )


def _message_shape(tried: ManualToolResult, now: int) -> dict[str, Any]:
    outcome = tried.outcome
    result = {
        "tool_return": outcome.text,
        "status": _status(tried),
        "tool_call_id": NOWHERE,
        "stdout": _pieces(outcome.stdout),
        "stderr": _pieces(outcome.stderr),
    }
    return {
        "id": NOWHERE,
        "date": date(now),
        "name": None,
        "message_type": "tool_return_message",
        "otid": None,
        "sender_id": None,
        "step_id": None,
        "is_err": None,
        "seq_id": None,
        "run_id": None,
        **result,
        "tool_returns": [{"type": "tool", **result}],
    }


def _status(tried: ManualToolResult) -> str:
    return "success" if tried.outcome.ok else "error"


def _pieces(printed: tuple[str, ...] | None) -> list[str] | None:
    return None if printed is None else list(printed)
