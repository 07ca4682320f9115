"""Search for tools: by the words of their name, tags, description and parameters, and by meaning.

The scope of a tool is its organisation. Text and tags are written in the transaction that changes the tool; a text that
changed loses its vectors, which are made anew in the background.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import sqlalchemy as sa

from kelpie.core.ids import OrganizationId
from kelpie.core.search_hits import Hit
from kelpie.core.tools.tools import Tool, ToolHit, ToolSearch
from kelpie.search import items
from kelpie.search.item_lookup import ITEM_ID, Only
from kelpie.search.items import Item
from kelpie.search.queries import NOTHING_NEAR, ItemQuery, NearestItems, NearItems
from kelpie.search.vector_rows import Vector
from kelpie.storage.rows.text_match import inside, pattern
from kelpie.storage.tables import tool_tags, tools
from kelpie.storage.tools.rows import from_row
from kelpie.world.database import Tx

FIELDS = frozenset({"name", "tags", "description", "json_schema"})  # the searchable fields of a tool

_WITHIN_NAMES = re.compile(r"[_\W]+|(?<=[a-z0-9])(?=[A-Z])")
_INSERT_TAG = sa.insert(tool_tags)
_DELETE_TAGS = sa.delete(tool_tags).where(tool_tags.c.tool_id == sa.bindparam("of_tool"))
_MANY = sa.select(tools).where(tools.c.id.in_(sa.bindparam("ids", expanding=True)))


def text_of(tool: Tool) -> str:
    """The searchable text of a tool."""
    return "\n".join(dict.fromkeys(line for line in map(str.strip, _lines(tool)) if line))


def _lines(tool: Tool) -> Iterator[str]:
    yield tool.name
    yield " ".join(_WITHIN_NAMES.split(tool.name))
    yield tool.description or str(tool.json_schema.get("description") or "")
    for name, schema in _mapping(_mapping(tool.json_schema.get("parameters")).get("properties")).items():
        yield f"{name}: {_mapping(schema).get('description') or ''}"
    yield ", ".join(tool.tags)


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def put_many(tx: Tx, organization: OrganizationId, made: Sequence[Tool]) -> None:
    """Indexes new tools of an organisation."""
    if tags := [{"tool_id": tool.id, "tag": tag} for tool in made for tag in dict.fromkeys(tool.tags)]:
        tx.execute(_INSERT_TAG, tags)
    items.put_many(tx, "tool", organization, [Item(tool.id, text_of(tool)) for tool in made])


def replace(tx: Tx, before: Tool, after: Tool) -> None:
    """Indexes a changed tool anew."""
    if after.tags != before.tags:
        tx.execute(_DELETE_TAGS, {"of_tool": after.id})
        if after.tags:
            tx.execute(_INSERT_TAG, [{"tool_id": after.id, "tag": tag} for tag in dict.fromkeys(after.tags)])
    if text_of(after) != text_of(before):
        remove_many(tx, (after.id,))
        items.put_many(tx, "tool", after.organization_id, [Item(after.id, text_of(after))])


def remove_many(tx: Tx, ids: Sequence[str]) -> None:
    """Deletes the texts and vectors of tools; their tags are deleted with their rows."""
    items.remove_many(tx, "tool", ids)


def texts(tx: Tx, ids: Sequence[str]) -> dict[str, str]:
    """The searchable texts of these tools; missing ones are left out."""
    return {tool.id: text_of(tool) for tool in _many(tx, _MANY, {"ids": list(ids)})} if ids else {}


# --- search ---------------------------------------------------------------------------------------------------------

Shape = tuple[bool, bool]  # true if tool types are given, and tags


def search(tx: Tx, organization: OrganizationId, wanted: ToolSearch, near: NearItems = NOTHING_NEAR) -> list[ToolHit]:
    """The best tools, by their words and by meaning as `nearest` has found them; without words, the newest.

    When no tool has a word of the query, those that have it as a part of a word come first.
    """
    shape, bound = _shape(organization, wanted)
    if not wanted.text.strip():
        return [ToolHit(tool, None) for tool in _many(tx, _newest(shape, False), {**bound, "most": wanted.limit})]
    hits = items.find(tx, "tool", organization, _sought(wanted), _only(shape, bound), near)
    if wanted.mode != "vector" and not any(hit.words_rank for hit in hits):
        hits = _with_part(tx, wanted, shape, bound, hits)[: wanted.limit]
    # The nearest were found before; access to them is checked again here.
    found: dict[str, Tool] = {
        tool.id: tool for tool in _many(tx, _these(shape), {**bound, "ids": [hit.id for hit in hits]})
    }
    return [ToolHit(found[hit.id], hit, text_of(found[hit.id])) for hit in hits if hit.id in found]


def _with_part(tx: Tx, wanted: ToolSearch, shape: Shape, bound: Mapping[str, Any], hits: Sequence[Hit]) -> list[Hit]:
    asked = {**bound, "most": wanted.limit, "part": pattern(wanted.text.strip())}
    parts = dict.fromkeys(tool.id for tool in _many(tx, _newest(shape, True), asked))
    places = {hit.id: hit for hit in hits}
    first = [Hit(item, 0.0, at, _position(places.get(item)), ("words",)) for at, item in enumerate(parts, 1)]
    return [*first, *(hit for hit in hits if hit.id not in parts)]


def _position(hit: Hit | None) -> int | None:
    return None if hit is None else hit.meaning_rank


def nearest(
    tx: Tx,
    finder: NearestItems,
    organization: OrganizationId,
    model: str,
    wanted: ToolSearch,
    meanings: Mapping[str, Vector],
) -> NearItems:
    """The tools nearest in meaning, by the vectors of this model."""
    shape, bound = _shape(organization, wanted)
    sought = ItemQuery(wanted.text, wanted.limit, wanted.mode, meanings)
    return items.nearest(tx, finder, "tool", {organization: model}, sought, _only(shape, bound))


def _sought(wanted: ToolSearch) -> ItemQuery:
    return ItemQuery(wanted.text, wanted.limit, wanted.mode)


def _shape(organization: OrganizationId, wanted: ToolSearch) -> tuple[Shape, dict[str, Any]]:
    kinds, tags = [kind.value for kind in wanted.tool_types], sorted(set(wanted.tags))
    bound = {"of_organization": organization, **({"kinds": kinds} if kinds else {}), **({"tags": tags} if tags else {})}
    return (bool(kinds), bool(tags)), bound


def _only(shape: Shape, bound: Mapping[str, Any]) -> Only | None:
    return Only(_same_row(shape), bound) if any(shape) else None


@lru_cache(maxsize=4)
def _same_row(shape: Shape) -> sa.ColumnElement[bool]:
    return sa.exists(sa.select(sa.literal(1)).where(tools.c.id == ITEM_ID, *_conditions(shape)))


@lru_cache(maxsize=4)
def _these(shape: Shape) -> sa.Select[Any]:
    return _MANY.where(*_conditions(shape))


@lru_cache(maxsize=8)
def _newest(shape: Shape, part: bool) -> sa.Select[Any]:
    found = sa.select(tools).where(*_conditions(shape))
    if part:
        found = found.where(inside(tools.c.name, "part") | inside(tools.c.description, "part"))
    return found.order_by(tools.c.created_at.desc(), tools.c.id.desc()).limit(sa.bindparam("most"))


def _conditions(shape: Shape) -> list[sa.ColumnElement[bool]]:
    by_kind, by_tag = shape
    where = [tools.c.organization_id == sa.bindparam("of_organization")]
    if by_kind:
        where.append(tools.c.tool_type.in_(sa.bindparam("kinds", expanding=True)))
    if by_tag:
        tagged = (tool_tags.c.tool_id == tools.c.id) & tool_tags.c.tag.in_(sa.bindparam("tags", expanding=True))
        where.append(sa.exists(sa.select(sa.literal(1)).where(tagged).correlate(tools)))
    return where


def _many(tx: Tx, statement: sa.Select[Any], bound: Mapping[str, Any]) -> list[Tool]:
    return [from_row(row) for row in tx.execute(statement, bound)]
