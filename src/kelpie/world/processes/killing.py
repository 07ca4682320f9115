"""Ending processes by a descriptor, which never comes to mean another process."""

import asyncio
import os
import signal


def kill(process: int) -> None:
    """Ends the process of a descriptor; one that has ended already is no error."""
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except ProcessLookupError:
        return


def kill_group(leader: int) -> None:
    """Ends a whole process group, by the id of its leader."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


async def gone(loop: asyncio.AbstractEventLoop, process: int) -> None:
    """Waits until the process of a descriptor, and everything the kernel ends with it, is gone."""
    seen = asyncio.Event()
    loop.add_reader(process, seen.set)
    try:
        await seen.wait()
    finally:
        loop.remove_reader(process)
