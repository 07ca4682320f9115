"""Every column that holds secrets, and the batches that encrypt them again with the current key.

A batch is one short transaction. A new kind of secret is added to `ENCRYPTED`; nothing else needs to know of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from kelpie.core.encryption import SecretPlace
from kelpie.core.errors import SecretUnreadable
from kelpie.storage.encryption.sealing import Sealing, key_id_of, text_of
from kelpie.storage.tables import agent_secrets, mcp_oauth, mcp_servers, providers, sandbox_variables
from kelpie.world.database import Tx
from kelpie.world.keyring import Key

BATCH_ROWS = 100


@dataclass(frozen=True)
class EncryptedTable:
    """A table with secrets. It has a text column `id`."""

    table: sa.Table
    columns: tuple[str, ...]
    page: sa.Select[Any] = field(init=False)
    updates: dict[str, sa.Update] = field(init=False)

    def __post_init__(self) -> None:
        found = [self.table.c[name] for name in self.columns]
        page = sa.select(self.table.c.id, *found).where(self.table.c.id > sa.bindparam("after"))
        object.__setattr__(self, "page", page.order_by(self.table.c.id).limit(BATCH_ROWS))
        changed = sa.update(self.table).where(self.table.c.id == sa.bindparam("of_row"))
        updates = {c.name: changed.values({c.name: sa.bindparam("new_secret", type_=c.type)}) for c in found}
        object.__setattr__(self, "updates", updates)


ENCRYPTED: Sequence[EncryptedTable] = (
    EncryptedTable(agent_secrets, ("value",)),
    EncryptedTable(sandbox_variables, ("value",)),
    EncryptedTable(mcp_servers, ("token", "env", "custom_headers")),
    EncryptedTable(mcp_oauth, ("tokens",)),
    EncryptedTable(providers, ("api_key", "access_key")),
)


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of one batch. `last` is the id of its last row; None after the last batch of the table."""

    last: str | None
    changed: int = 0
    plain: int = 0  # of the changed ones: not encrypted before
    unreadable: tuple[SecretPlace, ...] = ()


def reseal(tx: Tx, one: EncryptedTable, after: str, sealing: Sealing) -> Batch:
    """Encrypts the secrets of the next rows with the current key, unless they are. What cannot be read stays as it is.

    Raises SecretUnreadable when there is no current key.
    """
    key = sealing.key(tx)
    rows = tx.execute(one.page, {"after": after}).all()
    changed = plain = 0
    unreadable: list[SecretPlace] = []
    for row in rows:
        for name in one.columns:
            stored = getattr(row, name)
            if stored is None or (used := key_id_of(stored)) == key.id:
                continue
            place = SecretPlace(one.table.name, row.id, name)
            try:
                sealed = _resealed(key, sealing, place, stored)
            except SecretUnreadable:
                unreadable.append(place)
                continue
            tx.execute(one.updates[name], {"of_row": row.id, "new_secret": sealed})
            changed += 1
            plain += used is None
    return Batch(_last(rows), changed, plain, tuple(unreadable))


def used_keys(tx: Tx, one: EncryptedTable, after: str) -> tuple[set[str], str | None]:
    """The ids of the keys that the secrets of the next rows use, and the id of the last row as in `Batch`.

    A secret that is not encrypted counts as the key `""`.
    """
    rows = tx.execute(one.page, {"after": after}).all()
    stored = [getattr(row, name) for row in rows for name in one.columns]
    return {key_id_of(each) or "" for each in stored if each is not None}, _last(rows)


def _resealed(key: Key, sealing: Sealing, place: SecretPlace, stored: Any) -> str:
    return key.seal(place, sealing.seed, text_of(sealing.keyring, place, stored))


def _last(rows: Sequence[sa.Row[Any]]) -> str | None:
    return rows[-1].id if len(rows) == BATCH_ROWS else None
