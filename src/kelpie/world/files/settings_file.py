"""Finding and reading kelpie.toml, and with it all settings of this process.

One file counts: the one that is named, else the one in the current directory, else the one in the data directory. Most
calls find none, and then no TOML parser is imported: scripts call `kelpie server status` all the time.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kelpie.core.access.hosts import is_loopback
from kelpie.core.errors import ConfigurationError
from kelpie.core.settings.settings import SETTINGS, ResolvedSettings, Settings, resolve
from kelpie.core.settings.sources.precedence import Origin, SettingSource, Source, decide
from kelpie.world.lazy_imports import lazily

with lazily:
    from kelpie.core.settings.sources import toml_text as _toml_text

NAME = "kelpie.toml"
VARIABLE = "KELPIE_CONFIG"
BYTES_MAX = 256 * 1024
_DATA_DIR = SETTINGS["data_dir"].env[0]

Flags = Mapping[str, tuple[str, str]]  # field -> the option, and its text


def load(
    flags: Flags | None = None, config: str | None = None, env: Mapping[str, str] | None = None
) -> ResolvedSettings:
    """All settings, each with its origin. Raises ConfigurationError naming option, variable, or file and line."""
    env = os.environ if env is None else env
    flags = flags or {}
    path = _find(flags, config, env)
    if path is None:
        return resolve(flags, env)
    given: dict[str, SettingSource] = _toml_text.parse(_read(path), str(path))
    return _placed(resolve(flags, env, given, str(path)), path)


def load_readable(
    flags: Flags | None = None, config: str | None = None, env: Mapping[str, str] | None = None
) -> tuple[ResolvedSettings, ConfigurationError | None]:
    """All settings, and the error if one of them or the file is wrong; what is wrong then counts as not set.

    It is for commands that must work in spite of such an error, to stop a server or to find the error. Raises
    ConfigurationError when the data directory itself is in doubt: the command would act on another server.
    """
    try:
        return load(flags, config, env), None
    except ConfigurationError as error:
        return _salvage(flags or {}, config, os.environ if env is None else env, error), error


def _salvage(flags: Flags, config: str | None, env: Mapping[str, str], error: ConfigurationError) -> ResolvedSettings:
    path = _find(flags, config, env)
    text = _readable(path) if path is not None else ""
    given: dict[str, SettingSource] = _toml_text.salvaged(text or "", str(path))
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for name, spec in SETTINGS.items():
        try:
            value, origin = decide({name: spec}, flags, env, given)
        except ConfigurationError:
            value, origin = {}, {name: Origin(Source.default)}
        values |= value
        origins |= origin
    if origins["data_dir"].source is Source.default and (text is None or "data_dir" in text):
        raise ConfigurationError(
            error.setting, f"{error.remedy}. The file may set the data directory: name it with --data-dir"
        )
    found = ResolvedSettings(Settings(**values), origins, str(path) if path else None)
    return found if path is None else _placed(found, path)


def _readable(path: Path) -> str | None:
    try:
        return _read(path)
    except ConfigurationError:
        return None


def settings_path(config: str | None = None, env: Mapping[str, str] | None = None) -> Path:
    """The settings file that counts; without one, the path of the one to create. Raises ConfigurationError."""
    env = os.environ if env is None else env
    data_dir = resolve({}, {_DATA_DIR: env.get(_DATA_DIR, "")}).settings.data_dir
    return _find({}, config, env) or Path(data_dir).expanduser().absolute() / NAME


def check_exposure(found: ResolvedSettings, config: str | None = None, env: Mapping[str, str] | None = None) -> None:
    """Raises ConfigurationError when a file that the operator did not name would let other machines reach the server.

    A kelpie.toml may come with a directory that another person filled, who then knows the password in it as well.
    """
    env = os.environ if env is None else env
    host = found.origins["host"]
    if config or env.get(VARIABLE) or host.source is not Source.file or is_loopback(found.settings.host):
        return
    if found.file is not None and Path(found.file).parent == Path.cwd():
        raise ConfigurationError(
            host.where,
            f"'{found.settings.host}' can be reached from other machines, and this file was only found in the current "
            f"directory; if you trust it, name it with --config or {VARIABLE}, or give the address with --host",
        )


def _find(flags: Flags, config: str | None, env: Mapping[str, str]) -> Path | None:
    named = config or env.get(VARIABLE)
    if named:
        path = Path(named).expanduser().absolute()
        if not path.is_file():
            origin = "--config" if config else VARIABLE
            raise ConfigurationError(origin, f"{path} is not a file; choose a file or omit the option")
        return path
    data_dir = resolve(flags, {_DATA_DIR: env.get(_DATA_DIR, "")}).settings.data_dir
    places = (Path.cwd() / NAME, Path(data_dir).expanduser().absolute() / NAME)
    return next((place for place in places if _is_file(place)), None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False  # a directory we may not read: opening it reports the error


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
        if len(data) > BYTES_MAX:
            raise ConfigurationError(str(path), f"is larger than {BYTES_MAX} bytes; this cannot be a settings file")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(str(path), f"cannot be read ({error.strerror}); change its permissions") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"{path} line {line}", "this is not UTF-8; save the file as UTF-8") from None


def _placed(found: ResolvedSettings, path: Path) -> ResolvedSettings:
    """Resolves a relative data directory of a file against the directory of the file."""
    origin = found.origins["data_dir"]
    if origin.source is not Source.file:
        return found
    settings = found.settings
    data_dir = path.parent / Path(settings.data_dir).expanduser()
    return replace(found, settings=replace(settings, data_dir=str(data_dir)))
