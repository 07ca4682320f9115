"""Request bodies of schedules, in two shapes that may be mixed: that of Letta's SDK, and Kelpie's own."""

from datetime import datetime
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.conversations.messages import NewMessage, Role
from kelpie.core.dates.time_zones import check_timezone
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import ConversationId
from kelpie.core.time import Micros
from kelpie.core.triggers.recurrence import Recurrence, check_recurrence
from kelpie.core.triggers.schedules import MISSED_MAX, MissedPolicy, Schedule, ScheduledMessages
from kelpie.server.http.limits.request_limits import Links
from kelpie.server.http.times import moment
from kelpie.server.letta.messages.body import STEPS_MAX, MessageBody, new_message
from kelpie.server.letta.messages.content_body import Content, content_parts
from kelpie.triggers.schedules import NewSchedule

MESSAGES_MAX = 100
NAME_CHARS_MAX = 200
ZONE_CHARS_MAX = 100
_MS_MAX = 253_000_000_000_000  # a little before the year 9999
_US_PER_MS = 1000


class ScheduleTime(BaseModel):
    """When, as in Letta's SDK."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["one-time", "recurring"] | None = None
    scheduled_at: float | None = Field(None, ge=0, le=_MS_MAX, description="Milliseconds since 1970 (UTC).")
    cron_expression: str | None = Field(None, max_length=1000)


class ScheduleBody(BaseModel):
    """A schedule. Give the time as `schedule`, or as `scheduled_time` or `recurrence_rule`; and what the agent gets as
    `messages` or `message`."""

    model_config = ConfigDict(extra="ignore")

    messages: Annotated[list[MessageBody], Field(min_length=1, max_length=MESSAGES_MAX, fail_fast=True)] | None = None
    message: Content | None = Field(None, description="A message of the user: text or a list of parts.")
    schedule: ScheduleTime | None = Field(None, description="The time, in the shape of Letta's SDK.")
    schedule_type: Literal["one-time", "one_time", "recurring"] | None = None
    scheduled_time: datetime | None = Field(None, description="ISO 8601. Without an offset it is in `timezone`.")
    recurrence_rule: str | None = Field(
        None, max_length=1000, description="A cron expression with five fields, such as `0 9 * * 1-5`."
    )
    timezone: str | None = Field(None, max_length=ZONE_CHARS_MAX, description="An IANA name. Defaults to UTC.")
    name: str | None = Field(None, max_length=NAME_CHARS_MAX)
    conversation_id: str | None = Field(None, description="The conversation; by default the agent's default one.")
    batch: bool | None = Field(
        None, description="Whether each message has a turn of its own, one after another. Defaults to one turn for all."
    )
    missed_policy: MissedPolicy | None = Field(
        None, description="What happens to times that pass while no server runs. Defaults to `run_once`."
    )
    missed_max: int | None = Field(None, ge=1, le=MISSED_MAX, description="How many times `run_all` makes up for.")
    paused: bool | None = None
    callback_url: str | None = Field(None, max_length=2048, description="URL that gets a POST after each run.")
    include_return_message_types: Links | None = None
    max_steps: float | None = Field(None, ge=1, le=STEPS_MAX)


def new_schedule(body: ScheduleBody) -> NewSchedule:
    """Raises InvalidInput."""
    at, recurrence = _time(body, body.timezone or "UTC")
    if at is None and recurrence is None:
        raise InvalidInput(
            "schedule", "give a time: 'scheduled_time' for one message, or 'recurrence_rule' for a recurring one"
        )
    messages = _messages(body)
    if messages is None:
        raise InvalidInput("messages", "give the messages that the agent gets, or one as 'message'")
    return NewSchedule(
        ScheduledMessages(
            messages,
            None if body.max_steps is None else int(body.max_steps),
            body.callback_url,
            None if body.include_return_message_types is None else tuple(body.include_return_message_types),
            _conversation(body.conversation_id),
            bool(body.batch),
        ),
        at,
        recurrence,
        body.name,
        body.missed_policy or MissedPolicy.run_once,
        body.missed_max or MISSED_MAX,
        bool(body.paused),
    )


def changed_schedule(body: ScheduleBody, before: Schedule) -> NewSchedule:
    """The schedule with the fields that the body has. Raises InvalidInput."""
    given = body.model_fields_set
    zone = body.timezone or ("UTC" if before.recurrence is None else before.recurrence.timezone)
    at, recurrence = _time(body, zone)
    if at is None and recurrence is None:
        at, recurrence = before.at, before.recurrence
        if recurrence is not None and "timezone" in given:
            recurrence = Recurrence(recurrence.expression, check_timezone(zone))
    said = before.said
    messages, types = _messages(body), body.include_return_message_types
    return NewSchedule(
        ScheduledMessages(
            said.messages if messages is None else messages,
            (None if body.max_steps is None else int(body.max_steps)) if "max_steps" in given else said.max_steps,
            body.callback_url if "callback_url" in given else said.callback_url,
            (None if types is None else tuple(types)) if "include_return_message_types" in given else said.return_types,
            _conversation(body.conversation_id) if "conversation_id" in given else said.conversation_id,
            said.batch if body.batch is None else body.batch,
        ),
        at,
        recurrence,
        body.name if "name" in given else before.name,
        before.missed if body.missed_policy is None else body.missed_policy,
        before.missed_max if body.missed_max is None else body.missed_max,
        before.paused if body.paused is None else body.paused,
    )


def _time(body: ScheduleBody, zone: str) -> tuple[Micros | None, Recurrence | None]:
    """The time of either shape; neither if the body has none."""
    check_timezone(zone)
    times: list[tuple[str, Any]] = [("scheduled_time", body.scheduled_time), ("recurrence_rule", body.recurrence_rule)]
    if (sdk := body.schedule) is not None:
        times += [("schedule.scheduled_at", sdk.scheduled_at), ("schedule.cron_expression", sdk.cron_expression)]
        if sdk.scheduled_at is None and sdk.cron_expression is None:
            raise InvalidInput("schedule", "give 'scheduled_at' (milliseconds) or 'cron_expression'")
    given = [(name, value) for name, value in times if value is not None]
    if len(given) > 1:
        raise InvalidInput(given[1][0], f"the time is already given as {given[0][0]}; give one of them")
    if not given:
        if body.schedule_type is not None:
            field = "recurrence_rule" if body.schedule_type == "recurring" else "scheduled_time"
            raise InvalidInput(field, f"a schedule with schedule_type '{body.schedule_type}' needs it")
        return None, None
    name, value = given[0]
    recurring = name.endswith(("rule", "expression"))
    kind = body.schedule_type or (None if sdk is None else sdk.type)
    if kind is not None and (kind == "recurring") != recurring:
        raise InvalidInput(name, f"does not fit a schedule of the type '{kind}'")
    if recurring:
        return None, check_recurrence(value, zone, name)
    if isinstance(value, datetime):
        return moment(name, value, ZoneInfo(zone)), None
    return int(value) * _US_PER_MS, None


def _messages(body: ScheduleBody) -> tuple[NewMessage, ...] | None:
    if body.messages is not None and body.message is not None:
        raise InvalidInput("message", "the messages are already given as 'messages'; give one of them")
    if body.message is not None:
        return (NewMessage(Role.user, content_parts(body.message, "message")),)
    if body.messages is None:
        return None
    if any(each.kind != "message" for each in body.messages):
        raise InvalidInput("messages", "a schedule cannot answer approvals; give messages only")
    return tuple(new_message(each) for each in body.messages)


def _conversation(text: str | None) -> ConversationId | None:
    return None if text is None or text == "default" else ConversationId.parse(text)
