"""Secrets in columns: sealed before they are written, opened after they are read.

A stored secret is `1:<key id>:<ciphertext>`, or `0:<text>` where an older Kelpie stored it and the first start of this
one has not encrypted it yet; in a JSON column the old form is the object itself. The key is looked up in the same
transaction, so no secret is ever written with a key that a rotation has removed.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from kelpie.core.encryption import SecretPlace
from kelpie.core.errors import SecretUnreadable
from kelpie.storage.encryption import keys
from kelpie.world.database import Tx
from kelpie.world.keyring import Key, Keyring, key_of

PLAIN = "0:"


@dataclass(frozen=True, slots=True)
class Sealing:
    """The means to encrypt in a transaction: the keys, and random bytes that were drawn before it."""

    keyring: Keyring
    seed: bytes

    def key(self, tx: Tx) -> Key:
        """The current key. Raises SecretUnreadable when this server has none."""
        key_id = keys.current_id(tx)
        key = self.keyring.first if key_id is None else self.keyring.find(key_id)
        if key is None:
            raise SecretUnreadable("in this request", "this server has no key to encrypt it with")
        return key


@dataclass(frozen=True, slots=True)
class OpenedSecret:
    """The text of a stored secret, or the reason why it cannot be read."""

    text: str
    unreadable: str | None = None


def opened(keyring: Keyring, place: SecretPlace, stored: str) -> OpenedSecret:
    """A stored secret, for showing: a secret that cannot be read hides no other."""
    try:
        return OpenedSecret(text_of(keyring, place, stored))
    except SecretUnreadable as error:
        return OpenedSecret("", str(error))


def text_of(keyring: Keyring, place: SecretPlace, stored: Any) -> str:
    """The text of a stored secret. Raises SecretUnreadable."""
    if isinstance(stored, dict):
        return orjson.dumps(stored).decode()
    return stored[len(PLAIN) :] if stored.startswith(PLAIN) else keyring.open(place, stored)


def key_id_of(stored: Any) -> str | None:
    """The id of the key that a stored secret uses; None for one that is not encrypted."""
    return key_of(stored) if isinstance(stored, str) else None
