"""The data directory of a server, and the lock that keeps a second server out of it.

The lock is the operating system's (flock), so it ends with the process that holds it, however that ends. Beside it is a
note with the holder and its address; a note without a lock is old and is ignored. The lock file is never removed,
because a second process could then lock a new file of the same name.
"""

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kelpie.core.errors import ConfigurationError

SETTING = "KELPIE_DATA_DIR"
LOCK_FILE = "kelpie.lock"
NOTE_FILE = "kelpie.pid"
NOTE_CHARS_MAX = 4096
# A process that only checks the lock holds it for a moment; that must not keep a server from starting.
LOCK_ATTEMPTS = 10
LOCK_PAUSE_S = 0.02
_OTHERS = 0o077  # the permissions of everybody but the owner


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a data directory, and its address, once it answers."""

    pid: int
    url: str | None = None


class DataDir:
    """A data directory that exists and can be written to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[bytes] | None = None

    @classmethod
    def open(cls, text: str) -> "DataDir":
        """Creates the directory if needed. Raises ConfigurationError, naming the remedy, when it cannot be used."""
        path = absolute_path(text)
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except (FileExistsError, NotADirectoryError):
            raise ConfigurationError(SETTING, f"{path} is not a directory; choose a directory or a new path") from None
        except OSError as error:
            raise ConfigurationError(
                SETTING, f"{path} cannot be created ({error.strerror}); choose a directory that you can write to"
            ) from error
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise _not_writable(path)
        _close_to_others(path)
        return cls(path)

    def lock(self) -> None:
        """Locks the directory for this process. Raises ConfigurationError, naming the holder, when another has it."""
        file = _open_lock(self.path, "ab")
        assert file is not None, "opening for appending makes the file"
        try:
            _take(self.path, file)
            self._lock = file
            self._note(Holder(os.getpid()))
        except BaseException:  # raised again; a lock that outlives its failure would keep everybody out
            self._lock = None
            file.close()
            raise

    def announce(self, url: str) -> None:
        """Records the address of the lock's holder, for `holder`."""
        assert self._lock is not None, "lock() comes first"
        self._note(Holder(os.getpid(), url))

    def close(self) -> None:
        """Releases the lock; does nothing when it is not held."""
        if self._lock is not None:
            (self.path / NOTE_FILE).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    @staticmethod
    def holder(text: str) -> Holder | None:
        """The current holder of this directory; None without one or without a directory. Raises ConfigurationError."""
        path = absolute_path(text)
        file = _open_lock(path, "rb")
        if file is None:
            return None
        with file:
            for _ in _attempts():
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    return None
                except BlockingIOError:
                    if found := _read_note(path):
                        return found
        raise ConfigurationError(SETTING, f"{path} is in use by a process that is still starting; try again")

    def _note(self, holder: Holder) -> None:
        """Replaces the note as a whole: a concurrent reader sees the old one or the new one."""
        unfinished = self.path / f"{NOTE_FILE}.part"
        try:
            with open(unfinished, "w", encoding="utf-8", opener=_for_owner) as file:
                file.write(f"{holder.pid}\n{holder.url or ''}\n")
            unfinished.replace(self.path / NOTE_FILE)
        except OSError as error:
            raise ConfigurationError(
                SETTING,
                f"{self.path} cannot store files ({error.strerror}); free some space or choose another directory",
            ) from error


def restrict_database(path: Path) -> None:
    """Lets only their owner read a SQLite database and the files beside it, and creates the database if needed.

    A path that cannot be used is left to SQLite to report. Raises ConfigurationError when the files are another user's.
    """
    flags = os.O_RDWR | os.O_CLOEXEC
    for name, more in ((path, os.O_CREAT), (f"{path}-wal", 0), (f"{path}-shm", 0)):
        try:
            descriptor = os.open(name, flags | more, 0o600)
        except OSError:
            continue
        try:
            os.fchmod(descriptor, 0o600)
        except PermissionError:
            raise ConfigurationError(
                SETTING, f"{name} belongs to another user, who can read it; run `chown {os.geteuid()} {name}`"
            ) from None
        finally:
            os.close(descriptor)


def absolute_path(text: str) -> Path:
    """A path of the operator as an absolute one."""
    return Path(text).expanduser().absolute()


def _close_to_others(path: Path) -> None:
    """Lets nobody but this user into the directory, and into what is directly in it, whatever the modes were.

    The directory alone would do while nothing in it has a second name elsewhere. Raises ConfigurationError.
    """
    found = path.stat()
    if found.st_uid != os.geteuid():
        raise ConfigurationError(
            SETTING,
            f"{path} belongs to another user (uid {found.st_uid}), who could read all that is stored in it; "
            f"run `chown -R {os.geteuid()} {path}` or choose another directory",
        )
    try:
        _close(path, found)
        with os.scandir(path) as entries:
            for entry in entries:
                about = entry.stat(follow_symlinks=False)
                if about.st_uid == found.st_uid and (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)):
                    _close(Path(entry.path), about)
    except OSError as error:
        raise ConfigurationError(
            SETTING, f"{path} cannot be closed to other users ({error.strerror}); choose another directory"
        ) from error
    if path.stat().st_mode & _OTHERS:
        raise ConfigurationError(
            SETTING, f"{path} is on a file system without permissions, so other users can read it; use a local disk"
        )


def _close(path: Path, about: os.stat_result) -> None:
    if about.st_mode & _OTHERS:
        path.chmod(stat.S_IMODE(about.st_mode) & ~_OTHERS)


def _open_lock(path: Path, mode: str) -> IO[bytes] | None:
    try:
        return open(path / LOCK_FILE, mode, opener=_for_owner)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _not_writable(path) from error


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _take(path: Path, file: IO[bytes]) -> None:
    for _ in _attempts():
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            continue
        except OSError as error:
            raise ConfigurationError(
                SETTING, f"{path} cannot be locked ({error.strerror}); use a directory on a local disk"
            ) from error
    found = _read_note(path)
    who = f"process {found.pid}" if found else "another process"
    raise ConfigurationError(SETTING, f"{path} is in use by {who}; stop that server or choose another directory")


def _attempts() -> Iterator[int]:
    for attempt in range(LOCK_ATTEMPTS):
        if attempt:
            time.sleep(LOCK_PAUSE_S)
        yield attempt


def _read_note(path: Path) -> Holder | None:
    try:
        with (path / NOTE_FILE).open(encoding="utf-8", errors="replace") as file:
            pid, _, url = file.read(NOTE_CHARS_MAX).partition("\n")
    except FileNotFoundError:
        return None
    return Holder(int(pid), url.strip() or None) if pid.isdecimal() else None


def _not_writable(path: Path) -> ConfigurationError:
    return ConfigurationError(SETTING, f"{path} is not writable; change its permissions or choose another directory")
