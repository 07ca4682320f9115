"""Tags API: the tags of agents and of blocks, merged."""

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.paging import Page
from kelpie.storage.views import tags
from kelpie.world.database import Database


class Tags:
    """Tags of the caller's organization."""

    def __init__(self, database: Database, caller: Caller = DEFAULT_CALLER) -> None:
        self._database = database
        self._organization = caller.organization_id

    async def page(self, page: Page, part: str | None = None) -> list[str]:
        """A page of the tags in alphabetical order; the cursors are tags. With `part`, those that have it in them."""
        return await self._database.read(lambda tx: tags.select(tx, self._organization, page, part))
