"""The keys that encrypt stored secrets, and authenticated encryption with them (AES-256-GCM).

A ciphertext is text: `1:<key id>:<base64>`, where 1 is the format. It is bound to the place where it is stored. A key
never leaves this module except to its store. `cryptography` is imported with the first secret: a server without secrets
needs none of it.
"""

import base64
import binascii
import hashlib
import hmac
import importlib
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from kelpie.core.encryption import KEY_BYTES, SecretPlace
from kelpie.core.errors import SecretUnreadable

FORMAT = "1"
_NONCE_BYTES = 12
_ID_CHARS = 16
_AEAD = "cryptography.hazmat.primitives.ciphers.aead"


class KeyStore(Protocol):
    """The place outside of the database that holds the keys."""

    @property
    def origin(self) -> str:
        """The name of the place, for people."""
        ...

    @property
    def writable(self) -> bool:
        """False where only the operator can change the keys."""
        ...

    async def read(self) -> Sequence[bytes]:
        """The keys, the wanted one first; none if there is no key yet. Raises ConfigurationError."""
        ...

    async def write(self, keys: Sequence[bytes]) -> None:
        """Replaces the keys, as a whole or not at all. Raises ConfigurationError."""
        ...


class Key:
    """One key of 256 bits. Its id and its canary are derived from it, and reveal nothing about it."""

    def __init__(self, material: bytes) -> None:
        assert len(material) == KEY_BYTES, "a key has 32 bytes"
        self.material = material
        self.id = self._derived("id").hex()[:_ID_CHARS]
        self.canary = self._derived(f"canary {self.id}").hex()
        self._nonces = self._derived("nonces")
        self._cipher: Any = None

    def seal(self, place: SecretPlace, seed: bytes, text: str) -> str:
        """The ciphertext of a text.

        The nonce is made from the random seed and from the text, so a transaction that runs again with other values
        never uses a nonce twice.
        """
        data, bound = text.encode("utf-8", "surrogatepass"), self._bound(place)
        nonce = hmac.digest(self._nonces, b"\0".join((seed, bound, data)), hashlib.sha256)[:_NONCE_BYTES]
        sealed = nonce + self._aead().encrypt(nonce, data, bound)
        return f"{FORMAT}:{self.id}:{base64.b64encode(sealed).decode()}"

    def open(self, place: SecretPlace, token: str) -> str | None:
        """The text of a ciphertext; None if it is not whole, or was not made for this place with this key."""
        try:
            data = base64.b64decode(token.split(":", 2)[2], validate=True)
        except (IndexError, binascii.Error):
            return None
        invalid: type[Exception] = importlib.import_module("cryptography.exceptions").InvalidTag
        try:
            found: bytes = self._aead().decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], self._bound(place))
        except (invalid, ValueError):  # ValueError: shorter than a nonce
            return None
        return found.decode("utf-8", "surrogatepass")

    def _aead(self) -> Any:
        if self._cipher is None:
            self._cipher = importlib.import_module(_AEAD).AESGCM(self._derived("encryption"))
        return self._cipher

    def _bound(self, place: SecretPlace) -> bytes:
        return "\0".join((FORMAT, self.id, place.table, place.row_id, place.column)).encode()

    def _derived(self, purpose: str) -> bytes:
        return hmac.digest(self.material, f"kelpie {purpose}".encode(), hashlib.sha256)


class Keyring:
    """The keys of a server. The first one is the one that it wants to use."""

    def __init__(self, keys: Iterable[Key] = (), store: KeyStore | None = None) -> None:
        self.store = store
        self._stored = list(keys)
        self._known = {key.id: key for key in self._stored}  # also those that were removed: readers may need them

    @property
    def first(self) -> Key | None:
        return self._stored[0] if self._stored else None

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the stored keys, the wanted one first."""
        return tuple(key.id for key in self._stored)

    def find(self, key_id: str) -> Key | None:
        return self._known.get(key_id)

    def open(self, place: SecretPlace, token: str) -> str:
        """The text of a ciphertext. Raises SecretUnreadable."""
        key_id = key_of(token)
        key = None if key_id is None else self._known.get(key_id)
        if key is None:
            raise SecretUnreadable(str(place), f"its key {key_id or '(none)'} is missing")
        text = key.open(place, token)
        if text is None:
            raise SecretUnreadable(str(place), "it was changed or moved")
        return text

    async def load(self) -> None:
        """Reads the keys from their store. Raises ConfigurationError."""
        assert self.store is not None, "a keyring without a store has its keys"
        self._stored = [Key(material) for material in await self.store.read()]
        self._known |= {key.id: key for key in self._stored}

    async def add(self, key: Key) -> None:
        """Stores a key as the first one. Raises ConfigurationError, and nothing has changed."""
        await self._write([key, *(each for each in self._stored if each.id != key.id)])

    async def remove(self, ids: Iterable[str]) -> None:
        """Removes keys from the store. Raises ConfigurationError, and nothing has changed."""
        gone = set(ids)
        await self._write([key for key in self._stored if key.id not in gone])

    async def _write(self, keys: list[Key]) -> None:
        assert self.store is not None, "a keyring without a store keeps its keys"
        await self.store.write([key.material for key in keys])
        self._stored = keys
        self._known |= {key.id: key for key in keys}


def key_of(token: str) -> str | None:
    """The id of the key of a ciphertext; None for anything else."""
    parts = token.split(":", 2)
    return parts[1] if len(parts) == 3 and parts[0] == FORMAT else None
