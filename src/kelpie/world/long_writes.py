"""Long writes: many small transactions one after the other. After each of them the writes of others go first.

Whatever deletes or replaces a number of rows that no limit bounds goes through here, so that no other write waits for
longer than a piece takes. It must be able to stop after any piece and to continue after a crash; what clients see
meanwhile is the matter of the caller.
"""

import asyncio
from collections.abc import Callable

from kelpie.world.database import Database, T, Tx

PAUSE_SHARE, PAUSE_S_MAX = 0.5, 0.05  # of the time that a piece took, and at most


async def write_piece(database: Database, piece: Callable[[Tx], T], on_commit: Callable[[T], None] | None = None) -> T:
    """Runs one piece in a transaction, and pauses for half of the time it took, up to a limit: a third of the time the
    database has for others alone. `on_commit` is told the result before the pause.

    Raises what `piece` raises, and StorageError."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    result = await database.transact(piece)
    if on_commit is not None:
        on_commit(result)
    await asyncio.sleep(min((loop.time() - began) * PAUSE_SHARE, PAUSE_S_MAX))
    return result


async def write_all(database: Database, needed: Callable[[Tx], bool], piece: Callable[[Tx], object]) -> None:
    """Runs pieces for as long as they are needed. Raises StorageError."""
    while await database.read(needed):
        await write_piece(database, piece)
