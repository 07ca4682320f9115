"""Encryption of stored secrets, as values: the place of a secret and the keys that a database knows."""

from dataclasses import dataclass

from kelpie.core.time import Micros

KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class SecretPlace:
    """The table, the id of the row and the column of a secret. Its ciphertext can be read at this place only."""

    table: str
    row_id: str
    column: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column} of {self.row_id}"


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key that stored secrets may use. The key itself is not in the database.

    `complete`: every secret that can be read is encrypted with this key. `lost`: the operator said that the key cannot
    be found.
    """

    id: str
    canary: str
    current: bool
    complete: bool
    lost: bool
    created_at: Micros
