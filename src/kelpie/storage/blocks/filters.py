"""The filters of a list of blocks as SQL. Search text from clients is escaped: `%` and `_` mean themselves."""

from collections.abc import Sequence

import sqlalchemy as sa

from kelpie.core.memory.blocks import BlockQuery
from kelpie.storage.rows.text_match import holds
from kelpie.storage.tables import agent_blocks, block_identities, block_tags, blocks, identities


def matching(query: BlockQuery) -> list[sa.ColumnElement[bool]]:
    """The conditions of a query."""
    c = blocks.c
    exact = ((c.label, query.label), (c.template_name, query.name), (c.project_id, query.project_id))
    parts = (
        (c.label, query.label_search),
        (c.description, query.description_search),
        (c.value, query.value_search),
    )
    where: list[sa.ColumnElement[bool]] = [column == value for column, value in exact if value is not None]
    where += [holds(column, text) for column, text in parts if text]
    if query.templates_only:
        where.append(c.is_template.is_(True))
    if not query.show_hidden:
        where.append(sa.or_(c.hidden.is_(None), c.hidden.is_(False)))
    if query.tags:
        where.append(_tagged(query.tags, query.match_all_tags))
    linked = sa.select(block_identities.c.block_id)
    if query.identity_id is not None:
        where.append(c.id.in_(linked.where(block_identities.c.identity_id == query.identity_id)))
    if query.identifier_keys:
        keyed = linked.join(identities, identities.c.id == block_identities.c.identity_id)
        where.append(c.id.in_(keyed.where(identities.c.identifier_key.in_(query.identifier_keys))))
    return where + _connected(query)


def _tagged(tags: Sequence[str], match_all: bool) -> sa.ColumnElement[bool]:
    wanted = list(dict.fromkeys(tags))
    holders = sa.select(block_tags.c.block_id).where(block_tags.c.tag.in_(wanted))
    if match_all:
        holders = holders.group_by(block_tags.c.block_id).having(sa.func.count() == len(wanted))
    return blocks.c.id.in_(holders)


def _connected(query: BlockQuery) -> list[sa.ColumnElement[bool]]:
    if (query.connected_count_gt, query.connected_count_lt, query.connected_count_eq) == (None, None, ()):
        return []
    number = (
        sa.select(sa.func.count())
        .select_from(agent_blocks)
        .where(agent_blocks.c.block_id == blocks.c.id)
        .correlate(blocks)
        .scalar_subquery()
    )
    where: list[sa.ColumnElement[bool]] = []
    if query.connected_count_gt is not None:
        where.append(number > query.connected_count_gt)
    if query.connected_count_lt is not None:
        where.append(number < query.connected_count_lt)
    if query.connected_count_eq:
        where.append(number.in_(query.connected_count_eq))
    return where
