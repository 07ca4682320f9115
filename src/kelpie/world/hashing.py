"""The slow password hash, on a thread: it takes tens of milliseconds of CPU on purpose."""

import asyncio
import hashlib

SALT_BYTES = 16
_N, _R, _P = 2**14, 8, 1
_MEMORY_MAX = 64 * 1024 * 1024


def scrypt(password: str, salt: bytes) -> bytes:
    """The hash. It blocks; a server uses `scrypt_aside`."""
    return hashlib.scrypt(password.encode(), salt=salt, n=_N, r=_R, p=_P, maxmem=_MEMORY_MAX, dklen=32)


async def scrypt_aside(password: str, salt: bytes) -> bytes:
    """The hash, computed on a thread so that the event loop is not blocked."""
    return await asyncio.get_running_loop().run_in_executor(None, scrypt, password, salt)
