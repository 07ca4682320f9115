"""Recall in a checkpoint: every message with its id and its position, the conversations, the context of each, and the
pending approvals.

A message that still exists unchanged is not touched and keeps its vectors; newer messages are deleted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from kelpie.core.errors import Conflict, Damaged, InvalidInput
from kelpie.core.ids import AgentId, ConversationId, MessageId, RunId
from kelpie.core.memory.blocks import Block
from kelpie.search import items, scope_removal
from kelpie.search.text import segment_queue
from kelpie.storage.blocks.rows import TAGS, from_row
from kelpie.storage.checkpoints import blocks as checkpoint_blocks
from kelpie.storage.checkpoints import messages as checkpoint_messages
from kelpie.storage.checkpoints.blocks import Target
from kelpie.storage.checkpoints.pieces import Piece, each_part, one, parts, repeated
from kelpie.storage.checkpoints.rows import columns_of, distinct, identifier, members, row, section, taken, texts
from kelpie.storage.conversations import contexts, conversations, messages
from kelpie.storage.conversations.message_rows import is_whole, message_from_json
from kelpie.storage.tables import approvals as approval_table
from kelpie.storage.tables import blocks as block_table
from kelpie.storage.tables import context, conversation_blocks, conversation_shares
from kelpie.storage.tables import conversations as conversation_table
from kelpie.storage.tables import messages as table
from kelpie.world.database import Tx

REMOVED, DROPPED, WRITTEN, SHOWN = 50, 100, 50, 500  # messages of one piece, and rows of a context

_CHUNK = 500
_some = conversation_shares.alias("some")
_THREAD = ("id", "summary", "description", "hidden", "archived_at", "last_message_at", "deleted_at")

_WAIT = columns_of(approval_table, "agent_id")

_STORED = (*checkpoint_messages.COLUMNS, "checksum")
_MESSAGES: sa.Select[Any] = sa.select(*(table.c[name] for name in _STORED)).where(
    table.c.agent_id == sa.bindparam("of_agent")
)
_MESSAGE_IDS = sa.select(table.c.id).where(table.c.agent_id == sa.bindparam("of_agent")).order_by(table.c.seq)
_IN_ORDER: sa.Select[Any] = _MESSAGES.order_by(table.c.seq)
_SIZE = sa.select(
    sa.func.coalesce(
        sa.func.sum(
            sa.func.length(sa.cast(table.c.content, sa.Text)) + sa.func.length(sa.cast(table.c.tool_returns, sa.Text))
        ),
        0,
    )
).where(table.c.agent_id == sa.bindparam("of_agent"))
_DROP = sa.delete(table).where(table.c.id.in_(sa.bindparam("ids", expanding=True)))
_INSERT = sa.insert(table)
_THREADS: sa.Select[Any] = (
    sa.select(*(conversation_table.c[name] for name in _THREAD))
    .where(conversation_table.c.agent_id == sa.bindparam("of_agent"))
    .order_by(conversation_table.c.created_at, conversation_table.c.id)
)
_OF_THREADS = conversation_table.c.agent_id == sa.bindparam("of_agent")
_DROP_THREAD = sa.delete(conversation_table).where(conversation_table.c.id == sa.bindparam("of_conversation"))
_COPIES = (
    sa.select(block_table, TAGS, conversation_blocks.c.conversation_id, conversation_blocks.c.label.label("under"))
    .join(conversation_blocks, conversation_blocks.c.block_id == block_table.c.id)
    .join(conversation_table, conversation_table.c.id == conversation_blocks.c.conversation_id)
    .where(_OF_THREADS)
    .order_by(conversation_blocks.c.label)
)
_SEEN = (
    sa.select(context.c.conversation_id, context.c.message_id)
    .where(context.c.agent_id == sa.bindparam("of_agent"))
    .order_by(context.c.conversation_id, context.c.position)
)
_SHARES = (
    sa.select(conversation_shares)
    .join(conversation_table, conversation_table.c.id == conversation_shares.c.conversation_id)
    .where(_OF_THREADS)
    .order_by(conversation_shares.c.message_id)
)
_DROP_SHARES = sa.delete(conversation_shares).where(
    conversation_shares.c.conversation_id == sa.bindparam("of_conversation"),
    conversation_shares.c.message_id.in_(
        sa.select(_some.c.message_id)
        .where(_some.c.conversation_id == sa.bindparam("of_conversation"))
        .limit(sa.bindparam("most", type_=sa.Integer))
    ),
)
_COUNT_SHARES = (
    sa.select(conversation_shares.c.conversation_id, sa.func.count().label("number"))
    .join(conversation_table, conversation_table.c.id == conversation_shares.c.conversation_id)
    .where(_OF_THREADS)
    .group_by(conversation_shares.c.conversation_id)
    .order_by(conversation_shares.c.conversation_id)
)
_ELSEWHERE = sa.select(table.c.id).where(
    table.c.id.in_(sa.bindparam("ids", expanding=True)), table.c.agent_id != sa.bindparam("of_agent")
)
_OF_ANOTHER = "a message of the checkpoint belongs to another agent; nothing was restored"
_WAITS: sa.Select[Any] = sa.select(*(approval_table.c[name] for name in _WAIT)).where(
    approval_table.c.agent_id == sa.bindparam("of_agent")
)
_CLEAR_WAITS = sa.delete(approval_table).where(approval_table.c.agent_id == sa.bindparam("of_agent"))
_INSERT_WAIT = sa.insert(approval_table)


@dataclass(frozen=True, slots=True)
class Thread:
    row: Mapping[str, Any]
    copies: Mapping[str, Block]
    shares: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecallSection:
    """The recall of a document, ready to be written."""

    messages: Mapping[str, Mapping[str, Any]]
    threads: tuple[Thread, ...]
    contexts: Mapping[str, tuple[str, ...]]
    waits: tuple[Mapping[str, Any], ...]


def size(tx: Tx, agent_id: AgentId) -> int:
    """Approximate number of characters."""
    return int(tx.execute(_SIZE, {"of_agent": agent_id}).scalar_one())


def take(tx: Tx, agent_id: AgentId) -> dict[str, Any]:
    """The sections in the form of the document. Raises Damaged: a damaged row must not be saved as if it were whole."""
    of_agent = {"of_agent": agent_id}
    threads = taken(_THREAD, tx.execute(_THREADS, of_agent))
    copies, shares = tx.execute(_COPIES, of_agent).all(), tx.execute(_SHARES, of_agent).all()
    for thread in threads:
        mine = [each for each in copies if each.conversation_id == thread["id"]]
        thread["blocks"] = {each.under: checkpoint_blocks.take(from_row(each)) for each in mine}
        thread["shares"] = [each.message_id for each in shares if each.conversation_id == thread["id"]]
    seen: dict[str, list[str]] = {}
    for each in tx.execute(_SEEN, of_agent):
        seen.setdefault(each.conversation_id, []).append(each.message_id)
    return {
        "messages": [_whole(each) for each in taken(_STORED, tx.execute(_IN_ORDER, of_agent))],
        "conversations": threads,
        "contexts": seen,
        "waiting": taken(_WAIT, tx.execute(_WAITS, of_agent)),
    }


def _whole(stored: dict[str, Any]) -> dict[str, Any]:
    if not is_whole(stored):
        raise Damaged("Message", stored["id"])
    del stored["checksum"]
    return stored


# --- reading --------------------------------------------------------------------------------------------------------


def read(memory: Mapping[str, Any], agent_id: AgentId) -> RecallSection:
    """Raises InvalidInput."""
    rows = [
        checkpoint_messages.read(data, agent_id, f"memory.messages[{number}]")
        for number, data in enumerate(section(memory, "messages"))
    ]
    for name in ("id", "seq"):
        distinct(rows, lambda each, name=name: each[name], "memory.messages")
    known = {each["id"]: each for each in rows}
    threads = tuple(
        _thread(data, f"memory.conversations[{number}]", known)
        for number, data in enumerate(section(memory, "conversations"))
    )
    distinct((thread.row for thread in threads), lambda each: each["id"], "memory.conversations")
    ids = {"", *(thread.row["id"] for thread in threads)}
    given: Any = memory.get("contexts")
    if not isinstance(given, dict):
        raise InvalidInput("memory.contexts", "must be an object")
    seen = {
        conversation: tuple(texts(listed, f"memory.contexts.{conversation[:80]}"))
        for conversation, listed in cast("dict[str, Any]", given).items()
    }
    for conversation, listed in seen.items():
        if conversation not in ids or not set(listed) <= set(known):
            raise InvalidInput(
                "memory.contexts", f"refers to something that is not in the checkpoint, under '{conversation[:80]}'"
            )
    waits = [_wait(data, f"memory.waiting[{n}]", known, ids) for n, data in enumerate(section(memory, "waiting"))]
    distinct(waits, lambda each: each["conversation_id"], "memory.waiting")
    return RecallSection(known, threads, seen, tuple(waits))


def _thread(data: Any, where: str, known: Mapping[str, Any]) -> Thread:
    given = members(data, where, (*_THREAD, "blocks", "shares"))
    values = row(conversation_table, {name: given[name] for name in _THREAD}, where, _THREAD)
    identifier(ConversationId, values["id"], f"{where}.id")
    copies = members(given["blocks"], f"{where}.blocks", given["blocks"] or ())
    shares = texts(given["shares"], f"{where}.shares")
    if not set(shares) <= set(known):
        raise InvalidInput(f"{where}.shares", "refers to a message that is not in the checkpoint")
    read_copies = {label: checkpoint_blocks.read(each, f"{where}.blocks") for label, each in copies.items()}
    return Thread(values, read_copies, tuple(dict.fromkeys(shares)))


def _wait(data: Any, where: str, known: Mapping[str, Any], ids: set[str]) -> dict[str, Any]:
    values = row(approval_table, data, where, _WAIT)
    if values["message_id"] not in known or values["conversation_id"] not in ids:
        raise InvalidInput(where, "refers to a pending request that is not in the checkpoint")
    for run_id in texts(values["runs"], f"{where}.runs"):
        identifier(RunId, run_id, f"{where}.runs")
    if not checkpoint_messages.ANSWERS(values["answers"]):
        raise InvalidInput(f"{where}.answers", "must contain answers to tool calls")
    return values


# --- writing --------------------------------------------------------------------------------------------------------


def pieces(tx: Tx, target: Target, wanted: RecallSection) -> list[Piece]:
    """The writes that make this the agent's recall. Raises InvalidInput for another agent's conversation, and
    Conflict."""
    agent_id, of_agent = target.agent_id, {"of_agent": target.agent_id}
    there = {each.id for each in tx.execute(_THREADS, of_agent)}
    if foreign := [thread.row["id"] for thread in wanted.threads if thread.row["id"] not in there]:
        raise InvalidInput("memory.conversations", f"{foreign[0]} is not a conversation of this agent")
    shared = {each.conversation_id: each.number for each in tx.execute(_COUNT_SHARES, of_agent)}
    waits = [{**each, "agent_id": agent_id} for each in wanted.waits]
    found = [
        one(lambda tx: tx.execute(_CLEAR_WAITS, of_agent)),
        *repeated(
            contexts.count_of_agent(tx, agent_id), SHOWN, lambda tx, most: contexts.clear_some(tx, agent_id, most)
        ),
    ]
    for conversation, number in shared.items():
        found += repeated(number, SHOWN, partial(_drop_shares, conversation=conversation))
    found += _message_pieces(tx, agent_id, wanted.messages)
    for thread in wanted.threads:
        found += _thread_pieces(tx, target, thread)
    for conversation in sorted(there - {thread.row["id"] for thread in wanted.threads}):  # opened since
        found += checkpoint_blocks.copies(tx, target, conversation, {})
        found.append(one(partial(_drop_thread, conversation=conversation)))
    for conversation, ids in wanted.contexts.items():
        for start in range(0, len(ids), SHOWN):
            some = [MessageId(each) for each in ids[start : start + SHOWN]]
            show = partial(contexts.insert_at, agent_id=agent_id, new=some, conversation=conversation, first=start)
            found.append(one(show, len(some)))
    return [*found, *each_part(waits, SHOWN, lambda tx, some: tx.execute(_INSERT_WAIT, some))]


def _drop_shares(tx: Tx, most: int, conversation: str) -> None:
    tx.execute(_DROP_SHARES, {"of_conversation": conversation, "most": most})


def _drop_thread(tx: Tx, conversation: str) -> None:
    tx.execute(_DROP_THREAD, {"of_conversation": conversation})


def _thread_pieces(tx: Tx, target: Target, thread: Thread) -> list[Piece]:
    conversation = ConversationId(thread.row["id"])
    changes = {name: value for name, value in thread.row.items() if name != "id"} | {"updated_at": target.change.at}
    shares = [MessageId(each) for each in thread.shares]
    return [
        one(lambda tx: conversations.change(tx, conversation, changes)),
        *checkpoint_blocks.copies(tx, target, conversation, thread.copies),
        *each_part(shares, SHOWN, lambda tx, some: conversations.share(tx, conversation, some)),
    ]


def _message_pieces(tx: Tx, agent_id: AgentId, wanted: Mapping[str, Mapping[str, Any]]) -> list[Piece]:
    rows = taken(_STORED, tx.execute(_MESSAGES, {"of_agent": agent_id}))
    there = {each["id"]: {**each, "agent_id": agent_id} for each in rows}
    gone = [message_id for message_id, each in there.items() if wanted.get(message_id) != each]
    new = [dict(each) for message_id, each in wanted.items() if there.get(message_id) != each]
    for ids in parts([each["id"] for each in new], _CHUNK):
        if tx.execute(_ELSEWHERE, {"ids": ids, "of_agent": agent_id}).first() is not None:
            raise Conflict(_OF_ANOTHER)
    return [
        *each_part(gone, REMOVED, _remove_messages),
        *each_part(new, WRITTEN, partial(_insert_messages, agent_id=agent_id), _size_of),
    ]


def history_pieces(tx: Tx, agent_id: AgentId) -> list[Piece]:
    """The writes that delete the contexts and all messages of an agent."""
    ids = list(tx.execute(_MESSAGE_IDS, {"of_agent": agent_id}).scalars())
    shown = contexts.count_of_agent(tx, agent_id)
    return [
        *repeated(shown, SHOWN, lambda tx, most: contexts.clear_some(tx, agent_id, most)),
        *each_part(ids, DROPPED, _drop_messages),
        *repeated(
            scope_removal.count(tx, "message", agent_id),
            DROPPED,
            lambda tx, most: scope_removal.remove_some(tx, "message", agent_id, most),
        ),
        *repeated(
            segment_queue.count_rows(tx, "message", agent_id),
            DROPPED,
            lambda tx, most: segment_queue.forget_some(tx, "message", agent_id, most),
        ),
    ]


def _drop_messages(tx: Tx, ids: Sequence[str]) -> None:
    tx.execute(_DROP, {"ids": list(ids)})


def _size_of(row: Mapping[str, Any]) -> int:
    return sum(len(str(row[name])) for name in ("content", "tool_calls", "tool_returns"))


def _remove_messages(tx: Tx, ids: Sequence[str]) -> None:
    items.remove_many(tx, "message", ids)
    tx.execute(_DROP, {"ids": list(ids)})


def _insert_messages(tx: Tx, new: Sequence[dict[str, Any]], agent_id: AgentId) -> None:
    try:
        tx.execute(_INSERT, list(new))
    except IntegrityError as error:
        raise Conflict(_OF_ANOTHER) from error
    said = [message_from_json(each) for each in new]
    found = [messages.searchable(each, each.seq) for each in said if each.role in messages.SEARCHABLE and each.said]
    items.put_many(tx, "message", agent_id, found)
