"""`kelpie config`: every setting with its value and its origin. A secret is never shown, only that it is set."""

import sys
from typing import Annotated, Any

import typer

from kelpie.cli.options import AsJson, Assign, examples, flags, group
from kelpie.cli.output import print_json, print_rows, say
from kelpie.core.settings.settings import SETTINGS, ResolvedSettings, Settings
from kelpie.world.files.settings_file import load

commands = group("Show the settings.", "config show")

SET = "(set)"


@commands.command(epilog=examples("config show", "config show --json", "config show --set server.port=9000"))
def show(
    config: Annotated[str | None, typer.Option(help="Settings file (KELPIE_CONFIG).")] = None,
    assign: Assign = None,
    as_json: AsJson = False,
) -> None:
    """Show every setting with its value and origin.

    The origin is an option, a variable, a line of the settings file, or the default.
    """
    found = load(flags({}, assign or ()), config)
    rows = described(found)
    if as_json:
        print_json({"file": found.file, "settings": rows})
        return
    print_rows(("setting", "value", "origin"), [(row["key"], _or_dash(row["value"]), row["origin"]) for row in rows])
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
