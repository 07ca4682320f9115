"""`kelpie config set`, `unset`, `path` and `edit`: the settings file, checked before it is replaced as a whole."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from kelpie.cli.options import complete_key, examples
from kelpie.cli.output import say
from kelpie.cli.server.discovery import running
from kelpie.cli.typed_text import edited, given_text
from kelpie.core.errors import InvalidInput
from kelpie.core.settings.declaration import Setting
from kelpie.core.settings.settings import KEYS, SETTINGS
from kelpie.world.files import text_file
from kelpie.world.files.settings_file import load_readable, settings_path

Key = Annotated[str, typer.Argument(help="Setting such as `agents.default_model`.", autocompletion=complete_key)]
Config = Annotated[str | None, typer.Option(metavar="FILE", help="Settings file (KELPIE_CONFIG).")]


def register(commands: typer.Typer) -> None:
    """Adds these commands to the commands of the configuration."""
    commands.command(
        "set",
        epilog=examples("config set agents.default_model openai/gpt-4o", "config set providers.openai.api_key - < key"),
    )(set_value)
    commands.command(epilog=examples("config unset agents.default_model"))(unset)
    commands.command("path", epilog=examples("config path"))(show_path)
    commands.command(epilog=examples("config edit"))(edit)


def set_value(
    key: Key,
    value: Annotated[
        str | None, typer.Argument(help="New value; `-` reads it from standard input. A secret is asked for.")
    ] = None,
    config: Config = None,
) -> None:
    """Set a setting in the settings file. Comments in the file are kept."""
    from kelpie.core.settings.sources import toml_edit

    spec = _spec(key)
    parsed = spec.from_text(key, _value(spec, value))
    path = settings_path(config)
    new = toml_edit.with_value(_text(path), str(path), spec, parsed)
    toml_edit.check(new, str(path), os.environ)
    text_file.replace(path, new)
    say(f"Set {key} in {path}.")
    _say_what_else(spec)


def unset(key: Key, config: Config = None) -> None:
    """Remove a setting from the settings file, so that its default counts."""
    from kelpie.core.settings.sources import toml_edit

    spec, path = _spec(key), settings_path(config)
    new = toml_edit.without_value(_text(path), str(path), spec)
    toml_edit.check(new, str(path), os.environ)
    text_file.replace(path, new)
    say(f"Removed {key} from {path}.")
    _say_what_else(spec)


def show_path(config: Config = None) -> None:
    """Print the path of the settings file that counts, or of the one that `config set` would create."""
    say(str(settings_path(config)))


def edit(config: Config = None) -> None:
    """Edit the settings file in your editor (VISUAL, EDITOR). A wrong file is not stored."""
    from kelpie.core.settings.sources import toml_edit

    path = settings_path(config)
    before = text_file.read_if_there(path)
    before = toml_edit.template() if before is None else before

    def store(text: str) -> None:
        toml_edit.check(text, str(path), os.environ)
        text_file.replace(path, text)

    if edited(before, ".toml", store):
        say(f"Changed {path}.")
        _say_what_else(None)
    else:
        say(f"Nothing changed in {path}.")


def _spec(key: str) -> Setting:
    if key in KEYS:
        return SETTINGS[KEYS[key]]
    from kelpie.core.settings.sources.toml_text import nearest_key

    raise InvalidInput("KEY", f"there is no setting '{key[:80]}'; {nearest_key(key)}")


def _value(spec: Setting, value: str | None) -> str:
    if value is not None:
        return given_text(value, "VALUE")
    if spec.secret and sys.stdin.isatty():
        return str(typer.prompt(spec.key, hide_input=True, err=True))
    raise InvalidInput("VALUE", f"missing; type `kelpie config set {spec.key} VALUE`")


def _text(path: Path) -> str:
    return text_file.read_if_there(path) or ""


def _say_what_else(spec: Setting | None) -> None:
    """Says what keeps a change from taking effect: a variable, or a server that runs already."""
    variable = next((each for each in spec.env if os.environ.get(each)), None) if spec else None
    if variable is not None:
        say(f"kelpie: warning: {variable} is set and takes precedence over the file.", file=sys.stderr)
    found, _ = load_readable()
    if running(found.settings) is not None:
        say("To apply it to the running server, run `kelpie server restart`.", file=sys.stderr)
