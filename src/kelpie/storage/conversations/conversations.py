"""Conversations as rows, and the blocks that only they see.

A deleted conversation stays as a row that is never shown: the agent's history keeps its messages.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, Update, bindparam, delete, insert, select, update

from kelpie.core.conversations.conversations import ArchiveStatus, Conversation, ConversationQuery
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, BlockId, ConversationId, MessageId, OrganizationId
from kelpie.core.time import Micros
from kelpie.storage.rows.paging import Paging
from kelpie.storage.rows.text_match import inside, pattern
from kelpie.storage.tables import (
    blocks,
    context,
    conversation_blocks,
    conversation_shares,
    conversations,
    removed_agents,
)
from kelpie.world.database import Tx

_C = conversations.c
_INSERT = insert(conversations)
_LIVE = select(conversations).where(
    _C.organization_id == bindparam("organization"),
    _C.deleted_at.is_(None),
    _C.agent_id.not_in(select(removed_agents.c.agent_id)),
)
_ONE = _LIVE.where(_C.id == bindparam("of_conversation"))
_BLOCKS_OF = (
    select(conversation_blocks.c.conversation_id, conversation_blocks.c.block_id)
    .where(conversation_blocks.c.conversation_id.in_(bindparam("ids", expanding=True)))
    .order_by(conversation_blocks.c.conversation_id, conversation_blocks.c.label)
)
_INSERT_BLOCK = insert(conversation_blocks)
_INSERT_SHARE = insert(conversation_shares)


def add(tx: Tx, conversation: Conversation, organization: OrganizationId, isolated: Mapping[str, BlockId]) -> None:
    """Writes a new conversation; `isolated` are its own blocks by label, written already."""
    tx.execute(
        _INSERT,
        {
            "id": conversation.id,
            "organization_id": organization,
            "agent_id": conversation.agent_id,
            "summary": conversation.summary,
            "description": conversation.description,
            "model": conversation.model,
            "model_settings": conversation.model_settings and dict(conversation.model_settings),
            "context_window_limit": conversation.context_window_limit,
            "hidden": conversation.hidden,
            "archived_at": conversation.archived_at,
            "last_message_at": conversation.last_message_at,
            "last_run_completion": None,
            "created_by_id": conversation.created_by_id,
            "last_updated_by_id": conversation.last_updated_by_id,
            "created_at": conversation.created_at,
            "updated_at": conversation.updated_at,
            "deleted_at": None,
            "version": conversation.version,
        },
    )
    if isolated:
        owned = [{"conversation_id": conversation.id, "label": k, "block_id": v} for k, v in isolated.items()]
        tx.execute(_INSERT_BLOCK, owned)


def share(tx: Tx, conversation_id: ConversationId, message_ids: Sequence[MessageId]) -> None:
    """Lets a fork show messages of another conversation."""
    if message_ids:
        tx.execute(_INSERT_SHARE, [{"conversation_id": conversation_id, "message_id": m} for m in message_ids])


def _from_row(row: Row[Any], isolated: tuple[BlockId, ...]) -> Conversation:
    return Conversation(
        id=ConversationId(row.id),
        agent_id=AgentId(row.agent_id),
        created_at=row.created_at,
        updated_at=row.updated_at,
        summary=row.summary,
        description=row.description,
        model=row.model,
        model_settings=row.model_settings,
        context_window_limit=row.context_window_limit,
        hidden=row.hidden,
        archived_at=row.archived_at,
        last_message_at=row.last_message_at,
        isolated_block_ids=isolated,
        created_by_id=row.created_by_id,
        last_updated_by_id=row.last_updated_by_id,
        version=row.version,
    )


def _with_blocks(tx: Tx, rows: Sequence[Row[Any]]) -> list[Conversation]:
    found: dict[str, list[BlockId]] = {}
    if rows:
        for conversation_id, block_id in tx.execute(_BLOCKS_OF, {"ids": [row.id for row in rows]}):
            found.setdefault(conversation_id, []).append(BlockId(block_id))
    return [_from_row(row, tuple(found.get(row.id, ()))) for row in rows]


def get(tx: Tx, organization: OrganizationId, conversation_id: str) -> Conversation:
    """Raises NotFound, also for a deleted one and for another organisation's."""
    row = tx.execute(_ONE, {"organization": organization, "of_conversation": conversation_id}).first()
    if row is None:
        raise NotFound("Conversation", conversation_id)
    return _with_blocks(tx, [row])[0]


_PAGES = Paging(conversations, "created_at", "last_run_completion", "last_message_at")
_FILTERS: dict[str, ColumnElement[bool]] = {
    "agent_id": _C.agent_id == bindparam("agent_id"),
    "summary_search": inside(_C.summary, "summary_search"),
    "unarchived": _C.archived_at.is_(None),
    "archived": _C.archived_at.is_not(None),
    "shown": _C.hidden.is_(False),
}


