"""Which rows of a commit are told to whoever listens to the turn: the agent's, not what was put in."""

from collections.abc import Iterable

from kelpie.agent.events.turn_events import MessageCommitted
from kelpie.core.conversations.messages import Message, Role
from kelpie.core.ids import MessageId


def told(rows: Iterable[Message], nudge_id: MessageId, *, previewed: bool, heartbeats: bool) -> list[MessageCommitted]:
    """The events of a commit. Where heartbeats are no part of the type, the server's own word is shown as well."""
    return [
        MessageCommitted(row, previewed and row.is_reply)
        for row in rows
        if row.is_reply or row.role is Role.tool or (row.id == nudge_id and not heartbeats)
    ]
