"""The messages of a conversation: its own, and those that a fork shares with another conversation."""

from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, case, or_, select

from kelpie.core.conversations.conversations import ThreadQuery
from kelpie.core.conversations.messages import Message
from kelpie.core.ids import ConversationId, MessageId
from kelpie.storage.conversations.message_rows import from_rows_within
from kelpie.storage.tables import conversation_shares, messages
from kelpie.world.database import Tx

_M = messages.c
_IN_THREAD = or_(
    _M.conversation_id == bindparam("of_conversation"),
    _M.id.in_(
        select(conversation_shares.c.message_id).where(
            conversation_shares.c.conversation_id == bindparam("of_conversation")
        )
    ),
)
# The instructions come first although a fork wrote them after the shared messages; they belong to no run.
_PLACE = case((and_(_M.role == "system", _M.run_id.is_(None)), 0), else_=_M.seq)
_THREAD = select(messages).where(_IN_THREAD)
_PLACE_OF = select(_PLACE).where(_M.id == bindparam("of_message"), _IN_THREAD)
_THREAD_FILTERS: dict[str, ColumnElement[bool]] = {
    "after": bindparam("after") < _PLACE,
    "before": bindparam("before") > _PLACE,
    "group_id": _M.group_id == bindparam("group_id"),
}


@lru_cache(maxsize=32)
def _thread(names: tuple[str, ...], descending: bool) -> Select[Any]:
    where = [_THREAD_FILTERS[name] for name in names]
    order = (_PLACE.desc(), _M.seq.desc()) if descending else (_PLACE, _M.seq)
    return _THREAD.where(*where).order_by(*order).limit(bindparam("most"))


def read(tx: Tx, conversation_id: ConversationId, query: ThreadQuery) -> list[Message]:
    """The messages of a conversation in the requested order; an unknown cursor is ignored."""
    after, before = (_place_of(tx, conversation_id, cursor) for cursor in (query.after, query.before))
    if after is not None and before is not None:
        after, before = min(after, before), max(after, before)
    elif query.descending and after is not None:
        after, before = None, after
    given: dict[str, Any] = {"after": after, "before": before, "group_id": query.group_id}
    used = {name: value for name, value in given.items() if value is not None}
    bound = {"of_conversation": conversation_id, "most": query.limit, **used}
    rows = tx.execute(_thread(tuple(used), query.descending), bound)
    return from_rows_within(rows, query.bytes_max)


def _place_of(tx: Tx, conversation_id: ConversationId, message_id: MessageId | None) -> int | None:
    if message_id is None:
        return None
    place = tx.execute(_PLACE_OF, {"of_conversation": conversation_id, "of_message": message_id}).scalar()
    return None if place is None else int(place)
