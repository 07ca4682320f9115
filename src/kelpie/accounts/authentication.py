"""Authentication: from the credential of a request to an authorization, and from that to the caller it acts for.

A credential that was accepted is recognised by a keyed digest, so a request costs neither a slow hash nor a database
read. A key or token is always looked up, whatever failed from its address before: its secret cannot be guessed, and
only the requests with wrong ones are slowed down. A password waits for wrong passwords only, so that wrong keys keep
nobody from using it. A failure must never let a client in: a database error is an error, not an open server.
"""

import asyncio
import hashlib
import hmac
from contextlib import nullcontext
from dataclasses import replace
from typing import TypeAlias

from kelpie.accounts.cache import TtlCache
from kelpie.accounts.credentials import Credential, has_credential_format, parse
from kelpie.accounts.last_use import LastUse
from kelpie.accounts.login_failures import LoginFailures
from kelpie.accounts.password import Password
from kelpie.core.access.callers import DEFAULT_CALLER, Caller, User
from kelpie.core.access.credential_scopes import (
    OPERATOR,
    Authorization,
    Scope,
    authorization_of_hook,
    authorization_of_key,
    authorization_of_token,
    with_agents,
)
from kelpie.core.errors import Forbidden, Overloaded, Unauthorized
from kelpie.core.ids import DEFAULT_ORGANIZATION, DEFAULT_USER, HookId, KeyId, SessionId, TokenId, UserId
from kelpie.core.settings.settings import Settings
from kelpie.storage.accounts import access_tokens, accounts, api_keys, sessions
from kelpie.storage.agents import projects
from kelpie.storage.triggers import hooks
from kelpie.world.database import Tx
from kelpie.world.world import World

UNKNOWN_MAX = 1024  # credentials that are remembered to be wrong
SUSPECT_LOOK_UPS_MAX = 2  # at once, for addresses with too many failures: others must not wait for them

_Pass: TypeAlias = tuple[Authorization, KeyId | None]


class Authenticator:
    """Made once for a server. `kept` is the stored hash of a generated password."""

    def __init__(self, world: World, settings: Settings, kept: str | None = None) -> None:
        """Raises ConfigurationError for an invalid password."""
        self.protected = settings.protected
        self._world = world
        self._password = Password(world.ids, plain=settings.password, kept=kept if self.protected else None)
        self._key = world.ids.secret()
        self._passes: TtlCache[bytes, _Pass] = TtlCache()
        self._users: TtlCache[UserId, User] = TtlCache()
        self._unknown: TtlCache[bytes, bool] = TtlCache(UNKNOWN_MAX)
        self._suspects = asyncio.Semaphore(SUSPECT_LOOK_UPS_MAX)
        self._failures = LoginFailures()  # of every kind
        self._wrong_passwords = LoginFailures()
        self._last_use = LastUse(world)

    @property
    def password_identity(self) -> str | None:
        """A secret text that changes with the server's password; None when there is no password."""
        return self._password.identity

    async def admit(self, given: str | None, address: str) -> Authorization:
        """The authorization for a credential; None is a request without one.

        Raises Unauthorized, or Overloaded for a wrong credential, or a password that was not right before, when the
        address has guessed wrong too often.
        """
        if given is not None and has_credential_format(given):
            return await self._by_row(given, address)
        if not self.protected:
            return OPERATOR
        if given is None:
            raise Unauthorized
        if not self._password.is_known(given):
            _must_not_wait(self._wrong_passwords, address)
            if not await self._password.matches(given):
                self._wrong_passwords.note(address, _now_s())
                raise self._failed(address)
        return OPERATOR

    async def check_password(self, text: str, address: str) -> None:
        """Raises like `admit` when this is not the server's password; a server without a password accepts any."""
        if self.protected:
            await self.admit(text, address)

    async def caller(self, given: Authorization, user_id: UserId | None) -> Caller:
        """The caller that a request acts for; an operator may name any user, and an unknown one is the default user.

        Raises Forbidden when a key or token would act for another user.
        """
        if not given.operator:
            if user_id not in (None, given.user_id):
                raise Forbidden("user_id: a key can act only for its own user; omit this header.")
            may_write = Scope.write in given.scopes
            page = given.hostname is not None
            return Caller(
                given.user_id, given.organization_id, key_id=given.key_id, sees_secrets=may_write, web_page=page
            )
        if user_id is None or user_id == DEFAULT_USER:
            return DEFAULT_CALLER
        user = await self._users.find(user_id, lambda: self._user(user_id))
        if user is None:
            return DEFAULT_CALLER
        return Caller(user.id, user.organization_id, operator=user.organization_id == DEFAULT_ORGANIZATION)

    def forget(self) -> None:
        """Clears the caches after a user, a key or a token changed: the next request looks its caller up again."""
        self._passes.forget()
        self._unknown.forget()
        self._users.forget()

    async def close(self) -> None:
        """Writes the pending last-use times."""
        await self._last_use.close()

    async def _by_row(self, text: str, address: str) -> Authorization:
        mark = hmac.digest(self._key, text.encode(), hashlib.sha256)
        found = self._passes.get(mark) or await self._looked_up(mark, text, address)
        if found is None:
            _must_not_wait(self._failures, address)
            raise self._failed(address)
        admitted, key_id = found
        if admitted.expires_at is not None and admitted.expires_at <= self._world.clock.now():
            raise Unauthorized  # not a guess: it was right once
        if key_id is not None:
            self._last_use.note(key_id)
        if admitted.project_ids is not None:
            admitted = await self._world.database.read(lambda tx: _of_projects(tx, admitted))
        return admitted

    async def _looked_up(self, mark: bytes, text: str, address: str) -> _Pass | None:
        credential = parse(text)
        if credential is None or self._unknown.get(mark):
            return None
        suspect = self._failures.wait_s(address, _now_s()) > 0
        async with self._suspects if suspect else nullcontext():
            found = await self._passes.find(mark, lambda: self._proved(credential))
        if found is None:
            self._unknown.keep(mark, True)
        return found

    async def _proved(self, credential: Credential) -> _Pass | None:
        return await self._world.database.read(lambda tx: _proved(tx, credential, self.password_identity))

    async def _user(self, user_id: UserId) -> User | None:
        return await self._world.database.read(lambda tx: accounts.find_user(tx, user_id))

    def _failed(self, address: str) -> Unauthorized:
        self._failures.note(address, _now_s())
        return Unauthorized()


