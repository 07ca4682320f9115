"""`kelpie providers`: model providers with your organization's own keys. A key is typed at a prompt or piped in; it is
never an argument, which other users of the machine could see.
"""

import sys
from typing import Annotated, Any

import typer

from kelpie.cli.confirmation import confirm
from kelpie.cli.id_lookup import UnknownId
from kelpie.cli.options import AsJson, Limit, Url, client, examples, group, path
from kelpie.cli.output import cell, print_facts, print_json, print_list, say, waiting
from kelpie.cli.typed_text import STDIN, given_text
from kelpie.core.errors import InvalidInput
from kelpie.core.models.provider_types import PROVIDER_TYPES
from kelpie.world.http.cli_client import Client

commands = group(
    "Add, check and remove providers with your own keys.", "providers add mine --type openai", "providers list"
)

PATH = "/v1/providers/"
CHECK_S = 90.0  # the provider is asked for its models, twice if it fails
PROVIDERS_MAX = 100

Provider = Annotated[str, typer.Argument(metavar="PROVIDER", help="Name or id of the provider.")]
BaseUrl = Annotated[str | None, typer.Option("--base-url", metavar="URL", help="Address of the provider's API.")]
ApiVersion = Annotated[str | None, typer.Option(metavar="VERSION", help="Version of the API, for Azure.")]


@commands.command("list", epilog=examples("providers list", "providers list --json"))
def list_providers(limit: Limit = 50, as_json: AsJson = False, url: Url = None) -> None:
    """List the providers that were added with a key of their own."""
    found = client(url).get(PATH, limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (each["name"], each["provider_type"], each["base_url"], each["last_synced"] or "never", each["id"])
        for each in found
    ]
    columns = ("name", "type", "address", "models listed", "id")
    none = "No providers. Add one with `kelpie providers add`; `kelpie doctor` shows those of the settings."
    print_list(columns, rows, none, spare=("id", "address"))


@commands.command(
    epilog=examples("providers add mine --type openai", "providers add home --type vllm --base-url URL --no-key")
)
def add(
    name: Annotated[str, typer.Argument(help="Name of the provider: the first part of its models' handles.")],
    kind: Annotated[
        str, typer.Option("--type", metavar="TYPE", help=f"Type of the provider: {', '.join(PROVIDER_TYPES)}.")
    ],
    base_url: BaseUrl = None,
    api_version: ApiVersion = None,
    no_key: Annotated[bool, typer.Option("--no-key", help="Use a server that needs no key.")] = False,
    no_check: Annotated[bool, typer.Option("--no-check", help="Store the key without trying it.")] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Add a provider. The key is read from a prompt, or from standard input if that is not a terminal."""
    server = client(url, CHECK_S)
    body: dict[str, Any] = {"provider_type": kind, "api_key": "" if no_key else _key()}
    body |= {"base_url": base_url, "api_version": api_version}
    if not no_check:
        with waiting(f"Asking {name} for its models ..."):
            server.post(f"{PATH}check", body)
    made = server.post(PATH, body | {"name": name})
    _show(made, as_json, f"Added provider {cell(name)}. `kelpie models list --provider {cell(name)}` shows its models.")


@commands.command(epilog=examples("providers update mine", "providers update mine --base-url URL"))
def update(
    provider: Provider,
    base_url: BaseUrl = None,
    api_version: ApiVersion = None,
    keep_key: Annotated[bool, typer.Option("--keep-key", help="Keep the stored key.")] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Give a provider a new key or address. It counts for the next model call."""
    server = client(url, CHECK_S)
    found = _find(server, provider)
    given = {"base_url": base_url, "api_version": api_version} | ({} if keep_key else {"api_key": _key()})
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise InvalidInput("--keep-key", "nothing would change; give a new key, --base-url or --api-version")
    _show(server.patch(path("providers", found["id"]), changes), as_json, f"Changed provider {cell(found['name'])}.")


@commands.command(epilog=examples("providers check mine"))
def check(provider: Provider, as_json: AsJson = False, url: Url = None) -> None:
    """Ask a provider for its models with the stored key. Exits with 1 if it refuses."""
    server = client(url, CHECK_S)
    found = _find(server, provider)
    with waiting(f"Asking {found['name']} for its models ..."):
        told = server.post(path("providers", found["id"], "check"), {})
    if as_json:
        print_json(told)
    else:
        say(f"{cell(found['name'])} accepts the key.")


@commands.command(epilog=examples("providers refresh mine"))
def refresh(provider: Provider, as_json: AsJson = False, url: Url = None) -> None:
    """List the models of a provider again."""
    server = client(url, CHECK_S)
    found = _find(server, provider)
    with waiting(f"Asking {found['name']} for its models ..."):
        told = server.patch(path("providers", found["id"], "refresh"), {})
    _show(told, as_json, f"Listed the models of {cell(found['name'])}.")


@commands.command(epilog=examples("providers remove mine", "providers remove mine --yes"))
def remove(
    provider: Provider,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    url: Url = None,
) -> None:
    """Remove a provider and its key. Agents that use its models need another model."""
    server = client(url)
    found = _find(server, provider)
    name = cell(found["name"])
    confirm(f"Remove provider {name} and its key?", "the removal", yes=yes)
    server.delete(path("providers", found["id"]))
    say(f"Removed provider {name}.")


def _key() -> str:
    """The key that a person types or pipes in. Raises InvalidInput."""
    if sys.stdin.isatty():
        typed = str(typer.prompt("Key", hide_input=True, err=True))
    else:
        typed = given_text(STDIN, "KEY")
    if not typed.strip():
        raise InvalidInput(
            "KEY",
            "is empty; type it at the prompt or pipe it in: `kelpie providers add ... < key.txt`. "
            "A server that needs none is added with --no-key",
        )
    return typed.strip()


def _find(server: Client, provider: str) -> dict[str, Any]:
    """The provider with this name or id. Raises UnknownId, Unreachable, ErrorResponse."""
    for each in server.get(PATH, limit=PROVIDERS_MAX):
        if provider in (each["id"], each["name"]):
            return dict(each)
    raise UnknownId(f"there is no provider with the name or id '{provider[:80]}'; see `kelpie providers list`")


def _show(provider: dict[str, Any], as_json: bool, done: str) -> None:
    if as_json:
        print_json(provider)
        return
    say(done)
    print_facts({name: provider[name] for name in ("id", "name", "provider_type", "base_url", "api_version")})
