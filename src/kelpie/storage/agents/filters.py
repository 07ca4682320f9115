"""Filters of a list of agents: the conditions, built once, and their parameters.

A filter that matches few of very many agents names its candidates first: reading the list in its order until enough of
them match would read all of it.
"""

from typing import Any

from sqlalchemy import ColumnElement, bindparam, func, or_, select

from kelpie.core.agents.agent import AgentQuery
from kelpie.storage import name_index
from kelpie.storage.rows.text_match import inside, pattern
from kelpie.storage.tables import agent_identities, agent_tags, agents, identities
from kelpie.storage.tables.projects import in_project
from kelpie.world.database import Tx

CANDIDATES_MAX = 256  # of more, a list in its order soon finds a page of matches

_WITH_TAGS = select(agent_tags.c.agent_id).where(agent_tags.c.tag.in_(bindparam("tags", expanding=True)))
_LINKED = select(agent_identities.c.agent_id)
CONDITIONS: dict[str, ColumnElement[bool]] = {
    "name": agents.c.name == bindparam("name"),
    "query_text": inside(agents.c.name, "query_text"),
    "tags_any": agents.c.id.in_(_WITH_TAGS),
    "tags_all": agents.c.id.in_(
        _WITH_TAGS.group_by(agent_tags.c.agent_id).having(func.count(agent_tags.c.tag) == bindparam("tag_count"))
    ),
    "project_id": in_project(),
    "template_id": agents.c.template_id == bindparam("template_id"),
    "base_template_id": agents.c.base_template_id == bindparam("base_template_id"),
    "created_by_id": agents.c.created_by_id == bindparam("created_by_id"),
    "last_stop_reason": agents.c.last_stop_reason == bindparam("last_stop_reason"),
    "identity_id": agents.c.id.in_(_LINKED.where(agent_identities.c.identity_id == bindparam("identity_id"))),
    "identifier_keys": agents.c.id.in_(
        _LINKED.join(identities, identities.c.id == agent_identities.c.identity_id).where(
            identities.c.identifier_key.in_(bindparam("identifier_keys", expanding=True))
        )
    ),
    "among": agents.c.id.in_(bindparam("among", expanding=True)),
    "only": agents.c.id.in_(bindparam("only", expanding=True)),
    "visible": or_(agents.c.hidden.is_(None), agents.c.hidden.is_(False)),
}


def matching(query: AgentQuery) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of the conditions of a query, and their values."""
    names: list[str] = []
    bound: dict[str, Any] = {}
    plain = (
        "name",
        "project_id",
        "template_id",
        "base_template_id",
        "created_by_id",
        "last_stop_reason",
        "identity_id",
    )
    for name in plain:
        if (value := getattr(query, name)) is not None:
            names.append(name)
            bound[name] = value
    if query.query_text:
        names.append("query_text")
        bound["query_text"] = pattern(query.query_text)
    if query.tags:
        tags = sorted(set(query.tags))
        bound["tags"] = tags
        names.append("tags_all" if query.match_all_tags else "tags_any")
        if query.match_all_tags:
            bound["tag_count"] = len(tags)
    if query.identifier_keys:
        names.append("identifier_keys")
        bound["identifier_keys"] = list(query.identifier_keys)
    if query.only is not None:
        names.append("only")
        bound["only"] = list(query.only)
    if not query.show_hidden:
        names.append("visible")
    return tuple(names), bound


_TAGGED = _WITH_TAGS.distinct().limit(CANDIDATES_MAX + 1)
_OF_IDENTITY = _LINKED.where(agent_identities.c.identity_id == bindparam("identity_id")).limit(CANDIDATES_MAX + 1)


def candidates(tx: Tx, query: AgentQuery, bound: dict[str, Any]) -> list[str] | None:
    """A few agents, of any organization, among which are all that match; None when no filter is that selective.

    `bound` are the parameters that `matching` found.
    """
    if query.query_text:
        found = name_index.candidates(tx, query.query_text, CANDIDATES_MAX)
        if found is not None:
            return found
    for wanted, statement in ((query.tags, _TAGGED), (query.identity_id, _OF_IDENTITY)):
        if wanted and len(few := tx.execute(statement, bound).scalars().all()) <= CANDIDATES_MAX:
            return list(few)
    return None
