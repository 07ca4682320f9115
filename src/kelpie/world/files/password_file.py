"""The file with the hash of a generated password, in the data directory, readable by its owner only."""

import os
from pathlib import Path

from kelpie.core.errors import ConfigurationError

NAME = "password"
BYTES_MAX = 4096


def read(data_dir: Path) -> str | None:
    """The stored hash, or None. Raises ConfigurationError when it cannot be read."""
    path = data_dir / NAME
    try:
        with path.open("rb") as file:
            return file.read(BYTES_MAX).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError("KELPIE_DATA_DIR", f"{path} cannot be read ({error.strerror})") from error


def write_new(data_dir: Path, kept: str) -> bool:
    """Stores the hash unless one is stored already; True if it did. Raises ConfigurationError.

    It is written as a whole or not at all: a partly written hash would lock everyone out.
    """
    path = data_dir / NAME
    unfinished = data_dir / f"{NAME}.{os.getpid()}.part"
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(f"{kept}\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(unfinished, path)  # unlike a rename, this never replaces one that is there
            return True
        except FileExistsError:
            return False
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(
            "KELPIE_DATA_DIR", f"the password hash cannot be stored in {data_dir} ({error.strerror}); set one yourself"
        ) from error
