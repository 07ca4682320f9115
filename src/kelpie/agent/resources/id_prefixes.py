"""Ids by their first characters: what a person typed becomes the ids that it can mean."""

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.storage.views import id_prefixes
from kelpie.world.database import Database

KINDS = id_prefixes.KINDS


class IdPrefixes:
    """Ids of the caller's organization."""

    def __init__(self, database: Database, caller: Caller = DEFAULT_CALLER) -> None:
        self._database = database
        self._organization = caller.organization_id

    async def find(self, kind: str, start: str, limit: int) -> list[tuple[str, str | None]]:
        """The ids of a kind (one of `KINDS`) that begin with `start`, in order, each with its name if it has one."""
        return await self._database.read(lambda tx: id_prefixes.select(tx, self._organization, kind, start, limit))
