"""How clients search messages, and how they hand in what was said elsewhere."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId
from kelpie.core.messages import MessageSearch, NewMessage, Role
from kelpie.core.search import SearchMode
from kelpie.core.time import from_datetime
from kelpie.server.letta.content_body import content_parts
from kelpie.server.letta.runs import conversation_of

CAPTURED_MAX = 1000

_Limit = Annotated[int, Field(ge=1, le=1000)]


class SearchMessages(BaseModel):
    """A search by words, by meaning, or by both."""

    model_config = ConfigDict(extra="ignore")

    query: str
    search_mode: SearchMode = "hybrid"
    agent_id: str | None = None
    conversation_id: str | None = None
    limit: _Limit = 50
    start_date: datetime | None = None
    end_date: datetime | None = None


class SearchAgentMessages(SearchMessages):
    query: str | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    roles: list[Literal["assistant", "user", "tool", "function", "system", "approval", "summary"]] | None = None
    project_id: str | None = None
    template_id: str | None = None


def search_of(body: SearchMessages) -> MessageSearch:
    """Raises InvalidInput for a malformed id."""
    wider = body if isinstance(body, SearchAgentMessages) else SearchAgentMessages()
    return MessageSearch(
        text=body.query or "",
        limit=body.limit,
        agent_id=None if body.agent_id is None else AgentId.parse(body.agent_id),
        conversation_id=conversation_of(body.conversation_id),
        roles=tuple(Role.tool if role == "function" else Role(role) for role in wider.roles or ()),
        project_id=wider.project_id,
        template_id=wider.template_id,
        created_from=None if body.start_date is None else from_datetime(body.start_date),
        created_to=None if body.end_date is None else from_datetime(body.end_date),
        mode=body.search_mode,
    )


class CaptureMessages(BaseModel):
    """What another program sent to a model, and what came back."""

    model_config = ConfigDict(extra="ignore")

    provider: str
    model: str
    request_messages: Annotated[list[dict[str, Any]], Field(max_length=CAPTURED_MAX)]
    response_dict: dict[str, Any]


def captured(body: CaptureMessages) -> list[NewMessage]:
    """What was said, oldest first. Raises InvalidInput for a message without a role or text."""
    said = [_captured(message) for message in body.request_messages]
    answer = body.response_dict.get("content")
    if answer:
        said.append(NewMessage(Role.assistant, content_parts(answer, "response_dict.content")))
    return said


def _captured(message: dict[str, Any]) -> NewMessage:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        raise InvalidInput("request_messages", "each needs a 'role': user, assistant or system")
    if not isinstance(content, str | list):
        raise InvalidInput("request_messages", "each needs a 'content': text or a list of parts")
    return NewMessage(Role(role), content_parts(content, "request_messages.content"))
