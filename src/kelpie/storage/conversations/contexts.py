"""Contexts: the messages that the model of a conversation sees, in order. The default conversation is ''."""

from collections.abc import Iterator, Sequence
from typing import cast

from sqlalchemy import (
    ColumnElement,
    Select,
    String,
    bindparam,
    delete,
    func,
    literal_column,
    select,
    tuple_,
)

from kelpie.core.conversations.messages import Message, Role
from kelpie.core.ids import AgentId, MessageId
from kelpie.storage.conversations.message_rows import from_row
from kelpie.storage.rows.inserts import Insert
from kelpie.storage.tables import agents, context, messages
from kelpie.world.database import Tx

_SEPARATOR = ","  # between ids, which hold none

_INSERT = Insert(context)
_CLEAR = delete(context).where(
    context.c.agent_id == bindparam("of_agent"), context.c.conversation_id == bindparam("of_conversation")
)


def joined_ids(of_agent: ColumnElement[str]) -> Select[str]:
    """The ids of a context as one text, for `split_ids`, in their order: a row for each would cost several times as
    much."""
    ordered = (
        select(context.c.message_id)
        .where(context.c.agent_id == of_agent, context.c.conversation_id == bindparam("of_conversation"))
        .order_by(context.c.position)
        .subquery()
    )
    # As a parameter the separator would be added to the statement anew each time.
    separator = cast("str", literal_column(f"'{_SEPARATOR}'", String()))
    return select(func.aggregate_strings(ordered.c.message_id, separator))


_IDS = joined_ids(bindparam("of_agent"))
_NEWEST = (
    select(messages, context.c.position.label("place"))
    .join(context, context.c.message_id == messages.c.id)
    .where(context.c.agent_id == bindparam("of_agent"), context.c.conversation_id == bindparam("of_conversation"))
    .order_by(context.c.position.desc())
    .limit(bindparam("most"))
)
_BEFORE = _NEWEST.where(context.c.position < bindparam("before"))
_IDS_OF = select(agents.c.id, joined_ids(literal_column("agents.id")).scalar_subquery()).where(
    agents.c.id.in_(bindparam("ids", expanding=True))
)


def insert_at(tx: Tx, agent_id: AgentId, new: Sequence[MessageId], conversation: str, first: int) -> None:
    """Adds messages to a context from this position on. The sequence number of a message is always a free position at
    the end: a context never holds more messages than the agent ever had."""
    _INSERT.run(
        tx,
        [
            {"agent_id": agent_id, "conversation_id": conversation, "position": first + i, "message_id": message_id}
            for i, message_id in enumerate(new)
        ],
    )


def replace(tx: Tx, agent_id: AgentId, kept: Sequence[MessageId], conversation: str = "") -> None:
    """Makes exactly these the messages that the model sees."""
    tx.execute(_CLEAR, {"of_agent": agent_id, "of_conversation": conversation})
    if kept:
        insert_at(tx, agent_id, kept, conversation, 0)


def ids(tx: Tx, agent_id: AgentId, conversation: str = "") -> tuple[MessageId, ...]:
    """The messages of a context, in their order."""
    found = tx.execute(_IDS, {"of_agent": agent_id, "of_conversation": conversation}).scalar()
    return split_ids(found)


_FIRST = (
    select(messages.c.id, messages.c.role)
    .join(context, context.c.message_id == messages.c.id)
    .where(context.c.agent_id == bindparam("of_agent"), context.c.conversation_id == bindparam("of_conversation"))
    .order_by(context.c.position)
    .limit(1)
)


def instructions(tx: Tx, agent_id: AgentId, conversation: str = "") -> MessageId | None:
    """The system message that a context begins with; None where it begins with another message."""
    first = tx.execute(_FIRST, {"of_agent": agent_id, "of_conversation": conversation}).first()
    return MessageId(first.id) if first is not None and first.role == Role.system else None


def ids_of(tx: Tx, agent_ids: Sequence[AgentId]) -> dict[str, tuple[MessageId, ...]]:
    """The default context of many agents in one query."""
    if len(agent_ids) == 1:
        return {agent_ids[0]: ids(tx, agent_ids[0])}
    found = tx.execute(_IDS_OF, {"ids": list(agent_ids), "of_conversation": ""})
    return {agent_id: split_ids(joined) for agent_id, joined in found}


def split_ids(joined: str | None) -> tuple[MessageId, ...]:
    """The ids that `joined_ids` selects as one text."""
    return tuple(map(MessageId, joined.split(_SEPARATOR))) if joined else ()


_OF_AGENT = select(context.c.conversation_id).where(context.c.agent_id == bindparam("of_agent")).distinct()


def of_agent(tx: Tx, agent_id: AgentId) -> list[str]:
    """The conversations of an agent that have a context; the default one is the empty string."""
    return sorted(tx.execute(_OF_AGENT, {"of_agent": agent_id}).scalars())


def newest(tx: Tx, agent_id: AgentId, conversation: str, most: int) -> list[Message]:
    """The newest messages of a context, up to a limit, oldest first."""
    return next(pages(tx, agent_id, conversation, most), list[Message]())


def pages(tx: Tx, agent_id: AgentId, conversation: str, size: int) -> Iterator[list[Message]]:
    """The messages of a context in pages, the newest page first, each oldest first; read only as far as requested."""
    bound = {"of_agent": agent_id, "of_conversation": conversation, "most": size}
    rows = tx.execute(_NEWEST, bound).all()
    while rows:
        yield [message for message in map(from_row, reversed(rows)) if not message.lost]
        if len(rows) < size:
            return
        rows = tx.execute(_BEFORE, {**bound, "before": rows[-1].place}).all()


_KEY = tuple(context.primary_key.columns)
_CLEAR_SOME = delete(context).where(
    tuple_(*_KEY).in_(select(*_KEY).where(context.c.agent_id == bindparam("of_agent")).limit(bindparam("most")))
)
_COUNT = select(func.count()).select_from(context).where(context.c.agent_id == bindparam("of_agent"))


def count_of_agent(tx: Tx, agent_id: AgentId) -> int:
    """Number of rows of all contexts of an agent."""
    return int(tx.execute(_COUNT, {"of_agent": agent_id}).scalar_one())


def clear_some(tx: Tx, agent_id: AgentId, most: int) -> None:
    """Takes some messages out of the contexts of an agent; the caller writes them all anew."""
    tx.execute(_CLEAR_SOME, {"of_agent": agent_id, "most": most})


_CLEAR_ALL = delete(context).where(context.c.agent_id == bindparam("of_agent"))


def clear_all(tx: Tx, agent_id: AgentId) -> None:
    """Empties every context of an agent, instructions included; the caller must write them anew."""
    tx.execute(_CLEAR_ALL, {"of_agent": agent_id})
