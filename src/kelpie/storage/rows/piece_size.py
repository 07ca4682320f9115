"""Size of the pieces of long writes. One object for a server; the simulation makes it small, so that little is long.

A piece is bounded by rows and by bytes. Rows of one owner lie all over the indexes, so that deleting one changes about
five pages of the database, which the commit writes; deleted bytes are overwritten, and so are written too.
"""

from collections.abc import Iterable
from dataclasses import dataclass

ROWS_MAX = 100  # about 10 ms of processor time with the commit
BYTES_MAX = 1024 * 1024


@dataclass(slots=True)
class PieceSize:
    """Rows that one transaction of a long write may change."""

    rows: int = ROWS_MAX


def within_bytes(sizes: Iterable[int], bytes_max: int = BYTES_MAX) -> int:
    """Number of rows of these sizes, from the first on, that are not too large together; at least one, if any."""
    count, total = 0, 0
    for size in sizes:
        total += size
        if count and total > bytes_max:
            break
        count += 1
    return count
