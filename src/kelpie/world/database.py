"""The database port: a transaction is a function.

`fn` is plain synchronous code over a `Tx`. It may run more than once (a lost commit group is replayed), so it must be
pure: ids and times are passed in, nothing outside the transaction is touched, and its result is only used once
`transact` has returned, which means that the commit is durable.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from sqlalchemy import Connection

from kelpie.core.errors import StorageError

Tx = Connection
T = TypeVar("T")

ProcessMemory = dict[type[Any], Any]  # caches of one process over one database, by their class
MEMORY = "process_memory"  # the execution option of a connection that holds them


def remembered(tx: Tx, kind: type[T]) -> T:
    """This process's cache of the given class over the database of `tx`, made at first use.

    Every connection of one `Database` shares it, and it ends with the process: what is only in here does not survive a
    crash. Reads run on several threads, so a cache must allow that.
    """
    memory: ProcessMemory | None = tx.get_execution_options().get(MEMORY)
    if memory is None:
        memory = {}
        tx.execution_options(**{MEMORY: memory})
    found = memory.get(kind)
    return memory.setdefault(kind, kind()) if found is None else found


class Cursor(Protocol):
    """The result of a statement, as drivers give it."""

    @property
    def rowcount(self) -> int: ...

    def fetchall(self) -> Sequence[Sequence[Any]]: ...


RunSql = Callable[[Tx, str, Any], Cursor]
RUN_SQL = "run_sql"  # the execution option of a connection that holds its adapter's way past SQLAlchemy


def run_sql(tx: Tx, sql: str, values: Any) -> Cursor:
    """Runs a statement in the dialect of `tx` with its values as the driver takes them; a list of them runs it for
    each.

    A broken constraint is SQLAlchemy's IntegrityError; another error may be the driver's own.
    """
    run: RunSql | None = tx.get_execution_options().get(RUN_SQL)
    return cast("Cursor", tx.exec_driver_sql(sql, values)) if run is None else run(tx, sql, values)


class Database(Protocol):
    async def transact(self, fn: Callable[[Tx], T]) -> T:
        """Runs fn in a write transaction and returns its result once committed.

        Raises what fn raised (nothing is written then) or a StorageError.
        """
        ...

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """Runs fn on a consistent snapshot that includes every acknowledged commit; fn must not write."""
        ...

    def when_in_doubt(self, tell: Callable[[], None]) -> None:
        """Registers `tell` to be called, on the event loop, after each write that may be stored without its caller
        knowing.

        That is one whose outcome is unknown, and one whose caller no longer waits. A caller that still waits gets its
        result later.
        """
        ...

    def trouble(self) -> StorageError | None:
        """Why the last write failed for a reason that concerns every write; None after one that succeeded."""
        ...

    async def close(self) -> None:
        """Finishes what was accepted and closes the database."""
        ...
