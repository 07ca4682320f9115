"""The messages of every agent of an organisation: listed in the order of time, and searched by words and meaning.

Messages of one agent keep the order in which they were written; between agents, time decides.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, delete, exists, literal, or_, select, tuple_, update

from kelpie.core.conversations.messages import Message, MessageQuery, MessageSearch
from kelpie.core.errors import NotFound
from kelpie.core.ids import DEFAULT_CONVERSATION, AgentId, GroupId, MessageId, OrganizationId, RunId
from kelpie.core.search_hits import Hit
from kelpie.core.time import Micros
from kelpie.search import items
from kelpie.search.item_lookup import ITEM_ID, Only, listed
from kelpie.search.queries import NOTHING_NEAR, ItemQuery, NearestItems, NearItems
from kelpie.search.tables import search_items, search_scopes
from kelpie.search.vector_rows import Vector
from kelpie.storage.conversations.message_rows import from_row, from_rows_within
from kelpie.storage.rows.row_bytes import row_bytes, within_bytes
from kelpie.storage.tables import agents, context, messages
from kelpie.storage.tables.projects import in_project
from kelpie.world.database import Tx

_M = messages.c
# Checked for each message, not for all agents at once: a list then reads messages by time and stops when it is full.
_OF_ORGANIZATION = exists(
    select(literal(1)).where(agents.c.id == _M.agent_id, agents.c.organization_id == bindparam("organization"))
)
_FILTERS: dict[str, ColumnElement[bool]] = {
    "agent_id": _M.agent_id == bindparam("agent_id"),
    "conversation_id": _M.conversation_id == bindparam("conversation_id"),
    "default_conversation": _M.conversation_id.is_(None),
    "group_id": _M.group_id == bindparam("group_id"),
    "roles": _M.role.in_(bindparam("roles", expanding=True)),
    "project_id": _M.agent_id.in_(select(agents.c.id).where(in_project())),
    "template_id": _M.agent_id.in_(select(agents.c.id).where(agents.c.template_id == bindparam("template_id"))),
    "created_from": _M.created_at >= bindparam("created_from"),
    "created_to": _M.created_at <= bindparam("created_to"),
    "spoken": exists(
        select(literal(1)).where(search_items.c.kind == "message", search_items.c.item_id == _M.id).correlate(messages)
    ),
    "not_step": or_(_M.step_id.is_(None), _M.step_id != bindparam("not_step")),
}
SEARCH_BYTES_MAX = 16 * 1024 * 1024  # of the messages in one answer; worse ones are left out beyond it
_PIECE = 50

# --- listed ---------------------------------------------------------------------------------------------------------

_PLACE = tuple_(_M.created_at, _M.agent_id, _M.seq)
_CURSORS: dict[str, ColumnElement[bool]] = {
    "after": tuple_(bindparam("after_at"), bindparam("after_agent"), bindparam("after_seq")) < _PLACE,
    "before": tuple_(bindparam("before_at"), bindparam("before_agent"), bindparam("before_seq")) > _PLACE,
}
_PLACE_OF = select(_M.created_at, _M.agent_id, _M.seq).where(_M.id == bindparam("of_message"), _OF_ORGANIZATION)


@lru_cache(maxsize=64)
def _listing(names: tuple[str, ...], cursors: tuple[str, ...], descending: bool) -> Select[Any]:
    where = [*(_FILTERS[name] for name in names), *(_CURSORS[name] for name in cursors)]
    order = (_M.created_at, _M.agent_id, _M.seq)
    found = select(messages).where(_OF_ORGANIZATION, *where)
    return found.order_by(*(c.desc() for c in order) if descending else order).limit(bindparam("most"))


def select_all(
    tx: Tx, organization: OrganizationId, query: MessageQuery, group_id: GroupId | None = None
) -> list[Message]:
    """Messages of all agents, or of one group, oldest first. Raises NotFound for an unknown cursor."""
    used = _thread(query.conversation_id) | ({} if group_id is None else {"group_id": group_id})
    bound: dict[str, Any] = {"organization": organization, "most": query.limit, **used}
    cursors: list[str] = []
    for name, cursor in (("after", query.after), ("before", query.before)):
        if cursor is not None:
            bound |= _position(tx, organization, cursor, name)
            cursors.append(name)
    rows = tx.execute(_listing(tuple(used), tuple(cursors), query.descending), bound)
    found = from_rows_within(rows, query.bytes_max)
    return found[::-1] if query.descending else found


def _position(tx: Tx, organization: OrganizationId, cursor: MessageId, name: str) -> dict[str, Any]:
    row = tx.execute(_PLACE_OF, {"organization": organization, "of_message": cursor}).first()
    if row is None:
        raise NotFound("Message", cursor)
    return {f"{name}_at": row.created_at, f"{name}_agent": row.agent_id, f"{name}_seq": row.seq}


def _thread(conversation_id: str | None) -> dict[str, Any]:
    if conversation_id is None:
        return {}
    return (
        {"default_conversation": True}
        if conversation_id == DEFAULT_CONVERSATION
        else {"conversation_id": conversation_id}
    )


# --- a group's ------------------------------------------------------------------------------------------------------

_JOIN = (
    update(messages)
    .where(_M.run_id == bindparam("of_run"), _M.role == "user", _M.otid.is_not(None), _M.group_id.is_(None))
    .values(group_id=bindparam("new_group"))
)


def join_group(tx: Tx, run_id: RunId, group_id: GroupId) -> None:
    """Assigns the request of a run to a group."""
    tx.execute(_JOIN, {"of_run": run_id, "new_group": group_id})


# --- a group's, removed ---------------------------------------------------------------------------------------------

_IN_GROUP = select(_M.id, _M.agent_id).where(_OF_ORGANIZATION, _FILTERS["group_id"])
_FORGET = delete(context).where(context.c.message_id == bindparam("of_message"), context.c.agent_id == bindparam("of"))
_DELETE = delete(messages).where(_M.id == bindparam("of_message"))


def remove_group(tx: Tx, organization: OrganizationId, group_id: GroupId) -> list[AgentId]:
    """Deletes the messages of a group from histories, contexts and the text index; returns the agents that had them."""
    found = tx.execute(_IN_GROUP, {"organization": organization, "group_id": group_id}).all()
    for message_id, agent_id in found:
        tx.execute(_FORGET, {"of_message": message_id, "of": agent_id})
        tx.execute(_DELETE, {"of_message": message_id})
        items.remove_many(tx, "message", (message_id,))
    return [AgentId(agent_id) for agent_id in dict.fromkeys(row.agent_id for row in found)]


# --- searched -------------------------------------------------------------------------------------------------------


_AGENTS = select(agents.c.id).where(agents.c.organization_id == bindparam("organization"))


@lru_cache(maxsize=256)
def _condition(names: tuple[str, ...]) -> ColumnElement[bool]:
    of_match = _M.id == ITEM_ID
    return exists(select(literal(1)).where(of_match, _OF_ORGANIZATION, *(_FILTERS[name] for name in names)))


@lru_cache(maxsize=256)
def _newest(names: tuple[str, ...]) -> Select[Any]:
    found = select(messages).where(_OF_ORGANIZATION, *(_FILTERS[name] for name in names))
    return found.order_by(_M.created_at.desc(), _M.agent_id.desc(), _M.seq.desc()).limit(bindparam("most"))


@lru_cache(maxsize=256)
def _these(names: tuple[str, ...]) -> Select[Any]:
    among = _M.id.in_(listed("ids"))
    return select(messages).where(among, _OF_ORGANIZATION, *(_FILTERS[name] for name in names))


_BETWEEN = (
    select(messages)
    .where(_M.agent_id == bindparam("of_agent"), _M.role.in_(("user", "assistant")))
    .where(_M.created_at >= bindparam("since"), _M.created_at <= bindparam("until"), _FILTERS["spoken"])
    .order_by(_M.created_at, _M.seq)
    .offset(bindparam("skipped"))
    .limit(bindparam("most"))
)
_EVER = 2**62


def messages_between(
    tx: Tx, agent_id: AgentId, since: Micros | None, until: Micros | None, skipped: int, most: int
) -> list[Message]:
    """The messages to or by an agent in a span of time, oldest first."""
    bound = {"since": -_EVER if since is None else since, "until": _EVER if until is None else until}
    rows = tx.execute(_BETWEEN, {"of_agent": agent_id, "skipped": skipped, "most": most, **bound})
    return [from_row(row) for row in rows]


Found = tuple[Message, Hit | None]


def search(tx: Tx, organization: OrganizationId, wanted: MessageSearch, near: NearItems = NOTHING_NEAR) -> list[Found]:
    """The best messages, by their words and by meaning as `nearest` has found them; every filter comes before the cut.

    Without words to look for, the newest. Lost messages are included, so that the caller can report them.
    """
    used = _given(wanted)
    bound: Mapping[str, Any] = {"organization": organization, **used}
    if not wanted.text.strip():
        rows = within_bytes(tx.execute(_newest(tuple(used)), {**bound, "most": wanted.limit}), SEARCH_BYTES_MAX)
        return [(message, None) for message in map(from_row, rows)]
    only = Only(_condition(tuple(used)), bound, _AGENTS)
    hits = items.find(tx, "message", wanted.agent_id, _sought(wanted), only, near)
    # The nearest were found before; access to them is checked again here.
    found = _found(tx, _these(tuple(used)), bound, [hit.id for hit in hits])
    return [(found[hit.id], hit) for hit in hits if hit.id in found]


def _found(tx: Tx, statement: Select[Any], bound: Mapping[str, Any], ids: Sequence[str]) -> dict[str, Message]:
    """The messages with these ids, best first, as far as they have a bounded size together."""
    found: dict[str, Message] = {}
    size = 0
    for start in range(0, len(ids), _PIECE):
        for row in tx.execute(statement, {**bound, "ids": json.dumps(ids[start : start + _PIECE])}):
            found[row.id] = from_row(row)
            size += row_bytes(row)
        if size > SEARCH_BYTES_MAX:
            break
    return found


_SCOPES = (
    select(search_scopes.c.scope, search_scopes.c.model)
    .join(agents, agents.c.id == search_scopes.c.scope)
    .where(search_scopes.c.kind == "message", agents.c.organization_id == bindparam("organization"))
)
_SCOPE = _SCOPES.where(agents.c.id == bindparam("of_agent"))


def models(tx: Tx, organization: OrganizationId, agent_id: AgentId | None) -> dict[str, str]:
    """The agents whose messages can be searched by meaning, with the model they are searched by."""
    bound = {"organization": organization}
    rows = tx.execute(_SCOPES, bound) if agent_id is None else tx.execute(_SCOPE, {**bound, "of_agent": agent_id})
    return {row.scope: row.model for row in rows}


def nearest(
    tx: Tx,
    finder: NearestItems,
    organization: OrganizationId,
    scopes: Mapping[str, str],
    wanted: MessageSearch,
    meanings: Mapping[str, Vector],
) -> NearItems:
    """The messages nearest in meaning, of these agents, each with the model its vectors are of."""
    used = _given(wanted)
    plain = wanted.agent_id is not None and used.keys() == {"agent_id"}
    only = None if plain else Only(_condition(tuple(used)), {"organization": organization, **used})
    return items.nearest(tx, finder, "message", scopes, replace(_sought(wanted), meanings=meanings), only)


def _sought(wanted: MessageSearch) -> ItemQuery:
    return ItemQuery(wanted.text, wanted.limit, wanted.mode, mentions=wanted.mentions, times=_times)


_TIMES = select(_M.id, _M.created_at).where(_M.id.in_(listed("ids")))


def _times(tx: Tx, ids: Sequence[str]) -> dict[str, tuple[Micros, Micros]]:
    return {row.id: (row.created_at, row.created_at) for row in tx.execute(_TIMES, {"ids": json.dumps(ids)})}


def _given(wanted: MessageSearch) -> dict[str, Any]:
    given: dict[str, Any] = {
        "agent_id": wanted.agent_id,
        **_thread(wanted.conversation_id),
        "roles": [role.value for role in wanted.roles] or None,
        "project_id": wanted.project_id,
        "template_id": wanted.template_id,
        "created_from": wanted.created_from,
        "created_to": wanted.created_to,
        "spoken": wanted.spoken or None,
        "not_step": wanted.not_step,
    }
    return {name: value for name, value in given.items() if value is not None}
