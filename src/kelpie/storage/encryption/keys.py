"""Keys that stored secrets may use, as rows. One of them is current: it encrypts every new secret."""

from collections.abc import Iterable

import sqlalchemy as sa

from kelpie.core.encryption import KnownKey
from kelpie.core.time import Micros
from kelpie.storage.tables import encryption_keys
from kelpie.world.database import Tx

_ALL = sa.select(encryption_keys).order_by(encryption_keys.c.created_at, encryption_keys.c.id)
_CURRENT = sa.select(encryption_keys.c.id).where(encryption_keys.c.current)
_INSERT = sa.insert(encryption_keys)
_NONE_CURRENT = sa.update(encryption_keys).values(current=False, complete=False)
_OF_KEY = encryption_keys.c.id == sa.bindparam("of_key")
_MAKE_CURRENT = sa.update(encryption_keys).where(_OF_KEY).values(current=True, complete=False, lost=False)
_SET_LOST = sa.update(encryption_keys).where(_OF_KEY).values(lost=sa.bindparam("new_lost"))
_REOPEN = sa.update(encryption_keys).where(encryption_keys.c.current).values(complete=False)
_COMPLETE = sa.update(encryption_keys).where(_OF_KEY, encryption_keys.c.current).values(complete=True)
_DELETE = sa.delete(encryption_keys).where(_OF_KEY, sa.not_(encryption_keys.c.current))


def select(tx: Tx) -> list[KnownKey]:
    """All known keys, oldest first."""
    return [
        KnownKey(row.id, row.canary, row.current, row.complete, row.lost, row.created_at) for row in tx.execute(_ALL)
    ]


def current_id(tx: Tx) -> str | None:
    """The id of the key that encrypts new secrets; None before the first start."""
    return tx.scalar(_CURRENT)


def adopt(tx: Tx, key_id: str, canary: str, now: Micros) -> None:
    """Makes a key current. Secrets that use other keys are to be encrypted again."""
    tx.execute(_NONE_CURRENT)
    if not tx.execute(_MAKE_CURRENT, {"of_key": key_id}).rowcount:
        row = {"id": key_id, "canary": canary, "current": True, "complete": False, "lost": False, "created_at": now}
        tx.execute(_INSERT, row)


def set_lost(tx: Tx, ids: Iterable[str], lost: bool) -> None:
    """Records that keys are lost, or that they were found; then the secrets that use them can be encrypted again."""
    for key_id in ids:
        tx.execute(_SET_LOST, {"of_key": key_id, "new_lost": lost})
    if not lost:
        tx.execute(_REOPEN)


def complete(tx: Tx, key_id: str, unused: Iterable[str]) -> bool:
    """Records that all secrets use the current key, and removes the keys that none uses.

    False, and nothing is changed, when another key became current meanwhile.
    """
    if not tx.execute(_COMPLETE, {"of_key": key_id}).rowcount:
        return False
    for each in unused:
        tx.execute(_DELETE, {"of_key": each})
    return True
