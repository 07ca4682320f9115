"""Vectors of the few items that may be nearest: read, checked by their checksums, and compared with the query.

They are read as one row, because with every row that is fetched a thread releases and reacquires the interpreter, and a
concurrent turn waits as often. A vector that does not match its checksum is logged and never counted.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import xor
from typing import Any
from zlib import crc32

import numpy as np
import orjson
from numpy.typing import NDArray
from sqlalchemy import Connection, LargeBinary, Select, cast, column, func, select, text
from sqlalchemy.sql.expression import TextualSelect

from kelpie.core.errors import StorageError
from kelpie.observe import logs
from kelpie.search.queries import Near
from kelpie.search.vector_rows import Vector
from kelpie.world.statements import Prepared

Rows = NDArray[np.float32]
SURE_MAX = 40  # of the nearest: each is checked by itself as well

_log = logs.get("search")


def products(rows: NDArray[np.float32 | np.uint8], query: Vector) -> NDArray[np.float32]:
    """The product of each row with the query. `@` would wake a thread per core, which costs more than it saves and
    slows all others."""
    return np.einsum("ij,j->i", rows, np.frombuffer(query.values, "<f4"))


def other_numbers(query: Vector) -> StorageError:
    """The error text for a model that gives other vectors under the same name."""
    return StorageError(
        f"{query.model} now returns vectors of {len(query.values) // 4} numbers, but others are stored. Choose "
        "another embedding model and then this one again, so that all texts are embedded again."
    )


class Candidates:
    """A statement that selects items, their vectors and the checksums of these; it is built once."""

    def __init__(self, each: Select[Any, Any, Any] | TextualSelect) -> None:
        found = each.subquery().c
        self._each = each
        self._together = Prepared(
            select(
                func.json_group_array(found.item),
                func.json_group_array(found.checksum),
                cast(func.group_concat(found.vector, ""), LargeBinary),
            )
        )

    def nearest(
        self, tx: Connection, bound: Mapping[str, Any], query: Vector, limit: int | None = None, most: int | None = None
    ) -> list[Near] | None:
        """The items whose vectors are nearest, or all, best first; of equals, the one that is read first. None when
        there are more than `most`."""
        listed, checked, joined = self._together.first(tx, bound)
        items, checksums = orjson.loads(listed), orjson.loads(checked)
        if most is not None and len(items) > most:
            return None
        if not items:
            return []
        if len(joined) == len(items) * len(query.values):
            rows = np.frombuffer(joined, "<f4").reshape(len(items), -1)
            scores, at = _ranked(rows, query, limit)
            sure = at[:SURE_MAX]
            if _are_sound(rows, checksums) and all(crc32(rows[each].tobytes()) == checksums[each] for each in sure):
                return list(zip([items[each] for each in at], scores[at].tolist(), strict=True))
        return self._one_by_one(tx, bound, query, limit)

    def _one_by_one(self, tx: Connection, bound: Mapping[str, Any], query: Vector, limit: int | None) -> list[Near]:
        """The same, when one of them is damaged. Raises StorageError when their length differs from the query's."""
        items, sound = list[int](), list[bytes]()
        for item, vector, checksum in tx.execute(self._each, bound).all():
            if crc32(vector) == checksum:
                items.append(item)
                sound.append(vector)
            else:
                _log.error("vector_damaged", "Stored vector is damaged and was skipped", item=item, model=query.model)
        if not items:
            return []
        if any(len(each) != len(query.values) for each in sound):
            raise other_numbers(query)
        scores, at = _ranked(np.frombuffer(b"".join(sound), "<f4").reshape(len(items), -1), query, limit)
        return [(items[each], float(scores[each])) for each in at]


def _ranked(rows: Rows, query: Vector, limit: int | None) -> tuple[NDArray[np.float32], list[int]]:
    """The similarity of each, and the nearest."""
    scores = products(rows, query)
    return scores, np.argsort(-scores, kind="stable")[:limit].tolist()


def _are_sound(rows: Rows, checksums: Sequence[int]) -> bool:
    """Checks that no vector is damaged, for all at once; only damage that is the same to the bit in an even number of
    them is missed. The checksum of texts of one length that are combined by XOR is that of their checksums, except for
    the checksum of zeros when they are even in number."""
    combined = np.bitwise_xor.reduce(rows.view("<u4"), axis=0).tobytes()
    zeros = 0 if len(checksums) % 2 else crc32(bytes(len(combined)))
    return crc32(combined) ^ zeros == reduce(xor, checksums)


# The numbers are one JSON list: hundreds of parameters cost more than the rows they fetch.
NUMBERED = Candidates(
    text(
        "SELECT v.item, v.vector, v.checksum FROM json_each(:numbers) AS n JOIN search_vectors AS v"
        " ON v.item = n.value AND v.model = :the_model"
    ).columns(column("item"), column("vector"), column("checksum"))
)
