"""API keys: create, list and revoke. The secret is returned once, when a key is created, and never stored."""

from collections.abc import Callable

from kelpie.accounts import credentials
from kelpie.accounts.organizations import checked_name
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.access.credential_scopes import ApiKey, NewKey, Scope
from kelpie.core.errors import Conflict, InvalidInput, NotFound
from kelpie.core.ids import KeyId, OrganizationId
from kelpie.core.paging import Page
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.storage.accounts import accounts, row_ownership
from kelpie.storage.accounts import api_keys as rows
from kelpie.storage.agents import projects
from kelpie.world.database import Tx
from kelpie.world.world import World

LIFE_MAX = 100 * 365 * 24 * 3600 * MICROS_PER_SECOND
KEYS_MAX = 1000  # of one organisation
AGENTS_MAX = 1000  # of one key


class ApiKeys:
    """API keys of the caller. `changed` is called after a key was revoked or the outcome of a commit is unknown."""

    def __init__(self, world: World, changed: Callable[[], None], caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._changed = changed
        self._caller = caller

    async def create(self, new: NewKey) -> tuple[ApiKey, str]:
        """Returns the key and its text, which is never shown again.

        Raises InvalidInput, NotFound for the user, an agent or a project, and Conflict when there are too many.
        """
        now = self._world.clock.now()
        if not new.scopes:
            raise InvalidInput("scopes", f"must list at least one of {', '.join(Scope)}")
        if new.expires_at is not None and not now < new.expires_at <= now + LIFE_MAX:
            raise InvalidInput("expires_at", "must be in the future and within a hundred years; omit it for no expiry")
        if new.agent_ids is not None and not 0 < len(new.agent_ids) <= AGENTS_MAX:
            raise InvalidInput("agent_ids", f"must list 1 to {AGENTS_MAX} agents; omit it for all agents")
        if new.project_ids is not None and not 0 < len(new.project_ids) <= AGENTS_MAX:
            raise InvalidInput("project_ids", f"must list 1 to {AGENTS_MAX} projects; omit it for all projects")
        name = checked_name(new.name)
        credential = credentials.fresh(KeyId, self._world.ids)

        def write(tx: Tx) -> ApiKey:
            user = accounts.get_user(tx, new.user_id or self._caller.user_id)
            if not self._reaches(user.organization_id):
                raise NotFound("User", user.id)
            for agent_id in new.agent_ids or ():
                row_ownership.agent(tx, user.organization_id, agent_id)
            for project_id in new.project_ids or ():
                projects.get(tx, user.organization_id, project_id)
            if rows.count(tx, user.organization_id) >= KEYS_MAX:
                raise Conflict(f"There are {KEYS_MAX} keys already; revoke some first.")
            key = ApiKey(
                id=KeyId(credential.id),
                organization_id=user.organization_id,
                user_id=user.id,
                name=name,
                scopes=tuple(sorted(set(new.scopes), key=list(Scope).index)),
                hint=credential.hint,
                created_at=now,
                agent_ids=None if new.agent_ids is None else tuple(dict.fromkeys(new.agent_ids)),
                project_ids=None if new.project_ids is None else tuple(dict.fromkeys(new.project_ids)),
                expires_at=new.expires_at,
            )
            rows.insert(tx, key, credential.digest)
            return key

        return await self._world.database.transact(write), str(credential)

    async def get(self, key_id: KeyId) -> ApiKey:
        """Raises NotFound."""
        return await self._world.database.read(lambda tx: self._reached(tx, key_id))

    async def revoke(self, key_id: KeyId) -> ApiKey:
        """Revokes the key; it no longer works when this returns. Raises NotFound."""

        def write(tx: Tx) -> ApiKey:
            found = self._reached(tx, key_id)
            rows.delete(tx, key_id)
            return found

        try:
            return await self._world.database.transact(write)
        finally:
            self._changed()

    def _reached(self, tx: Tx, key_id: KeyId) -> ApiKey:
        found = rows.get(tx, key_id)
        if not self._reaches(found.organization_id):
            raise NotFound("Key", key_id)
        return found

    def _reaches(self, organization: OrganizationId) -> bool:
        return self._caller.operator or organization == self._caller.organization_id

    async def page(self, page: Page) -> list[ApiKey]:
        """Raises InvalidInput for an invalid page."""
        within = None if self._caller.operator else self._caller.organization_id
        return await self._world.database.read(lambda tx: rows.page(tx, within, page))
