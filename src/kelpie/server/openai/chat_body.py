"""Request bodies of chat completions, and their translation into a client's history."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.access.identities import KEY_CHARS_MAX
from kelpie.core.conversations.client_histories import ClientMessage
from kelpie.core.conversations.messages import ToolCall
from kelpie.core.errors import InvalidInput
from kelpie.core.json_limits import ARGUMENTS
from kelpie.server.http.limits.free_json import JsonSchema
from kelpie.server.letta.messages.approval_body import CLIENT_TOOLS_MAX
from kelpie.server.openai.content import joined, parts_of, text_of

MESSAGES_MAX = 2000
CALLS_MAX = 256
MODEL_CHARS_MAX = 500


class CallFunction(BaseModel):
    """The function of a call, in the history that a client sends."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(max_length=1000)
    arguments: str = Field("", max_length=ARGUMENTS.bytes_max)


class CallBody(BaseModel):
    """A call of a client's tool, in the history that it sends."""

    model_config = ConfigDict(extra="ignore")

    id: str = Field(max_length=1000)
    function: CallFunction


class ChatMessage(BaseModel):
    """One message of the history."""

    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = Field(None, description="Text, or a list of text and image parts.")
    tool_calls: Annotated[list[CallBody], Field(max_length=CALLS_MAX, fail_fast=True)] | None = None
    tool_call_id: str | None = Field(None, max_length=1000)


class FunctionBody(BaseModel):
    """A function that the client runs itself."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9_-]+$")
    description: str | None = None
    parameters: JsonSchema | None = Field(None, description="JSON schema of the function's arguments.")


class ToolBody(BaseModel):
    """A tool of the client."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["function"]
    function: FunctionBody


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="ignore")

    include_usage: bool | None = None


class ChatBody(BaseModel):
    """A chat completion with an agent. Fields of OpenAI's API that are not listed here are ignored."""

    model_config = ConfigDict(extra="ignore")

    model: str = Field(min_length=1, max_length=MODEL_CHARS_MAX, description="The id or the name of an agent.")
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MESSAGES_MAX, fail_fast=True)]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    tools: Annotated[list[ToolBody], Field(max_length=CLIENT_TOOLS_MAX, fail_fast=True)] | None = Field(
        None, description="Tools that the client runs. A call to one ends the turn and waits for the result."
    )
    tool_choice: str | dict[str, Any] | None = Field(None, description="Only `auto` and `none`.")
    user: str | None = Field(
        None, max_length=KEY_CHARS_MAX, description="The client's key of its user, who becomes an identity."
    )
    safety_identifier: str | None = Field(None, max_length=KEY_CHARS_MAX, description="Same as `user`.")
    kelpie_conversation: str | None = Field(
        None,
        max_length=64,
        description="Send to this conversation: an id, `default`, or `user` for one that lasts for `user` (Kelpie).",
    )
    n: int | None = Field(None, description="Only 1.")
    logprobs: bool | None = Field(None, description="Not supported.")
    top_logprobs: int | None = Field(None, description="Not supported.")
    modalities: Annotated[list[str], Field(max_length=10)] | None = Field(None, description="Only text.")
    audio: dict[str, Any] | None = Field(None, description="Not supported.")
    functions: list[Any] | None = Field(None, description="Not supported; use `tools`.")
    function_call: Any = Field(None, description="Not supported; use `tools`.")
    response_format: dict[str, Any] | None = Field(None, description="`text`, `json_object` or `json_schema`.")

    @property
    def with_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def user_key(self) -> str:
        return self.user or self.safety_identifier or ""


def instructions_of(messages: Iterable[ChatMessage]) -> str | None:
    """The messages of the system and the developer, as one text. Raises InvalidInput."""
    return joined([text_of(one.content, "messages") for one in messages if one.role in ("system", "developer")])


def history_of(messages: Iterable[ChatMessage]) -> tuple[ClientMessage, ...]:
    """The messages of the user, the assistant and the client's tools. Raises InvalidInput."""
    return tuple(
        made for at, one in enumerate(messages) if (made := _message(one, f"messages[{at}].content")) is not None
    )


def _message(body: ChatMessage, field: str) -> ClientMessage | None:
    match body.role:
        case "user":
            if not (parts := parts_of(body.content, field)):
                raise InvalidInput(field, "must not be empty")
            return ClientMessage("user", parts)
        case "assistant":
            calls = tuple(ToolCall(one.id, one.function.name, one.function.arguments) for one in body.tool_calls or ())
            return ClientMessage("assistant", parts_of(body.content, field), calls)
        case "tool":
            if not body.tool_call_id:
                raise InvalidInput(field.replace("content", "tool_call_id"), "must name the call that this answers")
            return ClientMessage("tool", parts_of(body.content, field), call_id=body.tool_call_id)
        case _:
            return None
