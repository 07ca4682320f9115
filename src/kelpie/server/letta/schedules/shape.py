"""Schedules and firings as JSON: Letta's fields, and Kelpie's own beside them."""

from typing import Any

from kelpie.core.conversations.messages import Image, NewMessage, Text
from kelpie.core.triggers.schedules import Firing, Schedule
from kelpie.server.http.times import timestamp

_US_PER_MS = 1000


def schedule_shape(schedule: Schedule) -> dict[str, Any]:
    recurrence, said = schedule.recurrence, schedule.said
    next_at = timestamp(schedule.next_at)
    if recurrence is None:
        time: dict[str, Any] = {"type": "one-time", "scheduled_at": (schedule.at or 0) / _US_PER_MS}
    else:
        time = {"type": "recurring", "cron_expression": recurrence.expression}
    message: dict[str, Any] = {"messages": [_message(each) for each in said.messages]}
    optional = {
        "callback_url": said.callback_url,
        "include_return_message_types": None if said.return_types is None else list(said.return_types),
        "max_steps": said.max_steps,
    }
    message |= {name: value for name, value in optional.items() if value is not None}
    return {
        "id": schedule.id,
        "agent_id": schedule.agent_id,
        "message": message,
        "schedule": time,
        "next_scheduled_time": next_at,
        "next_scheduled_at": next_at,
        "name": schedule.name,
        "status": _status(schedule),
        "schedule_type": time["type"],
        "scheduled_time": timestamp(schedule.at),
        "recurrence_rule": None if recurrence is None else recurrence.expression,
        "timezone": "UTC" if recurrence is None else recurrence.timezone,
        "conversation_id": said.conversation_id,
        "batch": said.batch,
        "missed_policy": schedule.missed.value,
        "missed_max": schedule.missed_max,
        "paused": schedule.paused,
        "last_scheduled_time": timestamp(schedule.last_at),
        "created_at": timestamp(schedule.created_at),
        "updated_at": timestamp(schedule.updated_at),
    }


def firing_shape(firing: Firing) -> dict[str, Any]:
    return {
        "id": firing.id,
        "schedule_id": firing.schedule_id,
        "agent_id": firing.agent_id,
        "scheduled_time": timestamp(firing.due_at),
        "manual": firing.manual,
        "status": firing.status.value,
        "attempts": firing.attempts,
        "next_attempt_time": timestamp(firing.attempt_at),
        "run_id": firing.run_id,
        "batch_id": firing.batch_id,
        "error": firing.error,
        "created_at": timestamp(firing.created_at),
        "updated_at": timestamp(firing.updated_at),
    }


def _status(schedule: Schedule) -> str:
    if schedule.paused:
        return "paused"
    return "completed" if schedule.next_at is None else "active"


def _message(message: NewMessage) -> dict[str, Any]:
    texts = [part.text for part in message.content if isinstance(part, Text)]
    plain = len(texts) == len(message.content) == 1
    content: Any = texts[0] if plain else [_part(part) for part in message.content]
    optional = {
        "name": message.name,
        "otid": message.otid,
        "sender_id": message.sender_id,
        "group_id": message.group_id,
    }
    given = {name: value for name, value in optional.items() if value is not None}
    return {"type": "message", "role": message.role.value, "content": content} | given


def _part(part: object) -> dict[str, Any]:
    if isinstance(part, Image):
        return {"type": "image", "source": dict(part.source)}
    assert isinstance(part, Text)
    return {"type": "text", "text": part.text}
