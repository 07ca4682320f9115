"""Codes of the database and of stored rows."""

from kelpie.core.codes.code import Code

CODES = (
    Code(
        "agent_taken_over",
        "Another server process took over the agent.",
        "Try again. Run one server on a data directory.",
    ),
    Code(
        "commit_outcome_unknown",
        "The database could not say whether a commit succeeded. All live agents are reloaded from the database.",
        "Check the disk.",
    ),
    Code(
        "commit_unknown",
        "The database could not say whether the change was stored.",
        "Read the object before you send the request again.",
    ),
    Code(
        "database_damaged",
        "A file of the database is damaged.",
        "Restore a [backup](operations.md#backup).",
    ),
    Code(
        "database_lost",
        (
            "A file of the database was deleted, replaced or cut off while the server was running. It stores "
            "nothing any more."
        ),
        "[Restore the database](operations.md#a-database-that-is-lost-or-damaged).",
    ),
    Code(
        "database_rescue_failed",
        "What the server had of a lost database could not be saved. It tries again every second.",
        "Free some space. Do not stop the server before `database_rescued`.",
    ),
    Code(
        "database_rescued",
        "The server saved what it had of a lost database to `path`.",
        "Rename the copy to `kelpie.db` if you need it.",
    ),
    Code(
        "disk_full",
        "The disk with the database is full.",
        "Free space on the disk.",
    ),
    Code(
        "row_damaged",
        "A stored row does not match its checksum and is not returned.",
        "Restore it from a backup or delete it; check the disk.",
    ),
    Code(
        "secret_unreadable",
        "A stored secret cannot be decrypted. `place` names its table, column and row.",
        "Restore its key, or set the secret again.",
    ),
    Code(
        "storage_busy",
        "The database is busy.",
        "Try again.",
    ),
    Code(
        "storage_failed",
        "The database failed.",
        "Check the disk; run `kelpie doctor`.",
    ),
    Code(
        "storage_unavailable",
        "Nothing can be stored until an operator acts.",
        "Follow `detail`.",
    ),
    Code(
        "stored_row_damaged",
        "A stored row is damaged and cannot be shown.",
        "Restore it from a backup, or delete it.",
    ),
    Code(
        "wal_checkpoint_failed",
        "The write-ahead log could not be moved into the database. The server tries again; nothing is lost.",
        "Check the disk.",
    ),
)
