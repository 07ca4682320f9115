"""The operator's settings of pip, uv and npm, collected for a cell that sees none of the files they are written in.

The installer gets values and copies of the files that lead to its index: addresses, credentials, certificates. A
directory of packages on this machine is shown to it. Proxies stay with the server (`installer_network.py`).
"""

import ast
import json
import netrc
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

from kelpie.core.errors import ToolError
from kelpie.core.tools.egress_rules import EgressEntry
from kelpie.world.egress.upstream import UpstreamProxies, direct_hosts, upstream_proxy
from kelpie.world.packages.index_addresses import named_hosts, passwords
from kelpie.world.packages.installers import Installer, settings_command
from kelpie.world.processes.processes import Processes

SETTINGS_S = 60.0
SETTINGS_BYTES_MAX = 1 << 20
FILE_BYTES_MAX = 4 << 20
COPIES = "/tmp/settings"  # in the cell
UNREADABLE = "{} is set for {} on this server and cannot be used: {}"

_VARIABLE = re.compile(r"\$\{(\w+)\??\}")
_NPM_FILE = re.compile(r"^\s*\S*(?:cafile|certfile|keyfile)\s*=\s*[\"']?([^\s\"']+)", re.MULTILINE)
_NPM_SECRET = re.compile(r"^\s*\S*(?:_authToken|_auth|_password)\s*=\s*[\"']?([^\s\"']+)", re.MULTILINE)
_NPM_PROXY = re.compile(r"^\s*(?:https-)?proxy\s*=.*$", re.MULTILINE)
# Variables of the server that do not reach npm: the cell has its own.
_NPM_OWN = frozenset(
    f"NPM_CONFIG_{each}"
    for each in ("USERCONFIG", "GLOBALCONFIG", "PREFIX", "CACHE", "TMP", "PROXY", "HTTPS_PROXY", "NOPROXY")
)
_CELL_OWN = ("HOME", "PATH", "TMPDIR")
_TLS_FILES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "SSL_CLIENT_CERT")
_PIP_NAMES = (
    "index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert", "client-cert", "constraint",
    "timeout", "default-timeout", "retries", "pre", "prefer-binary", "use-feature", "use-deprecated",
)  # fmt: skip
_UV_NAMES = (
    "UV_INDEX", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX", "UV_INSECURE_HOST",
    "UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_CONSTRAINT", "UV_PRERELEASE",
    "UV_EXCLUDE_NEWER",
)  # fmt: skip
_UV_PLACES = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
_PLACES = ("find-links", "index-url", "extra-index-url", "url")
_WIDE = ("/", "/etc", "/home", "/opt", "/root", "/srv", "/tmp", "/usr", "/var", "/mnt", "/media", "/data")


@dataclass(slots=True)
class InstallerSettings:
    """Settings for an installer in a cell."""

    env: dict[str, str] = field(default_factory=dict[str, str])
    files: dict[str, str] = field(default_factory=dict[str, str])  # paths in the cell, and texts
    shown: tuple[str, ...] = ()  # directories of this machine
    hosts: tuple[EgressEntry, ...] = ()  # that the settings name, wherever they are
    upstream: UpstreamProxies = field(default_factory=UpstreamProxies)
    secrets: frozenset[str] = frozenset()  # never to be repeated


async def read_settings(
    processes: Processes, installer: Installer, ours: Mapping[str, str], closed: Path
) -> InstallerSettings:
    """Collects the settings of an installer from the server's environment and the operator's files. A directory around
    `closed` is never shown. Raises OSError, and ToolError for a setting that cannot be used."""
    said = ""
    if (command := settings_command(installer)) is not None:
        env = {name: value for name, value in ours.items() if _is_passed(name)}
        done = await processes.run(command, env=env, timeout_s=SETTINGS_S, output_bytes_max=SETTINGS_BYTES_MAX)
        said = done.stdout.decode("utf-8", "replace")
    found = _Collection(installer, ours, closed)
    {Installer.pip: found.add_pip, Installer.uv: found.add_uv, Installer.npm: found.add_npm}[installer](said)
    found.add_certificates()
    found.add_netrc()
    return found.settings()


