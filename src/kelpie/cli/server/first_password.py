"""The generated password of a server that needs one and has none: shown once at its first start, kept as a hash."""

from pathlib import Path

from kelpie.accounts.password import generate, hashed
from kelpie.core.settings.settings import Settings
from kelpie.world.files import password_file
from kelpie.world.files.data_dir import DataDir
from kelpie.world.ids import RandomIds


def ensure_password(settings: Settings) -> str | None:
    """Generates and stores a password if one is needed; returns the text to show. Raises ConfigurationError."""
    if not settings.protected or settings.password is not None:
        return None
    data_dir = DataDir.open(settings.data_dir).path
    if password_file.read(data_dir) is not None:
        return None
    ids = RandomIds()
    password = generate(ids)
    return _password_text(password, data_dir) if password_file.write_new(data_dir, hashed(password, ids)) else None


def _password_text(password: str, data_dir: Path) -> str:
    return (
        f"Generated a server password (shown only once): {password}\n"
        "Clients send it as 'Authorization: Bearer ...'; commands read it from KELPIE_API_KEY. The server keeps only "
        f"its hash, in {data_dir / password_file.NAME}. For a new password, delete that file and start again."
    )
