"""The row that stands in a context for what has left it: how it is written, and how it is read again."""

from dataclasses import dataclass
from typing import Any

import orjson

from kelpie.agent.prompt.rendering import read_object, shown_time
from kelpie.agent.prompt.wellformed_history import FRAME_WEIGHT
from kelpie.core.agents.compaction_settings import CompactionStats, Trigger
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
    return Message(
        id=row_id,
        agent_id=run.agent_id,
        role=Role.summary,
        created_at=at,
        content=(Text(_packed(text, stats, at).decode()),),
        conversation_id=run.conversation_id,
        otid=otid,
        run_id=run.id if otid is not None else None,
    )


def summary_weight(text: str) -> int:
    """Weight of a summary row with this text: what it takes in a prompt, with the longest figures it can have."""
    return _EMPTY_WEIGHT + len(orjson.dumps(text)) - len('""')


def read_summary(message: Message) -> Summary:
    """Reads a summary row; of one that was written elsewhere, its message or its whole text."""
    packed = read_object(message.text) or {}
    told: Any = packed.get("message")
    if packed.get("type") != ALERT or not isinstance(told, str):
        return Summary(message.text)
    stats: Any = packed.get("compaction_stats")
    return Summary(told.removeprefix(NOTE).lstrip(), stats if isinstance(stats, dict) else None)  # pyright: ignore[reportUnknownArgumentType]


def _packed(text: str, stats: CompactionStats | None, at: Micros) -> bytes:
    packed: dict[str, Any] = {"type": ALERT, "message": f"{NOTE}\n{text}", "time": shown_time(at)}
    if stats is not None:
        packed["compaction_stats"] = stats.to_json()
    return orjson.dumps(packed, option=orjson.OPT_INDENT_2)


_LONGEST_STATS = CompactionStats(max(Trigger, key=len).value, *[10**7] * 5)
_EMPTY_WEIGHT = FRAME_WEIGHT + len(_packed("", _LONGEST_STATS, 0))
