"""Users. The operator sees those of all organizations, any other caller those of its own."""

from collections.abc import Callable
from dataclasses import replace

from kelpie.accounts.organizations import checked_name
from kelpie.core.access.callers import DEFAULT_CALLER, Caller, User
from kelpie.core.errors import Conflict, NotFound
from kelpie.core.ids import DEFAULT_USER, OrganizationId, UserId
from kelpie.core.paging import Page
from kelpie.storage.accounts import accounts as rows
from kelpie.world.database import Tx
from kelpie.world.world import World


class Users:
    """`changed` is called after a commit, and after one whose outcome is unknown."""

    def __init__(self, world: World, changed: Callable[[], None], caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._changed = changed
        self._caller = caller

    async def create(self, name: str, organization: OrganizationId) -> User:
        """Raises InvalidInput, and NotFound for the organisation."""
        now = self._world.clock.now()
        new = User(self._world.ids.new(UserId), organization, checked_name(name), now, now)

        def write(tx: Tx) -> None:
            self._require_reach(organization, "Organization", organization)
            rows.get_organization(tx, organization)
            rows.insert_user(tx, new)

        await self._world.database.transact(write)
        return new

    async def get(self, user_id: UserId) -> User:
        """Raises NotFound."""
        return await self._world.database.read(lambda tx: self._reached(tx, user_id))

    async def update(self, user_id: UserId, name: str | None, organization: OrganizationId | None) -> User:
        """Changes every field that is not None. A user who moves to another organization loses the keys to the old one.

        Raises NotFound, InvalidInput, and Conflict for moving the default user.
        """
        now = self._world.clock.now()

        def write(tx: Tx) -> User:
            before = self._reached(tx, user_id)
            after = replace(before, name=before.name if name is None else checked_name(name), updated_at=now)
            if organization not in (None, before.organization_id):
                after = self._moved(tx, after, organization)
            rows.update_user(tx, after)
            return after

        try:
            return await self._world.database.transact(write)
        finally:
            self._changed()

    async def delete(self, user_id: UserId) -> User:
        """Deletes the user with all keys and tokens. Raises NotFound, and Conflict for the default user."""

        def write(tx: Tx) -> User:
            found = self._reached(tx, user_id)
            if user_id == DEFAULT_USER:
                raise Conflict("The default user cannot be deleted.")
            rows.delete_user(tx, user_id)
            return found

        try:
            return await self._world.database.transact(write)
        finally:
            self._changed()

    def _moved(self, tx: Tx, user: User, organization: OrganizationId) -> User:
        if user.id == DEFAULT_USER:
            raise Conflict("The default user cannot leave the default organization.")
        self._require_reach(organization, "Organization", organization)
        rows.get_organization(tx, organization)
        rows.end_credentials(tx, user.id)
        return replace(user, organization_id=organization)

    def _reached(self, tx: Tx, user_id: UserId) -> User:
        found = rows.get_user(tx, user_id)
        self._require_reach(found.organization_id, "User", user_id)
        return found

    def _require_reach(self, organization: OrganizationId, what: str, key: str) -> None:
        if not self._caller.operator and organization != self._caller.organization_id:
            raise NotFound(what, key)

    async def page(self, page: Page) -> list[User]:
        """Raises InvalidInput for an invalid page."""
        within = None if self._caller.operator else self._caller.organization_id
        return await self._world.database.read(lambda tx: rows.users_page(tx, within, page))
