"""Request bodies for the search in messages, and for messages captured elsewhere.

`page` is Kelpie's own: the page of `limit` results, counted from 0.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from kelpie.core.conversations.messages import Message, MessageSearch, NewMessage, Role
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId
from kelpie.core.search_hits import Hit, SearchMode, reach
from kelpie.server.http.limits.request_limits import LINKS_MAX, SearchText
from kelpie.server.http.times import moment
from kelpie.server.letta.messages.content_body import content_parts
from kelpie.server.letta.runs.routes import conversation_of

CAPTURED_MAX = 1000

Found = tuple[Message, Hit | None]

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
PAGES_REACH = 10_000  # results; no page lies beyond

_Limit = Annotated[int, Field(ge=1, le=1000)]


def _whole_day(given: Any) -> Any:
    """A date as an end includes all of its hours."""
    return f"{given}T23:59:59.999999" if isinstance(given, str) and _DAY.fullmatch(given) else given


Until = Annotated[datetime, BeforeValidator(_whole_day)]


class SearchMessages(BaseModel):
    """A search by words, by meaning, or by both."""

    model_config = ConfigDict(extra="ignore")

    query: SearchText
    search_mode: SearchMode = "hybrid"
    agent_id: str | None = None
    conversation_id: str | None = None
    limit: _Limit = 50
    page: Annotated[int, Field(ge=0)] | None = None
    start_date: datetime | None = None
    end_date: Until | None = None


class SearchAgentMessages(SearchMessages):
    query: SearchText | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    roles: (
        Annotated[
            list[Literal["assistant", "user", "tool", "function", "system", "approval", "summary"]],
            Field(max_length=LINKS_MAX, fail_fast=True),
        ]
        | None
    ) = None
    project_id: str | None = None
    template_id: str | None = None


def search_of(body: SearchMessages) -> MessageSearch:
    """Raises InvalidInput for a malformed id, a page too far, or a time span that ends before it begins."""
    since, until = moment("start_date", body.start_date), moment("end_date", body.end_date)
    if since is not None and until is not None and until < since:
        raise InvalidInput("end_date", "is before 'start_date'; swap them, or omit one")
    wider = body if isinstance(body, SearchAgentMessages) else SearchAgentMessages()
    return MessageSearch(
        text=body.query or "",
        limit=body.limit if body.page is None else _reach(body.limit, body.page),
        agent_id=None if body.agent_id is None else AgentId.parse(body.agent_id),
        conversation_id=conversation_of(body.conversation_id),
        roles=tuple(Role.tool if role == "function" else Role(role) for role in wider.roles or ()),
        project_id=wider.project_id,
        template_id=wider.template_id,
        created_from=since,
        created_to=until,
        mode=body.search_mode,
    )


def _reach(limit: int, page: int) -> int:
    if limit * (page + 1) > PAGES_REACH:
        raise InvalidInput("page", f"results after the first {PAGES_REACH} cannot be listed; narrow the search")
    return reach(limit, page)


def page_of(body: SearchMessages, found: Sequence[Found]) -> Sequence[Found]:
    """The results on the requested page."""
    start = (body.page or 0) * body.limit
    return found[start : start + body.limit]


class Nothing(BaseModel):
    model_config = ConfigDict(extra="forbid")


class WarmCache(BaseModel):
    """A search cache to fill, as Letta Code asks for."""

    model_config = ConfigDict(extra="forbid")

    collection: Literal["messages"]
    scope: Nothing


class CaptureMessages(BaseModel):
    """Messages that another program sent to a model, and the answer."""

    model_config = ConfigDict(extra="ignore")

    provider: str
    model: str
    request_messages: Annotated[list[dict[str, Any]], Field(max_length=CAPTURED_MAX, fail_fast=True)]
    response_dict: dict[str, Any]


def captured(body: CaptureMessages) -> list[NewMessage]:
    """The captured messages, oldest first. Raises InvalidInput for a message without a role or text."""
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
