"""Why an item was found by a search: `matched`, a key of Kelpie's own in every result of a search."""

from typing import Any

from kelpie.core.search_hits import Hit


def matched_shape(hit: Hit | None) -> dict[str, Any]:
    """The reasons; nothing where nothing was searched for."""
    return {} if hit is None else {"matched": list(hit.matched)}
