"""Codes of schedules and batches."""

from kelpie.core.codes.code import Code

CODES = (
    Code(
        "batch_ended",
        "All items of a batch have an outcome.",
    ),
    Code(
        "batches_failed",
        "Batches could not be read or advanced. The server tries again.",
        "Look at `error`; mostly the disk is full or failing.",
    ),
    Code(
        "firing_dead",
        "A firing of a schedule was given up: its attempts failed, or its turn failed after it had begun.",
        "Look at `error`, then `kelpie schedules requeue` tries it again.",
    ),
    Code(
        "schedules_cut_off",
        "The server stopped while it was firing schedules. Each firing is stored or not; the next start goes on.",
    ),
    Code(
        "schedules_failed",
        "Schedules could not be read or fired. The server tries again.",
        "Look at `error`; mostly the disk is full or failing.",
    ),
)
