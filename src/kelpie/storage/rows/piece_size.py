"""Size of the pieces of long writes. One object for a server; the simulation makes it small, so that little is long."""

from dataclasses import dataclass

ROWS_MAX = 200  # about 10 to 30 ms


@dataclass(slots=True)
class PieceSize:
    """Rows that one transaction of a long write may change."""

    rows: int = ROWS_MAX
