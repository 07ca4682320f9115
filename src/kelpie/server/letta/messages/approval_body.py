"""Answers to waiting calls in requests: approval decisions, results of the client's own tools, and the older forms."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from kelpie.core.conversations.approvals import ClientTool
from kelpie.core.conversations.messages import ApprovalDecision, CallAnswer, ToolReturn
from kelpie.core.errors import InvalidInput
from kelpie.core.json_limits import ARGUMENTS
from kelpie.server.http.limits.free_json import Arguments, JsonSchema
from kelpie.server.letta.messages.content_body import return_parts

ANSWERS_MAX = 1000
CLIENT_TOOLS_MAX = 256
LINES_MAX = 10_000


class ApprovalBody(BaseModel):
    """A decision on one call: approve or deny."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["approval"] = "approval"
    tool_call_id: str = Field(max_length=1000)
    approve: bool
    reason: str | None = None
    arguments: Annotated[str, Field(max_length=ARGUMENTS.bytes_max)] | Arguments | None = Field(
        None, description="Arguments to use instead of the model's: a JSON object (Kelpie)."
    )


class ToolReturnBody(BaseModel):
    """The result of a client's own tool."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["tool"] = "tool"
    tool_call_id: str = Field(max_length=1000)
    tool_return: str | list[dict[str, Any]] = Field(description="Text, or a list of text and image parts.")
    status: Literal["success", "error"]
    stdout: Annotated[list[str], Field(max_length=LINES_MAX, fail_fast=True)] | None = None
    stderr: Annotated[list[str], Field(max_length=LINES_MAX, fail_fast=True)] | None = None


def _guessed(value: Any) -> Any:
    """An answer without a type is a result if it has one."""
    if isinstance(value, dict) and "type" not in value:
        return {**value, "type": "tool" if "tool_return" in value else "approval"}
    return value


AnswerBody = Annotated[Annotated[ApprovalBody | ToolReturnBody, Field(discriminator="type")], BeforeValidator(_guessed)]


class ClientToolBody(BaseModel):
    """A tool that the client runs itself."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9_-]+$")
    description: str | None = None
    parameters: JsonSchema | None = Field(None, description="JSON schema of the tool's arguments.")


class ApprovalFields(BaseModel):
    """The fields with which a message answers waiting calls."""

    approvals: Annotated[list[AnswerBody], Field(max_length=ANSWERS_MAX, fail_fast=True)] | None = None
    tool_returns: Annotated[list[ToolReturnBody], Field(max_length=ANSWERS_MAX, fail_fast=True)] | None = None
    partial: bool = Field(False, description="Keep waiting for the calls that are not answered here (Kelpie).")
    approve: bool | None = Field(None, json_schema_extra={"deprecated": True})
    approval_request_id: str | None = Field(None, max_length=1000, json_schema_extra={"deprecated": True})
    reason: str | None = None

    def answers(self) -> Iterator[CallAnswer]:
        """Raises InvalidInput."""
        for answer in self.approvals or ():
            yield _ruling(answer) if isinstance(answer, ApprovalBody) else _returned(answer)
        for answer in self.tool_returns or ():
            yield _returned(answer)
        if self.approvals is None and self.approve is not None:
            yield ApprovalDecision(self.approval_request_id or "", self.approve, self.reason)


def _ruling(body: ApprovalBody) -> ApprovalDecision:
    arguments = body.arguments
    if isinstance(arguments, str):
        try:
            parsed = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            parsed = None
        if not isinstance(parsed, dict):
            raise InvalidInput("arguments", f"those for {body.tool_call_id[:80]} must be a JSON object")
    elif arguments is not None:
        arguments = orjson.dumps(arguments).decode()
    return ApprovalDecision(body.tool_call_id, body.approve, body.reason, arguments)


def _returned(body: ToolReturnBody) -> ToolReturn:
    text, content = return_parts(body.tool_return, "tool_return")
    stdout, stderr = (None if lines is None else tuple(lines) for lines in (body.stdout, body.stderr))
    return ToolReturn(body.tool_call_id, "", body.status == "success", text, stdout, stderr, content=content)


def client_tools(bodies: list[ClientToolBody]) -> tuple[ClientTool, ...]:
    """Raises InvalidInput for two tools of one name, and for parameters that are not an object."""
    names = [body.name for body in bodies]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInput("client_tools", f"names must be unique; repeated: {', '.join(twice)}")
    for body in bodies:
        if (body.parameters or {}).get("type", "object") != "object":
            remedy = f"the parameters of '{body.name}' must be a JSON schema of type object"
            raise InvalidInput("client_tools", remedy)
    empty = {"type": "object", "properties": {}}
    return tuple(ClientTool(body.name, body.description, empty | (body.parameters or {})) for body in bodies)
