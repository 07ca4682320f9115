"""Options that several commands share, and the client they reach the server with."""

import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Annotated
from urllib.parse import quote

import typer

from kelpie.cli.command_line import Commands, Group
from kelpie.cli.server.address import address
from kelpie.cli.server.credential import credential
from kelpie.core.errors import InvalidInput, KelpieError
from kelpie.core.settings.settings import KEYS, SETTINGS
from kelpie.world.files.settings_file import Flags, load
from kelpie.world.http.cli_client import Client

CALL_S = 10.0
COMPLETE_S = 2.0
MARKUP = "markdown" if sys.stdout.isatty() else None  # None: help without boxes and colours
NAMES_MAX = 50

# `--url` is understood before the command and after it; the one after it counts.
url_before_command: ContextVar[str | None] = ContextVar("url_before_command", default=None)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Url = Annotated[str | None, typer.Option(help="Server URL. Defaults to the server running in the data directory.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Maximum number to show.")]


def _agent_names(incomplete: str) -> list[str]:
    """Shell completion of agent names; none when no server answers."""
    try:
        found = client(None, COMPLETE_S).get("/v1/agents/", limit=NAMES_MAX, include="agent.tags")
    except KelpieError:
        return []
    return sorted(agent["name"] for agent in found if agent["name"].startswith(incomplete))


def complete_block(incomplete: str) -> list[str]:
    """Shell completion of blocks as AGENT/LABEL."""
    who, slash, label = incomplete.partition("/")
    if not slash:
        return [f"{name}/" for name in _agent_names(who)]
    try:
        server = client(None, COMPLETE_S)
        named = server.get("/v1/agents/", name=who, limit=1, include="agent.blocks")
    except KelpieError:
        return []
    labels = [block["label"] for agent in named for block in agent["blocks"]]
    return sorted(f"{who}/{each}" for each in labels if each.startswith(label))


def _keys(incomplete: str) -> list[str]:
    """Shell completion of setting names."""
    return [f"{key}=" for key in KEYS if key.startswith(incomplete)]


def complete_key(incomplete: str) -> list[str]:
    """Shell completion of settings without a value."""
    return [key for key in KEYS if key.startswith(incomplete)]


Agent = Annotated[str, typer.Argument(help="Name or id of the agent.", autocompletion=_agent_names)]
MaybeAgent = Annotated[
    str | None,
    typer.Argument(help="Name or id of the agent. Defaults to the newest agent.", autocompletion=_agent_names),
]
Assign = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Setting (repeatable).", autocompletion=_keys),
]


def group(help: str, *commands: str) -> Commands:
    """A command group, with examples."""
    return Commands(cls=Group, help=help, epilog=examples(*commands), no_args_is_help=True, rich_markup_mode=MARKUP)


def examples(*commands: str) -> str:
    """Formats the examples at the end of a command's help, one per line; `kelpie` is put before each."""
    if MARKUP is None:
        return "\b\nExamples:\n" + "\n".join(f"  kelpie {command}" for command in commands)
    return "Examples:\n\n" + "\n\n".join(f"- `kelpie {command}`" for command in commands)


def client(url: str | None, timeout_s: float = CALL_S) -> Client:
    """A client of the chosen server, with the key or password that is set. Raises ConfigurationError, Unreachable."""
    found = load()
    url = url or url_before_command.get()
    return Client(url or address(found), timeout_s, credential(found, url))


def path(*parts: str) -> str:
    """A path under /v1 from its parts, each one quoted."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def flags(named: Mapping[str, str | None], assignments: Sequence[str] = ()) -> Flags:
    """Options by settings field, and `KEY=VALUE` of `--set`. Raises InvalidInput for an unknown key."""
    given = {field: (f"--{field.replace('_', '-')}", str(value)) for field, value in named.items() if value is not None}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise InvalidInput("--set", f"expected KEY=VALUE such as server.port=9000, got '{assignment[:80]}'")
        if key not in KEYS:
            from kelpie.core.settings.sources.toml_text import nearest_key

            raise InvalidInput("--set", f"there is no setting '{key[:80]}'; {nearest_key(key)}")
        given[KEYS[key]] = (f"--set {key}", value)
    return given


def as_environment(given: Flags) -> dict[str, str]:
    """The same settings as environment variables, for a process to be started."""
    return {SETTINGS[field].env[0]: text for field, (_, text) in given.items()}
