"""`kelpie config`: the settings with their values and origins. A secret is never shown, only that it is set."""

import sys
from typing import Annotated, Any

import typer

from kelpie.cli.commands.operations import config_changes
from kelpie.cli.options import AsJson, Assign, examples, flags, group
from kelpie.cli.output import print_json, print_rows, say
from kelpie.core.settings.settings import SETTINGS, ResolvedSettings, Settings
from kelpie.core.settings.sources.precedence import Source
from kelpie.world.files.settings_file import load

commands = group("Show and change the settings.", "config show", "config set agents.default_model openai/gpt-4o")

SET = "(set)"


@commands.command(epilog=examples("config show", "config show --all", "config show --set server.port=9000"))
def show(
    every: Annotated[bool, typer.Option("--all", help="Also show settings that have their default value.")] = False,
    config: Annotated[str | None, typer.Option(help="Settings file (KELPIE_CONFIG).")] = None,
    assign: Assign = None,
    as_json: AsJson = False,
) -> None:
    """Show the settings that are set, with their values and origins.

    With `--json` all settings are shown. The origin is an option, a variable, a line of the settings file, or the
    default.
    """
    found = load(flags({}, assign or ()), config)
    rows = described(found)
    if as_json:
        print_json({"file": found.file, "settings": rows})
        return
    shown = [row for row in rows if every or row["source"] != Source.default]
    print_rows(
        ("setting", "value", "origin"),
        [(row["key"], _or_dash(row["value"]), row["origin"]) for row in shown],
        "All settings have their default values.",
    )
    if not every:
        say(f"{len(rows) - len(shown)} more settings have their default value; --all shows them.", file=sys.stderr)
    say(f"Settings file: {found.file or 'none'}", file=sys.stderr)


def described(found: ResolvedSettings) -> list[dict[str, Any]]:
    """Each setting as JSON for programs."""
    return [
        {
            "key": spec.key,
            "value": _value(getattr(found.settings, name), spec.secret),
            "origin": str(found.origins[name]),
            "source": found.origins[name].source.value,
            "default": getattr(Settings(), name),
            "environment": list(spec.env),
            "secret": spec.secret,
            "help": spec.help,
        }
        for name, spec in SETTINGS.items()
    ]


def _value(value: Any, secret: bool) -> Any:
    return SET if secret and value else value


def _or_dash(value: Any) -> Any:
    return "-" if value in (None, ()) else value


config_changes.register(commands)
