"""Request bodies of batches: messages for one agent, requests for several, and agents to create or delete."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kelpie.batches.batches import NewItem
from kelpie.core.conversations.batches import ITEMS_MAX, REQUESTS_MAX
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId, ConversationId
from kelpie.server.letta.agents.body import CreateAgent
from kelpie.server.letta.messages.body import SendBody, send_command

_OF_MESSAGE = ("role", "content", "name", "otid", "sender_id")
URL_CHARS_MAX = 2048


class BatchItemBody(SendBody):
    """One item: a text, a message with `content`, or a body as for sending, with `input` or `messages`."""

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"input": given}
        if isinstance(given, Mapping) and "content" in given and "messages" not in given and "input" not in given:
            message = {"role": "user"} | {name: given[name] for name in _OF_MESSAGE if given.get(name) is not None}
            return {name: value for name, value in given.items() if name not in _OF_MESSAGE} | {"messages": [message]}
        return given


class MessageBatchBody(BaseModel):
    """Messages for one agent, each of which is answered by itself."""

    model_config = ConfigDict(extra="ignore")

    messages: Annotated[list[BatchItemBody], Field(min_length=1, max_length=ITEMS_MAX, fail_fast=True)]
    parallel: bool = Field(False, description="Run up to 5 items at once, each in a fork of the conversation.")
    conversation_id: str | None = Field(None, description="The conversation; by default the agent's default one.")
    callback_url: str | None = Field(
        None, max_length=URL_CHARS_MAX, description="URL (http or https) that gets a POST when the batch has ended."
    )


class BatchRequest(SendBody):
    """A request for one of several agents."""

    agent_id: str = Field(description="The agent.")


class CreateBatch(BaseModel):
    """Requests for several agents, and where their end is told."""

    model_config = ConfigDict(extra="ignore")

    requests: Annotated[list[BatchRequest], Field(max_length=REQUESTS_MAX, fail_fast=True)]
    callback_url: str | None = Field(
        None, max_length=URL_CHARS_MAX, description="URL (http or https) that gets a POST when the batch has ended."
    )


class CreateAgents(BaseModel):
    """Agents to create."""

    model_config = ConfigDict(extra="ignore")

    agents: Annotated[list[CreateAgent], Field(min_length=1, max_length=ITEMS_MAX, fail_fast=True)]


class DeleteAgents(BaseModel):
    """Agents to delete."""

    model_config = ConfigDict(extra="ignore")

    ids: Annotated[list[str], Field(max_length=ITEMS_MAX, fail_fast=True)] = Field(default_factory=list[str])


def message_items(agent_id: AgentId, body: MessageBatchBody, max_steps: int) -> list[NewItem]:
    """Raises InvalidInput, Unprocessable."""
    text = body.conversation_id
    conversation = "" if text is None or text == "default" else ConversationId.parse(text)
    items = [_item(agent_id, each, f"messages.{at}", conversation, max_steps) for at, each in enumerate(body.messages)]
    return _distinct(items)


def request_items(body: CreateBatch, max_steps: int) -> list[NewItem]:
    """Raises InvalidInput, Unprocessable."""
    if not body.requests:
        raise InvalidInput("requests", "Empty list of batch_requests passed in! Give at least one request.")
    items = [
        _item(AgentId.parse(each.agent_id), each, f"requests.{at}", "", max_steps)
        for at, each in enumerate(body.requests)
    ]
    return _distinct(items)


def _item(agent_id: AgentId, body: SendBody, where: str, conversation: str, max_steps: int) -> NewItem:
    try:
        send = send_command(body, streaming=False, max_steps=max_steps)
    except InvalidInput as error:
        raise InvalidInput(f"{where}.{error.field}", error.remedy) from error
    if send.answers:
        raise InvalidInput(where, "a batch cannot answer approvals; give messages only")
    return NewItem(agent_id, replace(send, conversation=conversation), where)


def _distinct(items: Sequence[NewItem]) -> list[NewItem]:
    """The same items; the same id for two messages of an agent would make one message of them."""
    seen: set[tuple[str, str]] = set()
    for item in items:
        for message in item.send.messages:
            if message.otid is None:
                continue
            if (item.agent_id, message.otid) in seen:
                raise InvalidInput(f"{item.where}.otid", f"'{message.otid[:80]}' is the otid of an earlier message")
            seen.add((item.agent_id, message.otid))
    return list(items)
