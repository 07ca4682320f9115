"""Background work that lasts as long as the server. No caller waits for it, so no caller would notice its failure:
every failure is logged, and the work starts again.
"""

import asyncio
from collections.abc import Awaitable, Callable

AGAIN_S = 30.0


async def run_forever(work: Callable[[], Awaitable[None]], name: str) -> None:
    """Runs work that never returns; starts it again whenever it fails."""
    while True:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - a bug, for work deals itself with what may happen to it
            told = f"{name} has broken off and begins again in {AGAIN_S:g} s"
            asyncio.get_running_loop().call_exception_handler({"message": told, "exception": error})
        await asyncio.sleep(AGAIN_S)
