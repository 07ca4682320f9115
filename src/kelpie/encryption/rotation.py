"""Rotation of the encryption key while the server runs: a new key becomes current, and all secrets are encrypted again.

The new key is stored before the database knows it, and an old key is removed only after no secret uses it, so every
moment is a safe one for the power to fail. The database says what is left to do; the next start continues.
"""

import asyncio
import contextlib
from dataclasses import dataclass

from kelpie.core.encryption import KnownKey, SecretPlace
from kelpie.core.errors import ConfigurationError, Conflict, StorageError
from kelpie.encryption.key_check import open_keyring
from kelpie.observe import logs
from kelpie.storage.encryption import columns, keys
from kelpie.storage.encryption.sealing import Sealing
from kelpie.world.keyring import Key
from kelpie.world.world import World

RETRY_S = 5.0
NOT_KEPT = "This server stores no encryption key."

_log = logs.get("storage")


@dataclass(frozen=True, slots=True)
class EncryptionStatus:
    """The known keys, oldest first, and what a rotation still has to do."""

    origin: str
    keys: tuple[KnownKey, ...]
    unreadable: tuple[SecretPlace, ...]

    @property
    def rotating(self) -> bool:
        return any(key.current and not key.complete for key in self.keys)


@dataclass(frozen=True, slots=True)
class _Pass:
    """The result of one pass over all secrets."""

    changed: int
    plain: int
    unreadable: tuple[SecretPlace, ...]


class KeyRotation:
    """The encryption keys of one server."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._starting = asyncio.Lock()
        self._unreadable: tuple[SecretPlace, ...] = ()

    async def open(self, lost: str | None) -> bool:
        """Checks the keys, and encrypts what an older Kelpie stored as plain text; True if there was any.

        An unfinished rotation goes on in `run`. Without a key store it does nothing. Raises ConfigurationError and
        StorageError.
        """
        if self._world.keyring.store is None:
            return False
        known = await open_keyring(self._world, lost)
        if all(key.complete for key in known if key.current):
            return False
        if len(known) > 1:
            self._wanted.set()
            return False
        return (await self._finish()).plain > 0

    async def status(self, wait_s: float = 0.0) -> EncryptionStatus:
        """The status, once no rotation runs, or after this time. Raises Conflict on a server without a key store."""
        store = self._world.keyring.store
        if store is None:
            raise Conflict(NOT_KEPT)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._idle.wait()
        known = await self._world.database.read(keys.select)
        return EncryptionStatus(store.origin, tuple(known), self._unreadable)

    async def rotate(self) -> EncryptionStatus:
        """Makes a new key current and lets `run` encrypt all secrets with it.

        Raises Conflict while a rotation runs, or where only the operator can change the key; ConfigurationError when
        the key cannot be stored; StorageError.
        """
        async with self._starting:
            before = await self.status()
            if before.rotating:
                raise Conflict("A rotation of the encryption key is running; wait until it has ended.")
            key = await self._next_key(before)
            now = self._world.clock.now()
            self._idle.clear()
            try:
                await self._world.database.transact(lambda tx: keys.adopt(tx, key.id, key.canary, now))
            finally:
                self._wanted.set()  # also after an error: the key may be current all the same
            _log.info("encryption_key_rotating", "Encryption key rotated; secrets are encrypted again", key=key.id)
        return await self.status()

    async def run(self) -> None:
        """Finishes rotations as they come; never returns."""
        while True:
            if not self._wanted.is_set():
                self._idle.set()
            await self._wanted.wait()
            self._wanted.clear()
            if not await self._finished():
                await asyncio.sleep(RETRY_S)
                self._wanted.set()

    async def _next_key(self, before: EncryptionStatus) -> Key:
        keyring = self._world.keyring
        assert keyring.store is not None, "the status was read"
        first = keyring.first
        if first is not None and not any(key.current and key.id == first.id for key in before.keys):
            return first  # it was stored, and then the database failed
        if not keyring.store.writable:
            raise Conflict(
                f"The key is in {keyring.store.origin}. Put the new key there before the old one, with a comma "
                "between them, and restart the server."
            )
        key = Key(self._world.ids.secret())
        await keyring.add(key)
        return key

    async def _finished(self) -> bool:
        try:
            await self._finish()
        except (StorageError, ConfigurationError) as error:
            _log.warning(
                "encryption_rotation_delayed",
                "Rotation of the encryption key is delayed; trying again",
                retry_s=RETRY_S,
                error=str(error),
            )
            return False
        return True

    async def _finish(self) -> _Pass:
        """Encrypts all secrets with the current key, and removes the keys that none uses any more."""
        database, keyring = self._world.database, self._world.keyring
        current = await database.read(keys.current_id)
        assert current is not None, "the keys were checked"
        done = await self._encrypt_all()
        used = await self._used_keys()
        known = await database.read(keys.select)
        unused = [key.id for key in known if key.id not in used and not key.current]
        if not await database.transact(lambda tx: keys.complete(tx, current, unused)):
            self._wanted.set()  # the next key is current already
            return done
        self._unreadable = done.unreadable
        if unused and keyring.store is not None and keyring.store.writable:
            await keyring.remove(unused)
        for place in done.unreadable[:10]:
            _log.error("secret_unreadable", "Stored secret cannot be decrypted; set it again", place=str(place))
        if done.changed:
            _log.info(
                "secrets_encrypted",
                "Stored secrets are encrypted with the current key",
                key=current,
                secrets=done.changed,
                unreadable=len(done.unreadable),
                unused_keys=unused,
            )
        return done

    async def _encrypt_all(self) -> _Pass:
        changed, plain, unreadable = 0, 0, list[SecretPlace]()
        for table in columns.ENCRYPTED:
            after: str | None = ""
            while after is not None:
                batch = await self._batch(table, after)
                changed, plain, after = changed + batch.changed, plain + batch.plain, batch.last
                unreadable += batch.unreadable
        return _Pass(changed, plain, tuple(unreadable))

    async def _batch(self, table: columns.EncryptedTable, after: str) -> columns.Batch:
        sealing = Sealing(self._world.keyring, self._world.ids.secret())
        return await self._world.database.transact(lambda tx: columns.reseal(tx, table, after, sealing))

    async def _used_keys(self) -> set[str]:
        """Ids of all keys that stored secrets use. Meanwhile new secrets use the current one only."""
        used: set[str] = set()
        for table in columns.ENCRYPTED:
            after: str | None = ""
            while after is not None:
                found, after = await self._used_batch(table, after)
                used |= found
        return used

    async def _used_batch(self, table: columns.EncryptedTable, after: str) -> tuple[set[str], str | None]:
        return await self._world.database.read(lambda tx: columns.used_keys(tx, table, after))
