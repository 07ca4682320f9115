"""Full-text matches, best first, as many as the reader wants.

Filters that the text index does not know (tags, roles, dates) must come before the cut to the first few, so whoever
filters reads on until it has enough; the bound keeps a filter that nothing passes from reading a whole archive.
"""

from collections.abc import Iterator

from kelpie.search import fulltext
from kelpie.world.database import Tx

BATCH = 100
CANDIDATES_MAX = 5000


def ranked(tx: Tx, kind: fulltext.Kind, scope: str, query: str) -> Iterator[list[tuple[str, float]]]:
    """Batches of (id, score), best first; ends after CANDIDATES_MAX."""
    for offset in range(0, CANDIDATES_MAX, BATCH):
        found = fulltext.search(tx, kind, scope, query, BATCH, offset)
        if found:
            yield found
        if len(found) < BATCH:
            return
