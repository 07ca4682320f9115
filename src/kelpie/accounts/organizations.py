"""Organizations. Only the operator sees more than one; any other caller sees its own."""

from collections.abc import Callable
from dataclasses import replace

from kelpie.core.access.callers import DEFAULT_CALLER, NAME_CHARS_MAX, Caller, Organization
from kelpie.core.errors import Conflict, Forbidden, InvalidInput, NotFound
from kelpie.core.ids import DEFAULT_ORGANIZATION, OrganizationId
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.storage.accounts import accounts as rows
from kelpie.storage.accounts import usage
from kelpie.world.database import Tx
from kelpie.world.world import World

Furnish = Callable[[Tx, OrganizationId, Micros], object]


class Organizations:
    """`furnish` adds the built-in tools to a new organization; `changed` is called after a commit; `share` is told how
    many organizations there are."""

    def __init__(
        self,
        world: World,
        furnish: Furnish,
        changed: Callable[[], None],
        share: OrganizationShare,
        caller: Caller = DEFAULT_CALLER,
    ) -> None:
        self._world = world
        self._furnish = furnish
        self._changed = changed
        self._share = share
        self._caller = caller

    async def create(self, name: str | None = None, *, privileged_tools: bool = False) -> Organization:
        """Creates an organization whose users can create agents at once. Raises InvalidInput, and Forbidden."""
        self._operator_only()
        now, made = self._world.clock.now(), self._world.ids.new(OrganizationId)
        new = Organization(made, checked_name(name or f"organization {made.uuid[-8:]}"), privileged_tools, now, now)

        def write(tx: Tx) -> int:
            rows.insert_organization(tx, new)
            self._furnish(tx, new.id, now)
            return len(rows.organization_ids(tx))

        self._share.organizations += 1  # before the commit, and also if its outcome stays unknown
        self._share.organizations = await self._world.database.transact(write)
        return new

    async def get(self, organization: OrganizationId) -> Organization:
        """Raises NotFound."""
        return await self._world.database.read(lambda tx: self._reached(tx, organization))

    async def update(
        self, organization: OrganizationId, name: str | None, privileged_tools: bool | None
    ) -> Organization:
        """Changes every field that is not None. Raises NotFound, InvalidInput, and Forbidden."""
        if privileged_tools is not None and privileged_tools:
            self._operator_only()
        now = self._world.clock.now()

        def write(tx: Tx) -> Organization:
            before = self._reached(tx, organization)
            after = replace(
                before,
                name=before.name if name is None else checked_name(name),
                privileged_tools=before.privileged_tools if privileged_tools is None else privileged_tools,
                updated_at=now,
            )
            rows.update_organization(tx, after)
            return after

        return await self._world.database.transact(write)

    async def delete(self, organization: OrganizationId) -> Organization:
        """Deletes an organization that is empty. Raises NotFound, Conflict while anything is left, and Forbidden."""
        self._operator_only()

        def write(tx: Tx) -> tuple[Organization, int]:
            found = self._reached(tx, organization)
            if organization == DEFAULT_ORGANIZATION:
                raise Conflict("The default organization cannot be deleted.")
            if usage.has_removed_agents(tx, organization):
                raise Conflict("Deleted agents of the organization are still being removed. Try again in a moment.")
            if left := rows.left_in(tx, organization):
                raise Conflict(f"The organization still has {', '.join(left)}; delete them first.")
            rows.delete_organization(tx, organization)
            return found, len(rows.organization_ids(tx))

        try:
            found, self._share.organizations = await self._world.database.transact(write)
        finally:
            self._changed()
        return found

    def _operator_only(self) -> None:
        if not self._caller.operator:
            raise Forbidden("Only the operator may do this; authenticate with the server password.")

    def _reached(self, tx: Tx, organization: OrganizationId) -> Organization:
        if not self._caller.operator and organization != self._caller.organization_id:
            raise NotFound("Organization", organization)
        return rows.get_organization(tx, organization)

    async def page(self, page: Page) -> list[Organization]:
        """Raises InvalidInput for an invalid page."""
        if self._caller.operator:
            return await self._world.database.read(lambda tx: rows.organizations_page(tx, page))
        return [await self.get(self._caller.organization_id)]


def checked_name(name: str) -> str:
    """Raises InvalidInput."""
    if not 0 < len(name) <= NAME_CHARS_MAX:
        raise InvalidInput("name", f"must have 1 to {NAME_CHARS_MAX} characters")
    return name
