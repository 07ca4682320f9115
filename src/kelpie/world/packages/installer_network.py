"""Network access of pip, uv and npm while they install: the internet, and of other networks only what the operator's
own settings for them name.

A package may name another by its address, so a user who may register a tool could otherwise have the server fetch files
from inside its network. All traffic goes through Kelpie's proxy, which connects to the address that it checked. If the
operator has a proxy of their own, that proxy decides instead.
"""

import re
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from kelpie.core.tools.egress_rules import EgressEntry
from kelpie.core.tools.package_requirements import Index
from kelpie.world.egress.proxy import EgressProxy
from kelpie.world.egress.proxy_request import PORTS
from kelpie.world.packages.installers import settings_command
from kelpie.world.processes.processes import Processes

SETTINGS_S = 60.0
SETTINGS_BYTES_MAX = 1 << 20
_ADDRESS = re.compile(r"https?://[^\s'\"\\,;<>]+", re.IGNORECASE)
_PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "PIP_PROXY", "NPM_CONFIG_PROXY", "NPM_CONFIG_HTTPS_PROXY")
_PROXY_SET = re.compile(r"""^\S*\.proxy=|"(?:https-)?proxy": *\"""", re.MULTILINE)  # as pip says it, and npm
_NOT_PASSED_BY = "none.invalid"  # an empty list would be looked for elsewhere


@dataclass(frozen=True, slots=True)
class Network:
    """Proxy settings for an installer, and the requests that were refused."""

    env: Mapping[str, str]
    proxy: EgressProxy | None = None

    @property
    def refused(self) -> str | None:
        return self.proxy.refused if self.proxy is not None else None


@asynccontextmanager
async def installer_network(
    processes: Processes, index: Index, env: Mapping[str, str], *, private: bool = False
) -> AsyncGenerator[Network]:
    """Network access for an installer with this environment, while the block runs; with `private` it is not limited.
    Raises OSError."""
    if private:
        yield Network(env)
        return
    told = await _settings(processes, index, env)
    if any(env.get(name) for name in env if name.upper() in _PROXY_NAMES) or _PROXY_SET.search(told):
        yield Network(env)
        return
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    proxy = await EgressProxy(None, inside=_named(told)).serve(listener)
    through = {name: address for each in ("http_proxy", "https_proxy", "all_proxy") for name in (each, each.upper())}
    past = dict.fromkeys(("no_proxy", "NO_PROXY", "npm_config_noproxy"), _NOT_PASSED_BY)
    try:
        yield Network({**env, **through, **past}, proxy)
    finally:
        await proxy.close()


async def _settings(processes: Processes, index: Index, env: Mapping[str, str]) -> str:
    """The operator's settings of an installer, wherever they are written."""
    said = [f"{name}={value}" for name, value in env.items()]
    if (command := settings_command(index)) is not None:
        done = await processes.run(command, env=env, timeout_s=SETTINGS_S, output_bytes_max=SETTINGS_BYTES_MAX)
        said.append(done.stdout.decode("utf-8", "replace"))
    else:  # uv has no such command
        home = Path(env.get("XDG_CONFIG_HOME") or Path(env.get("HOME", "/"), ".config"))
        said += [_text(place / "uv/uv.toml") for place in (home, Path("/etc"))]
    return "\n".join(said)


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""  # most have none


def _named(told: str) -> tuple[EgressEntry, ...]:
    """The hosts, each at its port, of all addresses in a text."""
    found: dict[EgressEntry, None] = {}
    for address in _ADDRESS.finditer(told):
        try:
            parts = urlsplit(address[0])
            if parts.hostname:
                found[EgressEntry(parts.hostname.rstrip("."), parts.port or PORTS[parts.scheme])] = None
        except ValueError:
            continue  # it is no address, and nothing can be fetched from it
    return tuple(found)