def _proved(tx: Tx, credential: Credential, password: str | None) -> _Pass | None:
    if isinstance(credential.id, SessionId):
        return _proved_by_session(tx, credential, credential.id, password)
    if isinstance(credential.id, KeyId):
        key = api_keys.find(tx, credential.id)
        proved = credential.proves(key[1] if key else None)
        return (authorization_of_key(key[0]), credential.id) if key and proved else None
    if isinstance(credential.id, HookId):
        hook = hooks.find(tx, credential.id)
        proved = credential.proves(hook[1] if hook else None)
        return (authorization_of_hook(hook[0].id, hook[0].organization_id), None) if hook and proved else None
    assert isinstance(credential.id, TokenId)
    token = access_tokens.find(tx, credential.id)
    proved = credential.proves(token[1] if token else None)
    return (authorization_of_token(token[0]), None) if token and proved else None


def _proved_by_session(tx: Tx, credential: Credential, session_id: SessionId, password: str | None) -> _Pass | None:
    """The rights of the key, or of the password, that the session was opened with."""
    session, digest = sessions.find(tx, session_id) or (None, None)
    by_key = session is not None and session.key_id is not None
    shown = credential.digest if by_key else credential.digest_with(password or "")
    if session is None or not hmac.compare_digest(shown, digest or "") or not (by_key or password):
        return None
    if session.key_id is None:
        return replace(OPERATOR, expires_at=session.expires_at), None
    found = api_keys.find(tx, session.key_id)
    if found is None:
        return None
    key = authorization_of_key(found[0])
    ends = session.expires_at if key.expires_at is None else min(key.expires_at, session.expires_at)
    return replace(key, expires_at=ends), session.key_id


def _of_projects(tx: Tx, given: Authorization) -> Authorization:
    """The authorization of a key for projects. Its agents are never cached: they may change at any time."""
    found = [projects.members(tx, given.organization_id, each) for each in given.project_ids or ()]
    return with_agents(given, [member.agent_id for members in found for member in members])


def _must_not_wait(failures: LoginFailures, address: str) -> None:
    wait_s = failures.wait_s(address, _now_s())
    if wait_s > 0:
        raise Overloaded("logins_throttled", "Too many failed logins from this address; try again later.", wait_s)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
