"""Directories with contents written by untrusted code, which may still be writing: measured, re-owned, sealed and
removed safely.

No link is followed out, even if one replaces a directory at any time; any depth and any length of names is handled, and
directories that their owner closed are opened. No file is ever read.
"""

import errno
import os
import stat
import uuid
from collections.abc import Callable
from pathlib import Path

_ANCHOR_CHARS = 2000  # the kernel takes paths of twice that; behind longer ones a new start is made
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LEVELS = 32  # removed at one go
_PASSES_MAX = 10_000


class UnusualEntry(Exception):
    """An entry that is neither a directory nor a file with one name; the text says what it is."""


class _Anchor:
    """An open directory that paths start from; it is closed when no path does any more."""

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


def measure(top: str, entries_max: int) -> tuple[int, int]:
    """Bytes on the disk and entries below a directory, counted until a limit is exceeded; entries that vanish meanwhile
    do not count."""
    total, entries = 0, 0
    left = [(_Anchor(), top)]
    while left and entries <= entries_max:
        anchor, path = left.pop()
        try:
            opened = _Anchor(_opened(path, anchor.descriptor))
            anchor, before = (opened, "") if len(path) > _ANCHOR_CHARS else (anchor, f"{path}/")
            for entry in _listed(opened):
                entries += 1
                about = entry.stat(follow_symlinks=False)
                total += about.st_blocks * 512
                if stat.S_ISDIR(about.st_mode):
                    left.append((anchor, before + entry.name))
        except OSError:
            continue
    return total, entries


def remove(top: str) -> None:
    """Removes a directory with all its contents, as far as possible; a missing one is no error."""
    try:
        root = _Anchor(_opened(top, None))
    except OSError:
        return
    _unlock(top, None)
    for _ in range(_PASSES_MAX):
        removed = [_remove_entry(entry, root, root, _LEVELS) for entry in _listed(root)]
        if not any(removed):
            break
    try:
        Path(top).rmdir()
    except OSError:
        return  # a process still writes to it: the next run finds it again


def change_owner(top: str, user: int) -> None:
    """Makes a user, and the group of the same number, owner of a directory with all its contents, itself last: its
    owner shows whether that was finished. Raises OSError."""

    def given(name: str, within: int | None) -> None:
        os.chown(name, user, user, dir_fd=within, follow_symlinks=False)

    _to_each(top, given)


def make_readable(top: str) -> None:
    """Makes a directory with all its contents readable by everyone, itself last. Raises OSError."""

    def opened(name: str, within: int | None) -> None:
        held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
        try:
            mode = os.fstat(held).st_mode
            if not stat.S_ISLNK(mode):
                more = stat.S_IRGRP | stat.S_IROTH | (stat.S_IXGRP | stat.S_IXOTH if mode & stat.S_IXUSR else 0)
                Path(f"/proc/self/fd/{held}").chmod(stat.S_IMODE(mode) | more)
        finally:
            os.close(held)

    _to_each(top, opened)


def seal(top: str, user: int, group: int) -> None:
    """Gives a directory with all its contents to a user, with ordinary modes that everyone can read, itself last.
    Raises UnusualEntry for links, devices and the like, and OSError."""

    def sealed(name: str, within: int | None) -> None:
        held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
        try:
            about = os.fstat(held)
            if not stat.S_ISDIR(about.st_mode) and (not stat.S_ISREG(about.st_mode) or about.st_nlink != 1):
                raise UnusualEntry(_kind(about))
            if (about.st_uid, about.st_gid) != (user, group):
                _give(held, user, group)
            program = stat.S_ISDIR(about.st_mode) or about.st_mode & stat.S_IXUSR
            Path(f"/proc/self/fd/{held}").chmod(0o755 if program else 0o644)
        finally:
            os.close(held)

    _to_each(top, sealed)


def _give(held: int, user: int, group: int) -> None:
    try:
        os.chown(f"/proc/self/fd/{held}", user, group)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EINVAL, errno.ENOTSUP):  # a disk that stores no owners
            raise


def _kind(about: os.stat_result) -> str:
    if stat.S_ISREG(about.st_mode):
        return "a hard link"
    return "a symbolic link" if stat.S_ISLNK(about.st_mode) else "a device, socket or pipe"


def _to_each(top: str, deed: Callable[[str, int | None], None]) -> None:
    """Applies a function to all contents of a directory and then to itself; entries that vanish meanwhile are
    skipped."""
    left = [(_Anchor(), top)]
    while left:
        anchor, path = left.pop()
        try:
            opened = _Anchor(_opened(path, anchor.descriptor))
        except (FileNotFoundError, NotADirectoryError):
            continue
        anchor, before = (opened, "") if len(path) > _ANCHOR_CHARS else (anchor, f"{path}/")
        for entry in _listed(opened):
            try:
                deed(entry.name, opened.descriptor)
                if entry.is_dir(follow_symlinks=False):
                    left.append((anchor, before + entry.name))
            except FileNotFoundError:
                continue
    deed(top, None)


def _remove_entry(entry: "os.DirEntry[str]", within: _Anchor, root: _Anchor, levels: int) -> bool:
    """Removes an entry. Deeply nested directories are moved up to the root first, so that no path gets long."""
    try:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.name, dir_fd=within.descriptor)
            return True
        _unlock(entry.name, within.descriptor)
        if levels == 0:
            os.rename(entry.name, uuid.uuid4().hex, src_dir_fd=within.descriptor, dst_dir_fd=root.descriptor)
            return True
        inside = _Anchor(_opened(entry.name, within.descriptor))
        for each in _listed(inside):
            _remove_entry(each, inside, root, levels - 1)
        os.rmdir(entry.name, dir_fd=within.descriptor)
    except OSError:
        return False
    return True


def _listed(directory: _Anchor) -> "list[os.DirEntry[str]]":
    assert directory.descriptor is not None
    with os.scandir(directory.descriptor) as found:
        return list(found)


def _opened(path: str, beneath: int | None) -> int:
    """Raises OSError."""
    try:
        return os.open(path, _DIRECTORY, dir_fd=beneath)
    except PermissionError:
        _unlock(path, beneath)
        return os.open(path, _DIRECTORY, dir_fd=beneath)


def _unlock(path: str, beneath: int | None) -> None:
    """Gives the owner access to a directory. Raises OSError, also for a link that replaced it."""
    held = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=beneath)
    try:
        Path(f"/proc/self/fd/{held}").chmod(stat.S_IRWXU)
    finally:
        os.close(held)
