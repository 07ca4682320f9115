"""The search by meaning, made to fail: the real one behind the gate of the faults."""

from collections.abc import Sequence

from kelpie.core.errors import StorageError
from kelpie.search.fulltext import Kind
from kelpie.search.items import Near, NearestItems
from kelpie.search.nearest import Nearest
from kelpie.search.vectors import Vector
from kelpie.sim.faults import Fault, Faults
from kelpie.world.database import Tx

_PLACES: dict[Kind, str] = {"passage": "search.passages", "message": "search.messages"}


class FailingFinder:
    """A `NearestItems` of one life of a node."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._nearest: NearestItems = Nearest()

    def search(
        self,
        tx: Tx,
        kind: Kind,
        scopes: Sequence[str],
        query: Vector,
        limit: int,
        only: Sequence[int] | None = None,
    ) -> list[Near]:
        if kind in _PLACES and self._faults.fires(Fault.vector_search_fail, _PLACES[kind]):
            raise StorageError("The vectors cannot be read.")
        return self._nearest.search(tx, kind, scopes, query, limit, only)
