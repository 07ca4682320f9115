"""The limit on open files of this process. Connections, the database, workspaces and cells share it.

Many systems start a process with a soft limit of 1024, far below the hard limit that it may raise it to by itself.
"""

import errno
import os
import resource
from contextlib import ExitStack, suppress

FILES_NEEDED = 8  # at once, by a message: the connection to a provider, the pipes of a cell, a workspace
OPEN_FILES_MAX = 65_536  # more helps nobody, and some programs look at every possible descriptor


def open_files_limit() -> int:
    """Number of files that this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else soft


def raise_open_files_limit() -> int:
    """Raises the soft limit to the hard one, at most OPEN_FILES_MAX, and returns the limit. It never lowers it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # some systems allow less than their hard limit says; then it stays
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return open_files_limit()


def lacks_files() -> bool:
    """True if this process, or its machine, cannot open the few files that a message needs. It tries to."""
    with ExitStack() as opened:
        try:
            for _ in range(FILES_NEEDED):
                opened.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                return True
            raise
    return False
