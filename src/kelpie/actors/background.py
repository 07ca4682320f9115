"""Work that goes on behind everything else for as long as the server runs. Nobody waits for it, so nobody would notice
that it has died: whatever it breaks off with is told, and it begins again."""

import asyncio
from collections.abc import Awaitable, Callable

AGAIN_S = 30.0


async def endless(work: Callable[[], Awaitable[None]], name: str) -> None:
    """Does work that never returns, again and again should it break off."""
    while True:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - a bug, for work deals itself with what may happen to it
            told = f"{name} has broken off and begins again in {AGAIN_S:g} s"
            asyncio.get_running_loop().call_exception_handler({"message": told, "exception": error})
        await asyncio.sleep(AGAIN_S)
