"""The server's password: set by the operator, or generated and stored only as a slow hash.

The hash is computed for the first right guess and for wrong ones, one at a time; a password that was right once is
recognised by a keyed digest, so a request does not cost a slow hash.
"""

import asyncio
import base64
import hashlib
import hmac

from kelpie.core.errors import ConfigurationError, Overloaded
from kelpie.world.hashing import SALT_BYTES, scrypt, scrypt_aside
from kelpie.world.ids import Ids

SETTING = "KELPIE_SERVER_PASSWORD"
GUESSES_WAITING_MAX = 32
PASSWORD_CHARS_MAX = 1024
_FORM = "scrypt"


def generate(ids: Ids) -> str:
    """A new password of 160 random bits that can be read out and typed."""
    text = base64.b32encode(ids.secret()[:20]).decode().lower()
    return "-".join(text[place : place + 8] for place in range(0, len(text), 8))


def hashed(password: str, ids: Ids) -> str:
    """The stored form of a password: `scrypt$salt$hash`. Blocks for tens of milliseconds."""
    salt = ids.secret()[:SALT_BYTES]
    return "$".join((_FORM, salt.hex(), scrypt(password, salt).hex()))


class Password:
    """Checks texts against the password. Made from the password itself or from its hash."""

    def __init__(self, ids: Ids, *, plain: str | None = None, kept: str | None = None) -> None:
        """Raises ConfigurationError for an invalid password or hash."""
        self._key = ids.secret()
        self.identity = plain if plain is not None else kept  # changes with the password; None: there is none
        self._known: bytes | None = None
        self._salt, self._hash = b"", b""
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0
        if plain is not None:
            if not 0 < len(plain) <= PASSWORD_CHARS_MAX:
                raise ConfigurationError(SETTING, f"must have 1 to {PASSWORD_CHARS_MAX} characters, or not be set")
            self._known = self._mark(plain)
        elif kept is not None:
            self._salt, self._hash = _parsed(kept)

    async def matches(self, text: str) -> bool:
        """Raises Overloaded when too many guesses wait already."""
        if len(text) > PASSWORD_CHARS_MAX:
            return False
        if self.is_known(text):
            return True
        if not self._hash:
            return False
        if self._waiting >= GUESSES_WAITING_MAX:
            raise Overloaded("password_checks_full", "Too many password checks at once; try again in a moment.", 1.0)
        self._waiting += 1
        try:
            async with self._one_at_a_time:
                return self.is_known(text) or await self._is_right(text)
        finally:
            self._waiting -= 1

    def is_known(self, text: str) -> bool:
        """True if the text is a password that was right before; costs next to nothing."""
        return self._known is not None and hmac.compare_digest(self._mark(text), self._known)

    async def _is_right(self, text: str) -> bool:
        right = hmac.compare_digest(await scrypt_aside(text, self._salt), self._hash)
        if right:
            self._known = self._mark(text)
        return right

    def _mark(self, text: str) -> bytes:
        return hmac.digest(self._key, text.encode(), hashlib.sha256)


def _parsed(kept: str) -> tuple[bytes, bytes]:
    try:
        form, salt, digest = kept.strip().split("$")
        found = bytes.fromhex(salt), bytes.fromhex(digest)
    except ValueError:
        form, found = "", (b"", b"")
    if form != _FORM or not found[0] or len(found[1]) != 32:
        raise ConfigurationError(
            SETTING, "the stored password hash is damaged; delete the file 'password' in the data directory"
        )
    return found
