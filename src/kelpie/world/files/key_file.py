"""The file with the keys that encrypt stored secrets: one key per line in base64, the current one first.

Only its owner may read it. It is written as a whole or not at all: a lost key cannot be made again.
"""

import asyncio
import base64
import binascii
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from kelpie.core.encryption import KEY_BYTES
from kelpie.core.errors import ConfigurationError

FILE_SETTING = "KELPIE_ENCRYPTION_KEY_FILE"
KEY_SETTING = "KELPIE_ENCRYPTION_KEY"
DIRECTORY = "keys"
NAME = "encryption.key"
BYTES_MAX = 64 * 1024
_HEADER = "# Kelpie encrypts stored secrets with these keys, the first one is current. Without them they are lost.\n"


class FileKeys:
    """Keys in a file, which the server makes and rotates itself."""

    writable = True

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def origin(self) -> str:
        return f"the file {self._path}"

    async def read(self) -> Sequence[bytes]:
        return await asyncio.to_thread(self._read)

    async def write(self, keys: Sequence[bytes]) -> None:
        await asyncio.to_thread(self._write, keys)

    def _read(self) -> Sequence[bytes]:
        try:
            with self._path.open("rb") as file:
                self._check_owner(os.fstat(file.fileno()))
                os.fchmod(file.fileno(), 0o600)
                text = file.read(BYTES_MAX).decode("utf-8", "replace")
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ConfigurationError(FILE_SETTING, f"{self._path} cannot be read ({error.strerror})") from error
        lines = [line.strip() for line in text.splitlines()]
        found = parse([line for line in lines if line and not line.startswith("#")], str(self._path))
        if not found:
            raise ConfigurationError(
                FILE_SETTING, f"{self._path} holds no key; restore it from a backup, or remove it if it never held one"
            )
        return found

    def _write(self, keys: Sequence[bytes]) -> None:
        unfinished = self._path.with_name(f"{self._path.name}.part")
        text = _HEADER + "".join(f"{base64.b64encode(key).decode()}\n" for key in keys)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            unfinished.unlink(missing_ok=True)  # one that another user may read would keep its mode
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self._path)
            _sync_directory(self._path.parent)
        except OSError as error:
            raise ConfigurationError(
                FILE_SETTING, f"{self._path} cannot be written ({error.strerror}); choose a path that the server owns"
            ) from error

    def _check_owner(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise ConfigurationError(FILE_SETTING, f"{self._path} is not a file")
        if found.st_uid != os.geteuid():
            raise ConfigurationError(
                FILE_SETTING,
                f"{self._path} belongs to another user (uid {found.st_uid}), who can read the key; "
                f"run `chown {os.geteuid()}` on it",
            )


class SettingKeys:
    """Keys in a setting, which only the operator can change."""

    writable = False
    origin = f"the setting {KEY_SETTING}"

    def __init__(self, text: str) -> None:
        """Raises ConfigurationError."""
        self._keys = parse([part.strip() for part in text.split(",") if part.strip()], KEY_SETTING)
        if not self._keys:
            raise ConfigurationError(KEY_SETTING, "is empty; give a key of 32 bytes in base64")

    async def read(self) -> Sequence[bytes]:
        return self._keys

    async def write(self, keys: Sequence[bytes]) -> None:
        raise ConfigurationError(KEY_SETTING, "only you can change this setting")


def parse(texts: Sequence[str], origin: str) -> tuple[bytes, ...]:
    """The keys in some texts. Raises ConfigurationError, which never shows a key."""
    found: list[bytes] = []
    for number, text in enumerate(texts, 1):
        try:
            key = base64.b64decode(text, validate=True)
        except binascii.Error:
            key = b""
        if len(key) != KEY_BYTES:
            raise ConfigurationError(
                origin, f"key {number} is not 32 bytes in base64; `openssl rand -base64 32` makes a key"
            )
        found.append(key)
    return tuple(dict.fromkeys(found))


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
