"""Access tokens: for a page in a browser that may talk to a few agents for a few minutes.

The text of a token is returned once. Lists name a token by its id; it can be revoked by its id or by its text.
"""

from collections.abc import Callable, Sequence

from kelpie.accounts import credentials
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.access.credential_scopes import AccessToken, Grant
from kelpie.core.access.hosts import origin_of
from kelpie.core.errors import Conflict, InvalidId, InvalidInput, NotFound
from kelpie.core.ids import AgentId, TokenId
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.storage.accounts import access_tokens as rows
from kelpie.storage.accounts import row_ownership
from kelpie.world.database import Tx
from kelpie.world.world import World

LIFE = 5 * 60 * MICROS_PER_SECOND  # of a token that names no end
LIFE_MAX = 365 * 24 * 3600 * MICROS_PER_SECOND
TOKENS_MAX = 10_000  # of one organisation
GRANTS_MAX = 1000  # of one token


class AccessTokens:
    """Access tokens of the caller. `changed` is called after a token was revoked, and after a commit whose outcome is
    unknown.
    """

    def __init__(self, world: World, changed: Callable[[], None], caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._changed = changed
        self._caller = caller

    async def create(
        self, hostname: str, policy: Sequence[Grant], expires_at: Micros | None = None
    ) -> tuple[AccessToken, str]:
        """Returns the token and its text, which is never shown again.

        Raises InvalidInput, NotFound for an agent, and Conflict when there are too many.
        """
        now = self._world.clock.now()
        _check(hostname, policy, expires_at, now)
        credential = credentials.fresh(TokenId, self._world.ids)
        token = AccessToken(
            id=TokenId(credential.id),
            organization_id=self._caller.organization_id,
            user_id=self._caller.user_id,
            hostname=hostname,
            policy=tuple(policy),
            created_at=now,
            expires_at=now + LIFE if expires_at is None else expires_at,
        )

        def write(tx: Tx) -> None:
            for agent_id in dict.fromkeys(grant.agent_id for grant in policy):
                row_ownership.agent(tx, self._caller.organization_id, agent_id)
            rows.delete_expired(tx, now)
            if rows.count(tx, self._caller.organization_id) >= TOKENS_MAX:
                raise Conflict(f"There are {TOKENS_MAX} tokens that have not expired; delete some first.")
            rows.insert(tx, token, credential.digest)

        await self._world.database.transact(write)
        return token, str(credential)

    async def delete(self, named: str) -> None:
        """Revokes a token, named by its text or its id; it stops working at once. Raises NotFound."""
        credential = credentials.parse(named)

        def write(tx: Tx) -> None:
            found = rows.find(tx, _id_of(named, credential))
            if found is None or found[0].organization_id != self._caller.organization_id:
                raise _no_such(named)
            if credential is not None and not credential.proves(found[1]):
                raise _no_such(named)
            rows.delete(tx, found[0].id)

        try:
            await self._world.database.transact(write)
        finally:
            self._changed()

    async def page(self, agent_id: AgentId | None, limit: int, offset: int) -> tuple[list[AccessToken], bool]:
        """The tokens that have not expired, the newest first, and True if there are more after them."""
        now, within = self._world.clock.now(), self._caller.organization_id
        found = await self._world.database.read(lambda tx: rows.live(tx, within, now, agent_id, limit + 1, offset))
        return found[:limit], len(found) > limit


def _check(hostname: str, policy: Sequence[Grant], expires_at: Micros | None, now: Micros) -> None:
    if origin_of(hostname) is None:
        raise InvalidInput("hostname", "must be the full address of the site, such as https://app.example.com")
    if not 0 < len(policy) <= GRANTS_MAX:
        raise InvalidInput("policy", f"must list 1 to {GRANTS_MAX} agents")
    if any(not grant.access for grant in policy):
        raise InvalidInput("policy", "every agent needs at least one kind of access")
    if expires_at is not None and not now < expires_at <= now + LIFE_MAX:
        raise InvalidInput("expires_at", "must be in the future and within a year; omit it for five minutes")


def _id_of(named: str, credential: credentials.Credential | None) -> TokenId:
    try:
        return TokenId.parse(named if credential is None else credential.id)
    except InvalidId:
        raise _no_such(named) from None


def _no_such(named: str) -> NotFound:
    """Names a token by its id alone, because an error is logged and shown."""
    return NotFound("Token", "?" if credentials.has_credential_format(named) else named[:80])
