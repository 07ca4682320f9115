"""SQLite's errors as errors of Kelpie's tree. Errors that a transaction function raised itself are never changed."""

import sqlite3

from sqlalchemy.exc import DBAPIError

from kelpie.core.errors import CommitUnknown, Conflict, DatabaseDamaged, DiskFull, StorageBusy, StorageError

# After these SQLite may or may not have rolled back by itself; its manual asks to roll back in either case.
ENDS_TRANSACTION = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM)


def translate(error: Exception) -> Exception:
    """The error of Kelpie's tree for one of SQLite's; every other error is returned unchanged."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(cause, sqlite3.Error):
        return error
    if isinstance(cause, sqlite3.IntegrityError):
        found: Exception = Conflict(f"{_contradiction(cause)} Read the current data and try again.")
    elif result_code(cause) == sqlite3.SQLITE_FULL:
        found = DiskFull(f"The disk that holds the database is full: {cause}. Free some space and try again.")
    elif result_code(cause) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        found = StorageBusy(f"The database is busy: {cause}. Try again.")
    elif result_code(cause) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        found = DatabaseDamaged(
            f"The database is damaged: {cause}. Stop the server, run `kelpie doctor`, and restore it from a backup."
        )
    else:
        found = StorageError(f"The database failed: {cause}")
    found.__cause__ = error
    return found


def _contradiction(error: sqlite3.IntegrityError) -> str:
    """Describes a broken constraint without the names of tables; the cause of the error has them."""
    name: str = getattr(error, "sqlite_errorname", "")
    if name.endswith(("_UNIQUE", "_PRIMARYKEY")):
        return "Another item already has this id, name or key."
    if name.endswith("_FOREIGNKEY"):
        return "An item that this change refers to does not exist."
    return "The change conflicts with stored data."


def result_code(error: Exception) -> int | None:
    """SQLite's primary result code, if the error has one."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    code: int | None = getattr(cause, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def is_undecodable(error: Exception) -> bool:
    """Checks whether the error is about a stored text that is not UTF-8."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return isinstance(cause, sqlite3.OperationalError) and "decode to UTF-8" in str(cause)


def commit_failure(error: Exception) -> Exception:
    """The error of a failed commit. A full or busy disk left no commit behind; after an I/O error the next start may
    still find it in the log."""
    translated = translate(error)
    if isinstance(translated, DiskFull | StorageBusy | Conflict) or translated is error:
        return translated
    return CommitUnknown(f"The commit may or may not have happened: {error}")
