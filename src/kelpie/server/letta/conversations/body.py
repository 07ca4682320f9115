"""Request bodies for conversations."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.conversations.conversations import NewConversation
from kelpie.core.time import Micros, from_datetime
from kelpie.server.http.limits.request_limits import Links
from kelpie.server.letta.models.body import ModelSettings, requested_settings

_Window = Annotated[int, Field(gt=0, le=2**53)]


class CreateConversation(BaseModel):
    model_config = ConfigDict(extra="ignore")

    summary: str | None = None
    description: str | None = None
    model: str | None = None
    model_settings: ModelSettings | None = None
    context_window_limit: _Window | None = None
    hidden: bool = False
    isolated_block_labels: Annotated[
        Links | None, Field(description="Labels of agent blocks that the conversation gets its own copy of.")
    ] = None


class UpdateConversation(BaseModel):
    model_config = ConfigDict(extra="ignore")

    summary: str | None = None
    description: str | None = None
    model: str | None = None
    model_settings: ModelSettings | None = None
    context_window_limit: _Window | None = None
    archived: bool | None = None
    last_message_at: datetime | None = None


def new_conversation(body: CreateConversation) -> NewConversation:
    return NewConversation(
        summary=body.summary,
        description=body.description,
        model=body.model,
        model_settings=requested_settings(body.model_settings, body.model) if body.model_settings else None,
        context_window_limit=body.context_window_limit,
        hidden=body.hidden,
        isolated_labels=tuple(body.isolated_block_labels or ()),
    )


def conversation_changes(body: UpdateConversation, now: Micros) -> dict[str, Any]:
    """The fields that were sent, by the name of the stored field; null clears it."""
    changes: dict[str, Any] = {name: getattr(body, name) for name in body.model_fields_set}
    if body.model_settings is not None:
        changes["model_settings"] = requested_settings(body.model_settings, body.model)
    if body.last_message_at is not None:
        changes["last_message_at"] = from_datetime(body.last_message_at)
    if "archived" in changes:
        changes["archived_at"] = now if changes.pop("archived") else None
    return changes
