"""Request bodies of responses, and their translation into a client's history."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kelpie.core.access.identities import KEY_CHARS_MAX
from kelpie.core.conversations.client_histories import PARAGRAPH, ClientMessage
from kelpie.core.conversations.messages import Part, Text, ToolCall
from kelpie.core.errors import InvalidInput
from kelpie.server.http.limits.free_json import Metadata
from kelpie.server.letta.messages.approval_body import CLIENT_TOOLS_MAX, ClientToolBody
from kelpie.server.openai.chat_body import MODEL_CHARS_MAX
from kelpie.server.openai.content import joined, parts_of, text_of
from kelpie.server.openai.unsupported import UnsupportedParameter

ITEMS_MAX = 4000


class ConversationBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str = Field(max_length=64)


class ResponseBody(BaseModel):
    """A response of an agent. Fields of OpenAI's API that are not listed here are ignored."""

    model_config = ConfigDict(extra="ignore")

    model: str = Field(min_length=1, max_length=MODEL_CHARS_MAX, description="The id or the name of an agent.")
    input: str | Annotated[list[dict[str, Any]], Field(min_length=1, max_length=ITEMS_MAX)] = Field(
        description="The user's message, or a list of items: messages, calls of the client's tools and their results."
    )
    instructions: str | None = Field(None, description="Instructions for this response only.")
    previous_response_id: str | None = Field(
        None, max_length=100, description="The response that this one follows, instead of the history."
    )
    conversation: str | ConversationBody | None = Field(
        None, description="The id of a conversation of the agent, or `default`."
    )
    store: bool | None = Field(True, description="Whether the response can be read again by its id.")
    stream: bool | None = False
    background: bool | None = Field(False, description="Whether to answer at once, and to work on without the client.")
    tools: Annotated[list[dict[str, Any]], Field(max_length=CLIENT_TOOLS_MAX)] | None = Field(
        None, description="Functions that the client runs. A call to one ends the response and waits for the result."
    )
    tool_choice: str | dict[str, Any] | None = Field(None, description="Only `auto` and `none`.")
    metadata: Metadata | None = None
    user: str | None = Field(
        None, max_length=KEY_CHARS_MAX, description="The client's key of its user, who becomes an identity."
    )
    safety_identifier: str | None = Field(None, max_length=KEY_CHARS_MAX, description="Same as `user`.")
    text: dict[str, Any] | None = Field(None, description="`format`: text, json_object or json_schema.")
    prompt: dict[str, Any] | None = Field(None, description="Not supported.")
    top_logprobs: int | None = Field(None, description="Not supported.")

    @property
    def user_key(self) -> str:
        return self.user or self.safety_identifier or ""

    @property
    def named_conversation(self) -> str | None:
        return self.conversation.id if isinstance(self.conversation, ConversationBody) else self.conversation

    def check(self) -> None:
        """Raises InvalidInput for fields that contradict each other, and UnsupportedParameter."""
        if self.prompt is not None:
            raise UnsupportedParameter("prompt", "prompts are not stored here; give the agent its instructions")
        if self.previous_response_id is not None and self.conversation is not None:
            raise InvalidInput("conversation", "give either this or previous_response_id")
        if self.background and self.store is False:
            raise InvalidInput("store", "a response in the background must be stored")

    @property
    def format(self) -> Mapping[str, Any] | None:
        form = (self.text or {}).get("format")
        return form if isinstance(form, Mapping) else None


def tool_bodies(tools: Sequence[Mapping[str, Any]]) -> list[ClientToolBody]:
    """The client's functions. Raises UnsupportedParameter for tools of OpenAI, and what validation raises."""
    for tool in tools:
        if tool.get("type") != "function":
            kind = str(tool.get("type"))[:80]
            raise UnsupportedParameter(
                "tools", f"tools of type '{kind}' are OpenAI's own; attach tools to the agent, or send functions"
            )
    try:
        return [ClientToolBody.model_validate(tool) for tool in tools]
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput("tools", f"{where}: {first['msg']}") from None


def history_of(given: str | Sequence[Mapping[str, Any]]) -> tuple[tuple[ClientMessage, ...], str | None]:
    """The messages of a request, and the instructions among them. References must be resolved. Raises InvalidInput."""
    if isinstance(given, str):
        if not given.strip():
            raise InvalidInput("input", "must not be empty")
        return (ClientMessage("user", (Text(given),)),), None
    found: list[ClientMessage] = []
    instructions: list[str] = []
    for at, item in enumerate(given):
        field = f"input[{at}]"
        match item:
            case {"role": "system" | "developer"}:
                instructions.append(text_of(item.get("content"), field))
            case {"role": "user"}:
                found.append(ClientMessage("user", _required(parts_of(item.get("content"), field), field)))
            case {"role": "assistant"}:
                _say(found, parts_of(item.get("content"), field), ())
            case {"type": "function_call", "call_id": str(call_id), "name": str(name)}:
                arguments = item.get("arguments")
                _say(found, (), (ToolCall(call_id, name, arguments if isinstance(arguments, str) else "{}"),))
            case {"type": "function_call_output", "call_id": str(call_id)}:
                found.append(ClientMessage("tool", parts_of(item.get("output"), field), call_id=call_id))
            case {"type": "reasoning"}:
                continue  # the agent has its own thoughts in its history
            case _:
                kind = str(item.get("type") or "without a type")[:80]
                raise InvalidInput(
                    field, f"items {kind} cannot be sent; use messages, function calls and their outputs"
                )
    return tuple(found), joined(instructions)


def _required(parts: tuple[Part, ...], field: str) -> tuple[Part, ...]:
    if not parts:
        raise InvalidInput(field, "must not be empty")
    return parts


def _say(found: list[ClientMessage], parts: tuple[Part, ...], calls: tuple[ToolCall, ...]) -> None:
    """Adds to the answer of the assistant, which is several items here and one message of a history."""
    if not found or found[-1].role != "assistant":
        found.append(ClientMessage("assistant", parts, calls))
        return
    before = found.pop()
    gap = (Text(PARAGRAPH),) if before.content and parts else ()
    found.append(ClientMessage("assistant", (*before.content, *gap, *parts), (*before.calls, *calls)))
