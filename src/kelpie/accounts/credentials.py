"""The text of keys, tokens and sessions: `<kind>_<id>_<secret>`.

The id finds the row, the secret proves possession. Only the SHA-256 of the secret is stored: with 256 random bits there
is nothing to guess, so a slow hash would protect nothing and cost every request.
"""

import base64
import hashlib
import hmac
import re
import uuid
from dataclasses import dataclass

from kelpie.core.ids import HookId, Id, KeyId, SessionId, TokenId
from kelpie.world.ids import Ids

HINT_CHARS = 4
_KINDS: dict[str, type[Id]] = {
    "kelpie-key": KeyId,
    "kelpie-token": TokenId,
    "kelpie-session": SessionId,
    "kelpie-hook": HookId,
}
_TEXT = re.compile(r"(kelpie-key|kelpie-token|kelpie-session|kelpie-hook)_([0-9a-f]{32})_([A-Za-z0-9_-]{43})")
# Compared with when there is no row, so that an unknown id takes as long as a wrong secret.
_NOBODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Credential:
    """A key or a token as it was sent."""

    id: Id
    secret: str

    def __str__(self) -> str:
        kind = next(name for name, one in _KINDS.items() if isinstance(self.id, one))
        return f"{kind}_{self.id.uuid.replace('-', '')}_{self.secret}"

    @property
    def digest(self) -> str:
        """The stored hash of the secret."""
        return hashlib.sha256(self.secret.encode()).hexdigest()

    def digest_with(self, password: str) -> str:
        """The stored hash of the secret of a session that ends with this password. It tells nothing about the
        password to whoever does not know the secret."""
        return hashlib.sha256(f"{self.secret}\0{password}".encode()).hexdigest()

    @property
    def hint(self) -> str:
        """The end of the secret, so that people can tell keys apart."""
        return self.secret[-HINT_CHARS:]

    def proves(self, digest: str | None) -> bool:
        """True if the secret is the stored one; compared in constant time."""
        return hmac.compare_digest(self.digest, digest or _NOBODY) and digest is not None


def fresh(kind: type[Id], ids: Ids) -> Credential:
    """A new key or token."""
    secret = base64.urlsafe_b64encode(ids.secret()).rstrip(b"=").decode()
    return Credential(ids.new(kind), secret)


def has_credential_format(text: str) -> bool:
    """True if the text claims to be a key or a token; it may still be none."""
    return text.startswith(tuple(f"{name}_" for name in _KINDS))


def parse(text: str) -> Credential | None:
    """The credential in a text, or None."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    kind = _KINDS[found[1]]
    return Credential(kind(f"{kind.prefix}-{uuid.UUID(found[2])}"), found[3])


def is_session(text: str) -> bool:
    """True if the text claims to be a session."""
    return text.startswith("kelpie-session_")
