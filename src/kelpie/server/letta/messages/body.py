"""Request bodies for messages to an agent, and their translation into a send request."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kelpie.agent.turn.send_request import MAX_STEPS_DEFAULT, SendRequest
from kelpie.core.agents.turn_overrides import Skill, TurnOverrides
from kelpie.core.conversations.messages import NewMessage, Role
from kelpie.core.errors import InvalidInput
from kelpie.server.http.errors import Unprocessable
from kelpie.server.http.limits.request_limits import Links
from kelpie.server.letta.compatibility import unsupported
from kelpie.server.letta.messages.approval_body import CLIENT_TOOLS_MAX, ApprovalFields, ClientToolBody, client_tools
from kelpie.server.letta.messages.content_body import Content, content_parts
from kelpie.server.letta.messages.shape import View

MESSAGES_MAX = 1000
STEPS_MAX = 10_000
SKILLS_MAX = 200
SKILL_CHARS_MAX = 2_000


class MessageBody(ApprovalFields):
    """One message. Approvals and results of client tools have their own type."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["message", "approval", "tool_return"] | None = "message"
    role: Literal["user", "system", "assistant"] | None = None
    content: Content | None = None
    name: str | None = None
    otid: str | None = Field(None, description="The client's own id for this message. Generated if omitted.")
    sender_id: str | None = None
    group_id: str | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> "MessageBody":
        if self.kind == "message" and (self.role is None or self.content is None):
            raise ValueError("a message needs role and content")
        return self

    @property
    def kind(self) -> str:
        if self.approvals is not None or self.approve is not None:
            return "approval"
        return "tool_return" if self.tool_returns is not None else self.type or "message"


class ClientSkill(BaseModel):
    """A skill of the client's environment: the place of its description, and its purpose."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(max_length=SKILL_CHARS_MAX)
    description: str = Field(max_length=SKILL_CHARS_MAX)
    location: str = Field(max_length=SKILL_CHARS_MAX)


class SendBody(BaseModel):
    """Messages for an agent: exactly one of `input` and `messages`."""

    model_config = ConfigDict(extra="ignore")

    input: Content | None = Field(None, description="The user's message: text or a list of parts.")
    messages: Annotated[list[MessageBody], Field(max_length=MESSAGES_MAX, fail_fast=True)] | None = None
    max_steps: int | None = Field(
        None, ge=0, le=STEPS_MAX, description="Maximum number of model calls. Defaults to the server's default."
    )
    use_assistant_message: bool = True
    assistant_message_tool_name: str = "send_message"
    assistant_message_tool_kwarg: str = "message"
    include_return_message_types: Links | None = None
    include_compaction_messages: bool = False
    streaming: bool = Field(False, description="Answer with server-sent events.")
    stream_tokens: bool = Field(False, description="Stream tokens as the model writes them, instead of whole messages.")
    include_pings: bool = True
    kelpie_stop_on_disconnect: bool = Field(
        False, description="Whether to cancel the turn when the client closes the stream (Kelpie)."
    )
    background: bool = False
    client_tools: Annotated[list[ClientToolBody], Field(max_length=CLIENT_TOOLS_MAX, fail_fast=True)] | None = Field(
        None, description="Tools that the client runs. A call to one ends the turn and waits for the result."
    )
    client_skills: Annotated[list[ClientSkill], Field(max_length=SKILLS_MAX)] | None = Field(
        None, description="Skills of the client's environment, listed in the prompt of this turn."
    )
    override_model: str | None = Field(None, description="The handle of another model, for this turn only.")
    override_system: str | None = Field(None, description="Another complete system prompt, for this turn only.")
    system: str | None = Field(None, description="Same as `override_system`.")
    return_logprobs: bool = False
    top_logprobs: int | None = None
    return_token_ids: bool = False

    @model_validator(mode="after")
    def _has_one_input(self) -> "SendBody":
        if (self.input is None) == (self.messages is None):
            raise ValueError("give exactly one of 'input' and 'messages'")
        return self

    @property
    def view(self) -> View:
        types = self.include_return_message_types
        return View(
            self.use_assistant_message,
            self.assistant_message_tool_name,
            self.assistant_message_tool_kwarg,
            None if types is None else frozenset(types),
            self.include_compaction_messages,
        )


class AsyncBody(SendBody):
    """The same for a send whose client does not wait."""

    callback_url: str | None = Field(
        None, max_length=2048, description="URL (http or https) that gets a POST when the run has ended."
    )


class ThreadSendBody(SendBody):
    """The same for a conversation, where the answer comes as a stream unless that is switched off."""

    agent_id: str | None = Field(None, description="The agent, if the path says `default`.")
    streaming: bool = Field(True, description="Answer with server-sent events.")


def send_command(body: SendBody, *, streaming: bool, max_steps: int = MAX_STEPS_DEFAULT) -> SendRequest:
    """The send request for the agent. Raises InvalidInput, or Unprocessable when options contradict each other."""
    if not streaming:
        _refuse_streaming_options(body)
    unsupported.refuse({name: getattr(body, name) for name in unsupported.SEND_FIELDS}, unsupported.SEND_FIELDS)
    if body.messages is not None and not body.messages:
        raise Unprocessable("messages: must not be empty")
    given = body.messages or ()
    if body.input is not None:
        messages = (NewMessage(Role.user, content_parts(body.input, "input")),)
    else:
        messages = tuple(new_message(message) for message in given if message.kind == "message")
    answering = [message for message in given if message.kind != "message"]
    answers = tuple(answer for message in answering for answer in message.answers())
    if answering and not answers:
        raise InvalidInput("approvals", "answer at least one of the waiting tool calls")
    return SendRequest(
        messages,
        answers=answers,
        partial=any(message.partial for message in answering),
        client_tools=client_tools(body.client_tools or []),
        max_steps=max_steps if body.max_steps is None else body.max_steps,
        deltas=streaming and body.stream_tokens,
        run_type="send_message_streaming" if streaming else "send_message",
        override=_override(body),
        override_model=body.override_model or None,
        request_config={
            "use_assistant_message": body.use_assistant_message,
            "assistant_message_tool_name": body.assistant_message_tool_name,
            "assistant_message_tool_kwarg": body.assistant_message_tool_kwarg,
            "include_return_message_types": body.include_return_message_types,
            **({"include_compaction_messages": True} if body.include_compaction_messages else {}),
        },
    )


def _override(body: SendBody) -> TurnOverrides | None:
    skills = tuple(Skill(each.name, each.description, each.location) for each in body.client_skills or ())
    system = body.system if body.override_system is None else body.override_system
    return TurnOverrides(None, system, skills) if skills or system is not None else None


def new_message(body: MessageBody) -> NewMessage:
    """Raises InvalidInput."""
    return NewMessage(
        Role(body.role or Role.user),
        content_parts(body.content or "", "content"),
        name=body.name,
        otid=body.otid,
        sender_id=body.sender_id,
        group_id=body.group_id,
    )


def _refuse_streaming_options(body: SendBody) -> None:
    given = {
        "stream_tokens": body.stream_tokens,
        "background": body.background,
        "include_pings": not body.include_pings,
    }
    for name, is_given in given.items():
        if is_given:
            raise Unprocessable(f"{name}: requires streaming=true")
