"""Ids by their first characters: what a person typed becomes the ids that it can mean."""

from collections.abc import Sequence

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.storage.views import id_prefixes
from kelpie.world.database import Database, Tx

KINDS = id_prefixes.KINDS


class IdPrefixes:
    """Ids of the caller's organization."""

    def __init__(self, database: Database, caller: Caller = DEFAULT_CALLER) -> None:
        self._database = database
        self._organization = caller.organization_id

    async def find(self, prefixes: Sequence[tuple[str, str]], limit: int) -> list[tuple[str, str | None]]:
        """The ids that begin with one of these, each with its name if it has one. A prefix is the kind of id (one of
        `KINDS`) and its first characters; each finds at most `limit` ids."""

        def read(tx: Tx) -> list[tuple[str, str | None]]:
            return [
                found
                for kind, start in prefixes
                for found in id_prefixes.select(tx, self._organization, kind, start, limit)
            ]

        return await self._database.read(read)
