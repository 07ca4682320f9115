"""The check of the encryption keys at the start of a server: every key that stored secrets use must be there.

A key is made only for a database that has none. A server that made a new key in place of a missing one would hide the
loss until somebody needs a secret.
"""

from collections.abc import Sequence

from kelpie.core.encryption import KnownKey
from kelpie.core.errors import ConfigurationError
from kelpie.observe import logs
from kelpie.storage.encryption import keys
from kelpie.world.database import Tx
from kelpie.world.keyring import Key, Keyring
from kelpie.world.world import World

LOST_SETTING = "KELPIE_ENCRYPTION_KEY_LOST"

_log = logs.get("storage")


async def open_keyring(world: World, lost: str | None) -> list[KnownKey]:
    """Loads the keys, makes the first one of a new database, checks all, and makes the wanted one current.

    `lost` is the id of a key that the operator gives up. Returns the known keys. Raises StorageError, and
    ConfigurationError for a missing or wrong key.
    """
    keyring, database = world.keyring, world.database
    await keyring.load()
    known = await database.read(keys.select)
    given_up, found_again = _checked(keyring, known, lost)
    if keyring.first is None:
        await _make_key(world)
    wanted = keyring.first
    assert wanted is not None, "a key was just made"
    if not given_up and not found_again and any(key.current and key.id == wanted.id for key in known):
        return known
    now = world.clock.now()

    def write(tx: Tx) -> list[KnownKey]:
        keys.set_lost(tx, given_up, True)
        if found_again:
            keys.set_lost(tx, found_again, False)
        if keys.current_id(tx) != wanted.id:
            keys.adopt(tx, wanted.id, wanted.canary, now)
        return keys.select(tx)

    return await database.transact(write)


async def _make_key(world: World) -> None:
    store = world.keyring.store
    assert store is not None, "the keyring was loaded from it"
    await world.keyring.add(Key(world.ids.secret()))
    _log.info(
        "encryption_key_created", "Encryption key created; keep a copy of it in a safe place", origin=store.origin
    )


def _checked(keyring: Keyring, known: Sequence[KnownKey], lost: str | None) -> tuple[list[str], list[str]]:
    """Ids of keys that the operator gives up now, and of lost ones that are there again. Raises ConfigurationError."""
    assert keyring.store is not None, "the keyring was loaded from it"
    origin, given_up, found_again = keyring.store.origin, list[str](), list[str]()
    for row in known:
        key = keyring.find(row.id)
        if key is not None and key.canary != row.canary:
            raise ConfigurationError(
                "KELPIE_ENCRYPTION_KEY", f"the key {row.id} in {origin} is not the one that this database was made with"
            )
        if key is not None:
            found_again += [row.id] * row.lost
        elif row.id == lost:
            given_up.append(row.id)
        elif not row.lost:
            raise ConfigurationError("KELPIE_ENCRYPTION_KEY", _missing(keyring, row.id, origin))
    return given_up, found_again


def _missing(keyring: Keyring, key_id: str, origin: str) -> str:
    there = f"holds only {', '.join(keyring.ids)}" if keyring.ids else "holds no key"
    return (
        f"stored secrets are encrypted with the key {key_id}, but {origin} {there}; restore that key from a backup, "
        f"or, if it is lost, start once with {LOST_SETTING}={key_id} and set the secrets again"
    )