def _is_passed(name: str) -> bool:
    """Checks whether a variable may reach the command that lists settings."""
    name = name.upper()
    plain = ("PATH", "HOME", "LANG", "LC_ALL", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS")
    return name in plain or name.startswith(("PIP_", "NPM_CONFIG_"))


class _Collection:
    """Settings while they are collected."""

    def __init__(self, installer: Installer, ours: Mapping[str, str], closed: Path) -> None:
        self._installer = installer
        self._ours = ours
        self._closed = closed.resolve()
        self._env: dict[str, str] = {}
        self._files: dict[str, str] = {}
        self._shown: list[str] = []
        self._named = ""  # all addresses
        self._secrets: set[str] = set()
        self._proxies: dict[str, str | None] = {"http": None, "https": None, "direct": None}

    def settings(self) -> InstallerSettings:
        ours = {name.lower(): value for name, value in self._ours.items()}
        http, https = (
            self._proxies[each] or ours.get(f"{each}_proxy") or ours.get("all_proxy") for each in ("http", "https")
        )
        texts = [self._named, *self._env.values(), *self._files.values()]
        hosts = tuple(dict.fromkeys(entry for text in texts for entry in named_hosts(text)))
        proxies = UpstreamProxies(
            upstream_proxy(http), upstream_proxy(https), direct_hosts([self._proxies["direct"], ours.get("no_proxy")])
        )
        secrets = frozenset({*self._secrets, *(secret for text in texts for secret in passwords(text))} - {""})
        return InstallerSettings(self._env, self._files, tuple(dict.fromkeys(self._shown)), hosts, proxies, secrets)

    def add_pip(self, said: str) -> None:
        told: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
        for line in said.splitlines():
            name, equals, value = line.partition("=")
            section, _, name = name.rpartition(".")
            if equals and section in told:
                told[section][name] = str(ast.literal_eval(value))
            elif not equals:
                self._named += f"{line}\n"  # the default index
        settings = told["global"] | told["install"] | told[":env:"]
        self._proxies["http"] = self._proxies["https"] = settings.get("proxy")
        for name in _PIP_NAMES:
            if name in settings:
                value = settings[name]
                if name in _PLACES:
                    value = " ".join(self._placed(name, each) for each in value.split())
                elif name in ("cert", "client-cert", "constraint"):
                    value = " ".join(self._copied(name, each) for each in value.split())
                self._env[f"PIP_{name.upper().replace('-', '_')}"] = value
        self._env["PIP_CONFIG_FILE"] = "/dev/null"

    def add_uv(self, _said: str) -> None:
        for name in sorted(self._ours):
            if name.startswith(_UV_NAMES):
                value = self._ours[name]
                if name == "UV_CONSTRAINT":
                    value = " ".join(self._copied(name, each) for each in value.split())
                elif name in _UV_PLACES:
                    separator = "," if name == "UV_FIND_LINKS" else " "
                    value = separator.join(self._placed(name, each) for each in re.split(r"[\s,]+", value) if each)
                elif name.endswith("_PASSWORD"):
                    self._secrets.add(value)
                self._env[name] = value
        home = Path(self._ours.get("XDG_CONFIG_HOME") or Path(self._ours.get("HOME", "/"), ".config"))
        own = self._ours.get("UV_CONFIG_FILE")
        places = {"XDG_CONFIG_HOME": Path(own) if own else home / "uv/uv.toml"}
        if own is None:
            places["XDG_CONFIG_DIRS"] = Path("/etc/uv/uv.toml")
        for variable, file in places.items():
            if (text := self._text(variable, file)) is not None:
                self._env[variable] = f"{COPIES}/{variable.lower()}"
                self._files[f"{COPIES}/{variable.lower()}/uv/uv.toml"] = text
                for place in _strings(_parsed(file, text)):
                    self._placed("uv.toml", place)

    def add_npm(self, said: str) -> None:
        try:
            told: dict[str, Any] = json.loads(said or "{}")
        except ValueError:
            told = {}  # npm could not say them; it will say why when it installs
        self._named = str(told.get("registry"))
        proxy, https = told.get("proxy"), told.get("https-proxy")
        self._proxies = {"http": proxy or https, "https": https or proxy, "direct": _joined(told.get("noproxy"))}
        for name in sorted(self._ours):
            if name.upper().startswith("NPM_CONFIG_") and name.upper() not in _NPM_OWN:
                value = self._ours[name]
                self._env[name] = self._copied(name, value) if name.upper() == "NPM_CONFIG_CAFILE" else value
        for name in ("userconfig", "globalconfig"):
            place = f"{COPIES}/{name}"
            self._env[f"NPM_CONFIG_{name.upper()}"] = place
            if isinstance(told.get(name), str) and (text := self._text(name, Path(told[name]))) is not None:
                text = _NPM_PROXY.sub("", text)
                for variable in _VARIABLE.findall(text):
                    if variable in self._ours and variable not in _CELL_OWN:
                        self._env[variable] = self._ours[variable]
                        self._secrets.add(self._ours[variable])
                for file in sorted(set(_NPM_FILE.findall(text)), key=len, reverse=True):
                    text = text.replace(file, self._copied(name, file))
                self._secrets.update(_NPM_SECRET.findall(text))
                self._files[place] = text

    def add_certificates(self) -> None:
        for name in _TLS_FILES:
            if value := self._ours.get(name):
                self._env[name] = self._copied(name, value)

    def add_netrc(self) -> None:
        """Adds the credentials for the hosts of the index that are in the operator's .netrc."""
        file = Path(self._ours.get("NETRC") or Path(self._ours.get("HOME", "/"), ".netrc"))
        if self._installer is Installer.npm or not file.is_file():
            return
        try:
            known = netrc.netrc(str(file)).hosts
        except (netrc.NetrcParseError, OSError):
            return  # pip and uv take no notice of such a file either
        hosts = {entry.name for part in (self._named, *self._env.values()) for entry in named_hosts(part)}
        lines = [
            f"machine {host} login {user} password {password}\n"
            for host, (user, _, password) in known.items()
            if host in hosts
        ]
        if lines:
            self._env["NETRC"] = f"{COPIES}/netrc"
            self._files[f"{COPIES}/netrc"] = "".join(lines)
            self._secrets.update(password for host, (_, _, password) in known.items() if host in hosts and password)

    def _copied(self, name: str, value: str) -> str:
        """The path in the cell of a copy of a file; of a directory, its own path, and an address as it is. Raises
        ToolError."""
        if "://" in value:
            return value
        path = Path(value).expanduser().resolve()
        if path.is_dir():
            self._show_directory(name, path)
            return str(path)
        text = self._text(name, path)
        if text is None:
            raise ToolError(UNREADABLE.format(name, self._installer, "the file does not exist"))
        inside = f"{COPIES}/{len(self._files)}-{path.name}"
        self._files[inside] = text
        return inside

    def _text(self, name: str, file: Path) -> str | None:
        """The text of a file; None if it does not exist. Raises ToolError."""
        try:
            with file.open("rb") as opened:
                data = opened.read(FILE_BYTES_MAX + 1)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise ToolError(UNREADABLE.format(name, self._installer, error.strerror)) from error
        if len(data) > FILE_BYTES_MAX:
            raise ToolError(UNREADABLE.format(name, self._installer, f"it is larger than {FILE_BYTES_MAX} bytes"))
        return data.decode("utf-8", "replace")

    def _placed(self, name: str, value: str) -> str:
        """A path or an address of an index; if it is a directory of this machine, that is shown. Raises ToolError."""
        label, equals, address = value.rpartition("=")  # uv can give an index a name
        if address.startswith("file:"):
            path = Path(url2pathname(urlsplit(address).path))
        elif "://" in address:
            return value
        else:
            path = Path(address).expanduser().absolute()
            address = str(path)
        if path.exists():
            directory = path.resolve() if path.is_dir() else path.resolve().parent
            # Pages of an index in a directory `simple` usually name files beside that directory.
            around = directory.parent
            shown = around if directory.name == "simple" and not self._is_wide(around) else directory
            self._show_directory(name, shown)
        return f"{label}{equals}{address}"

    def _show_directory(self, name: str, path: Path) -> None:
        if self._is_wide(path):
            raise ToolError(UNREADABLE.format(name, self._installer, "it names a directory that holds other files too"))
        if os.geteuid() == 0 and path.stat().st_mode & 0o005 != 0o005:
            raise ToolError(UNREADABLE.format(name, self._installer, "let all users read that directory (chmod o+rX)"))
        self._shown.append(str(path))

    def _is_wide(self, path: Path) -> bool:
        around = any(each.is_relative_to(path) for each in (self._closed, Path.home()))
        return around or path.is_relative_to(self._closed) or str(path) in _WIDE


def _parsed(file: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ToolError(UNREADABLE.format(file.name, "uv", "it is not valid TOML")) from error


def _strings(value: Any, name: str = "") -> Iterator[str]:
    """The values in uv.toml that lead to an index."""
    match value:
        case dict():
            for key, each in cast("dict[str, Any]", value).items():
                yield from _strings(each, key)
        case list():
            for each in cast("list[Any]", value):
                yield from _strings(each, name)
        case str() if name in _PLACES:
            yield value
        case _:
            return


def _joined(value: Any) -> str:
    return ",".join(map(str, cast("list[Any]", value))) if isinstance(value, list) else str(value or "")
