"""Everything an operator can set, with its default. Reading the environment is the caller's business."""

from collections.abc import Mapping
from dataclasses import dataclass

from kelpie.core.errors import ConfigurationError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Settings:
    host: str = "127.0.0.1"
    port: int = 8283
    data_dir: str = "~/.kelpie"
    database_url: str | None = None  # default: a SQLite file in data_dir
    log_level: str = "info"
    default_model: str = "kelpie/demo"
    openai_api_key: str | None = None
    openai_base_url: str = "https://api.openai.com/v1"
    mailbox_size: int = 64  # messages waiting per agent
    hot_agents_max: int = 2000
    idle_s: float = 600.0
    drain_s: float = 20.0
    body_bytes_max: int = 16 * 1024 * 1024
    model_timeout_s: float = 600.0
    model_attempts: int = 4

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "Settings":
        """The settings that the environment gives. Raises ConfigurationError naming the variable and the remedy."""
        given: dict[str, str | int | float] = {}
        for field, (names, kind) in _SOURCES.items():
            for name in names:
                if env.get(name):
                    given[field] = _convert(name, env[name], kind)
                    break
        settings = cls(**given)  # pyright: ignore[reportArgumentType]
        _check(settings)
        return settings


_SOURCES: dict[str, tuple[tuple[str, ...], type[str] | type[int] | type[float]]] = {
    "host": (("KELPIE_HOST",), str),
    "port": (("KELPIE_PORT",), int),
    "data_dir": (("KELPIE_DATA_DIR",), str),
    "database_url": (("KELPIE_DATABASE_URL",), str),
    "log_level": (("KELPIE_LOG_LEVEL",), str),
    "default_model": (("KELPIE_DEFAULT_MODEL",), str),
    "openai_api_key": (("OPENAI_API_KEY",), str),
    "openai_base_url": (("OPENAI_BASE_URL", "OPENAI_API_BASE"), str),
    "mailbox_size": (("KELPIE_MAILBOX_SIZE",), int),
    "hot_agents_max": (("KELPIE_HOT_AGENTS_MAX",), int),
    "idle_s": (("KELPIE_IDLE_SECONDS",), float),
    "drain_s": (("KELPIE_DRAIN_SECONDS",), float),
    "body_bytes_max": (("KELPIE_BODY_BYTES_MAX",), int),
    "model_timeout_s": (("KELPIE_MODEL_TIMEOUT_SECONDS",), float),
    "model_attempts": (("KELPIE_MODEL_ATTEMPTS",), int),
}


def _convert(name: str, text: str, kind: type[str] | type[int] | type[float]) -> str | int | float:
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ConfigurationError(name, f"'{text}' is not {what}") from None


def _check(settings: Settings) -> None:
    if not 0 <= settings.port <= 65535:
        raise ConfigurationError("KELPIE_PORT", f"{settings.port} is not a port; use 0 to 65535")
    if settings.log_level not in ("debug", "info", "warning", "error"):
        raise ConfigurationError("KELPIE_LOG_LEVEL", "use debug, info, warning or error")
    for name in ("mailbox_size", "hot_agents_max", "body_bytes_max", "model_attempts"):
        if getattr(settings, name) < 1:
            raise ConfigurationError(_SOURCES[name][0][0], "must be at least 1")
    for name in ("idle_s", "drain_s", "model_timeout_s"):
        if not 0 < getattr(settings, name) < float("inf"):  # also refuses what is not a number at all
            raise ConfigurationError(_SOURCES[name][0][0], "must be more than 0 seconds")
