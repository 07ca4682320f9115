"""The tags of an organisation's agents and blocks, as one sorted list without duplicates. The cursor is the tag
itself.
"""

from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from kelpie.core.ids import OrganizationId
from kelpie.core.paging import Page
from kelpie.storage.rows.text_match import inside, pattern
from kelpie.storage.tables import agent_tags, agents, block_tags, blocks
from kelpie.world.database import Tx

_OWNER = sa.bindparam("of_organization", type_=sa.Text())
_OF_AGENTS = sa.select(agent_tags.c.tag).join(agents, agents.c.id == agent_tags.c.agent_id)
_OF_BLOCKS = sa.select(block_tags.c.tag).join(blocks, blocks.c.id == block_tags.c.block_id)
_BOTH = sa.union(
    _OF_AGENTS.where(agents.c.organization_id == _OWNER), _OF_BLOCKS.where(blocks.c.organization_id == _OWNER)
).subquery("both")


@lru_cache(maxsize=16)
def _statement(after: bool, before: bool, part: bool, down: bool) -> sa.Select[Any]:
    tag = _BOTH.c.tag
    statement = sa.select(tag)
    if after:
        statement = statement.where(tag < sa.bindparam("after") if down else tag > sa.bindparam("after"))
    if before:
        statement = statement.where(tag > sa.bindparam("before") if down else tag < sa.bindparam("before"))
    if part:
        statement = statement.where(inside(tag, "part"))
    backwards = before and not after  # the page that touches the cursor, turned round afterwards
    order = tag.desc() if down != backwards else tag
    return statement.order_by(order)


def select(tx: Tx, organization: OrganizationId, page: Page, part: str | None) -> list[str]:
    """The tags on this page; with `part`, those that contain it."""
    statement = _statement(page.after is not None, page.before is not None, bool(part), page.descending)
    bound: dict[str, Any] = {
        "of_organization": organization,
        "after": page.after,
        "before": page.before,
        "part": pattern(part or ""),
    }
    cut = statement if page.limit is None else statement.limit(page.limit)
    found = [row.tag for row in tx.execute(cut, bound)]
    return found[::-1] if page.before is not None and page.after is None else found
