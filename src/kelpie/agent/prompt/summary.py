"""The row that stands in a context for what has left it: how it is written, and how it is read again."""

from dataclasses import dataclass
from typing import Any

import orjson

from kelpie.agent.prompt.rendering import read_object, shown_time
from kelpie.core.agents.compaction_settings import CompactionStats
from kelpie.core.conversations.messages import Message, Role, Text
from kelpie.core.conversations.runs import Run
from kelpie.core.ids import MessageId
from kelpie.core.time import Micros

ALERT = "system_alert"
NOTE = (
    "Automatic message, not from the user: earlier messages no longer fit here. They stay in your history, where they "
    "can be searched. This is a summary of them:"
)
NOTHING_TOLD = "No summary could be made of them."


@dataclass(frozen=True, slots=True)
class Summary:
    """Text of a summary row, and the statistics of its compaction if they were stored."""

    text: str
    stats: dict[str, Any] | None = None


def summary_row(
    run: Run, row_id: MessageId, text: str, stats: CompactionStats | None, at: Micros, otid: str | None
) -> Message:
    """The row for a summary; one outside a turn belongs to no run."""
    packed: dict[str, Any] = {"type": ALERT, "message": f"{NOTE}\n{text}", "time": shown_time(at)}
    if stats is not None:
        packed["compaction_stats"] = stats.to_json()
    return Message(
        id=row_id,
        agent_id=run.agent_id,
        role=Role.summary,
        created_at=at,
        content=(Text(orjson.dumps(packed, option=orjson.OPT_INDENT_2).decode()),),
        conversation_id=run.conversation_id,
        otid=otid,
        run_id=run.id if otid is not None else None,
    )


def read_summary(message: Message) -> Summary:
    """Reads a summary row; of one that was written elsewhere, its message or its whole text."""
    packed = read_object(message.text) or {}
    told: Any = packed.get("message")
    if packed.get("type") != ALERT or not isinstance(told, str):
        return Summary(message.text)
    stats: Any = packed.get("compaction_stats")
    return Summary(told.removeprefix(NOTE).lstrip(), stats if isinstance(stats, dict) else None)  # pyright: ignore[reportUnknownArgumentType]