@lru_cache(maxsize=64)
def _matching(names: tuple[str, ...]) -> Select[Any]:
    return _LIVE.where(*(_FILTERS[name] for name in names))


def select_conversations(tx: Tx, organization: OrganizationId, query: ConversationQuery) -> list[Conversation]:
    """The conversations that match. Raises NotFound for a cursor that is not one of the organisation's
    conversations."""
    if query.page.after is not None:
        get(tx, organization, query.page.after)
    given: dict[str, Any] = {
        "agent_id": query.agent_id,
        "summary_search": pattern(query.summary_search) if query.summary_search else None,
        "unarchived": True if query.archive_status is ArchiveStatus.unarchived else None,
        "archived": True if query.archive_status is ArchiveStatus.archived else None,
        "shown": None if query.show_hidden else True,
    }
    used = {name: value for name, value in given.items() if value is not None}
    bound = {"organization": organization, **used}
    rows = _PAGES.rows(tx, _matching(tuple(used)), query.page, bound, within={"organization_id": organization})
    return _with_blocks(tx, rows)


@lru_cache(maxsize=64)
def _update(names: tuple[str, ...]) -> Update:
    new = {name: bindparam(f"new_{name}", type_=_C[name].type) for name in names}
    return update(conversations).where(_C.id == bindparam("of_conversation")).values({**new, "version": _C.version + 1})


def change(tx: Tx, conversation_id: ConversationId, changes: Mapping[str, Any]) -> None:
    """Sets columns by name."""
    new = {f"new_{name}": value for name, value in changes.items()}
    tx.execute(_update(tuple(changes)), {"of_conversation": conversation_id, **new})


_RECORD_RUN = (
    update(conversations)
    .where(_C.id == bindparam("of_conversation"))
    .values(last_message_at=bindparam("at"), last_run_completion=bindparam("at"), updated_at=bindparam("at"))
)


def record_run(tx: Tx, conversation_id: str, at: Micros) -> None:
    """Records the end of the conversation's last turn; not a change that a turn depends on."""
    tx.execute(_RECORD_RUN, {"of_conversation": conversation_id, "at": at})


_VERSIONS = (
    select(_C.version, blocks.c.id, blocks.c.version.label("block_version"))
    .select_from(
        conversations.outerjoin(conversation_blocks, conversation_blocks.c.conversation_id == _C.id).outerjoin(
            blocks, blocks.c.id == conversation_blocks.c.block_id
        )
    )
    .where(_C.id == bindparam("of_conversation"), _C.deleted_at.is_(None))
)


def versions(tx: Tx, conversation_id: str) -> tuple[int, dict[str, int]] | None:
    """The versions of the conversation's record and of each of its own blocks; None when it is gone."""
    rows = tx.execute(_VERSIONS, {"of_conversation": conversation_id}).all()
    if not rows:
        return None
    return rows[0].version, {row.id: row.block_version for row in rows if row.id is not None}


_IS_LIVE = select(_C.id).where(_C.id == bindparam("of_conversation"), _C.deleted_at.is_(None))


def is_live(tx: Tx, conversation_id: str) -> bool:
    """Checks whether the conversation exists and was not deleted."""
    return tx.execute(_IS_LIVE, {"of_conversation": conversation_id}).first() is not None


_LIVE_OF_AGENT = (
    select(_C.id).where(_C.agent_id == bindparam("of_agent"), _C.deleted_at.is_(None)).order_by(_C.created_at, _C.id)
)


def live_of_agent(tx: Tx, agent_id: AgentId) -> list[ConversationId]:
    """The conversations of an agent that were not deleted, without the default one; the oldest first."""
    return list(map(ConversationId, tx.execute(_LIVE_OF_AGENT, {"of_agent": agent_id}).scalars()))


# --- removing -------------------------------------------------------------------------------------------------------

_OWN_BLOCKS = select(conversation_blocks.c.block_id)
_DROP_BLOCKS = delete(blocks).where(
    blocks.c.id.in_(_OWN_BLOCKS.where(conversation_blocks.c.conversation_id == bindparam("of_conversation")))
)
_DROP_SHARES = delete(conversation_shares).where(conversation_shares.c.conversation_id == bindparam("of_conversation"))
_DROP_CONTEXT = delete(context).where(
    context.c.agent_id == bindparam("of_agent"), context.c.conversation_id == bindparam("of_conversation")
)


def remove(tx: Tx, conversation: Conversation, at: Micros) -> None:
    """Deletes a conversation with its own blocks and its context; its messages stay with the agent."""
    wanted = {"of_conversation": conversation.id}
    tx.execute(_DROP_BLOCKS, wanted)
    tx.execute(_DROP_SHARES, wanted)
    tx.execute(_DROP_CONTEXT, {"of_agent": conversation.agent_id, **wanted})
    change(tx, conversation.id, {"deleted_at": at, "updated_at": at})
