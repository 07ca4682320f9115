"""Neighbours of items: the item before and the item after each, in its conversation, file or batch.

Only the place that was written with an item counts, never the order in which items were stored. Neighbours are of the
same kind and scope; the caller checks whether they may be found.
"""

from collections.abc import Sequence

import orjson
from sqlalchemy import Connection

from kelpie.world.database import run_sql

Pair = tuple[int, int]  # the numbers of two items of which the second comes right after the first

# One row, because for each further row concurrent turns would wait for the interpreter once more. The index of threads
# alone may be used: no index of all items of a scope may tempt the planner.
_NEXT = (
    "(SELECT other.id FROM search_items AS other WHERE other.thread = item.thread AND other.place {than} item.place "
    "AND +other.scope = item.scope AND +other.kind = item.kind ORDER BY other.place {order} LIMIT 1)"
)
_PAIRS = (
    f"SELECT json_group_array(item.id), json_group_array({_NEXT.format(than='<', order='DESC')}), "
    f"json_group_array({_NEXT.format(than='>', order='ASC')}) "
    "FROM json_each(?) AS asked JOIN search_items AS item ON item.id = asked.value "
    "WHERE item.thread IS NOT NULL"
)


def pairs(tx: Connection, numbers: Sequence[int]) -> list[Pair]:
    """All pairs of neighbours in which one of these items stands, each once."""
    if not numbers:
        return []
    items, before, after = map(orjson.loads, run_sql(tx, _PAIRS, (str(list(numbers)),)).fetchall()[0])
    found = [*zip(before, items, strict=True), *zip(items, after, strict=True)]
    return list(dict.fromkeys((first, second) for first, second in found if first is not None and second is not None))
