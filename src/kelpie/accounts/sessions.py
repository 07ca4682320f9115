"""Sessions of people in browsers: signing in exchanges an API key or the server's password for one.

The text of a session is returned once, for a cookie. A session has the rights of its key; it ends with its lifetime,
by signing out, when the key is revoked, and when the password changes.
"""

from kelpie.accounts import credentials
from kelpie.accounts.authentication import Authenticator
from kelpie.core.access.credential_scopes import Session
from kelpie.core.errors import Forbidden
from kelpie.core.ids import KeyId, SessionId
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.storage.accounts import api_keys
from kelpie.storage.accounts import sessions as rows
from kelpie.world.database import Tx
from kelpie.world.world import World

LIFE_S = 12 * 3600
SESSIONS_MAX = 1000  # of a server; the oldest makes room


class Sessions:
    """Made once for a server."""

    def __init__(self, world: World, authenticator: Authenticator) -> None:
        self._world = world
        self._authenticator = authenticator

    async def open(self, text: str, address: str) -> tuple[Session, str]:
        """Opens a session for a key or the password; returns it and its text, which is never shown again.

        Raises Unauthorized, Overloaded after too many wrong guesses, and Forbidden for an access token or a session.
        """
        given = await self._authenticator.admit(text, address)
        if not (given.operator or isinstance(given.key_id, KeyId)) or credentials.is_session(text):
            raise Forbidden("Sign in with an API key or the server password; an access token cannot open a session.")
        now = self._world.clock.now()
        credential = credentials.fresh(SessionId, self._world.ids)
        key_id = given.key_id if isinstance(given.key_id, KeyId) else None
        session = Session(SessionId(credential.id), key_id, now, now + LIFE_S * MICROS_PER_SECOND)
        password = self._authenticator.password_identity or ""
        digest = credential.digest_with(password) if key_id is None else credential.digest

        def write(tx: Tx) -> None:
            if key_id is not None:
                api_keys.get(tx, key_id)  # which may have been revoked since
            rows.delete_expired(tx, now)
            rows.insert(tx, session, digest)
            rows.delete_oldest(tx, SESSIONS_MAX)

        await self._world.database.transact(write)
        return session, str(credential)

    async def close(self, text: str) -> None:
        """Ends the session of this text; it stops working at once. One that does not exist is no error."""
        credential = credentials.parse(text)
        if credential is None or not isinstance(credential.id, SessionId):
            return
        session_id = credential.id
        try:
            await self._world.database.transact(lambda tx: rows.delete(tx, session_id))
        finally:
            self._authenticator.forget()
