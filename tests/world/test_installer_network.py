"""What installers may reach: a package that names an address inside of our network leads nowhere. With real ones."""

import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kelpie.core.errors import ToolError
from kelpie.core.tools.egress_rules import EgressEntry
from kelpie.core.tools.package_requirements import Index, needed
from kelpie.world.packages.installer_network import _named, _settings, installer_network
from kelpie.world.packages.store import LocalPackages
from kelpie.world.processes.processes import ProcessResult, SystemProcesses

_ENV = {"PATH": "/usr/bin", "PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": "http://10.0.0.5/simple"}


class Web:
    """Pages by their paths, at a port of this machine, and which of them were asked for."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}
        self.asked: list[str] = []
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web.asked.append(self.path)
                page = web.pages.get(self.path)
                self.send_response(404 if page is None else 200)
                self.send_header("Content-Type", "application/json" if (page or b"")[:1] == b"{" else "text/html")
                self.send_header("Content-Length", str(len(page or b"")))
                self.end_headers()
                self.wfile.write(page or b"")

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def index() -> Iterator[Web]:
    web = Web()
    yield web
    web.close()


@pytest.fixture
def inside() -> Iterator[Web]:
    """What nobody who registers a tool is to reach."""
    web = Web()
    yield web
    web.close()


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalPackages:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("NPM_CONFIG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NPM_CONFIG_FETCH_RETRIES", "0")
    return LocalPackages(SystemProcesses(), tmp_path / "packages")


def wheel(name: str, *metadata: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr(f"{name}.py", "x = 1\n")
        told = "\n".join(("Metadata-Version: 2.1", f"Name: {name}", "Version: 1", *metadata, ""))
        file.writestr(f"{name}-1.dist-info/METADATA", told)
        file.writestr(f"{name}-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{name}-1.dist-info/RECORD", "")
    return data.getvalue()


def tarball(told: Mapping[str, Any]) -> bytes:
    data, text = io.BytesIO(), json.dumps(told).encode()
    with tarfile.open(fileobj=data, mode="w:gz") as file:
        about = tarfile.TarInfo("package/package.json")
        about.size = len(text)
        file.addfile(about, io.BytesIO(text))
    return data.getvalue()


@pytest.mark.needs("pip")
async def test_pip_fetches_from_its_index_and_not_from_an_address_that_a_wheel_names(
    index: Web, inside: Web, shelf: LocalPackages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.address}/simple")
    inside.pages["/inner-1-py3-none-any.whl"] = wheel("inner")
    sly = f"Requires-Dist: inner @ {inside.address}/inner-1-py3-none-any.whl"
    for name, metadata in (("plain", ()), ("sly", (sly,))):
        index.pages[f"/simple/{name}/"] = f'<a href="/{name}-1-py3-none-any.whl">{name}</a>'.encode()
        index.pages[f"/{name}-1-py3-none-any.whl"] = wheel(name, *metadata)
    place = await shelf.install(needed(Index.pip, [{"name": "plain"}]), ())
    assert (Path(place) / "plain.py").is_file()
    with pytest.raises(ToolError, match=r"127\.0\.0\.1 may not be reached: its address is in a private network"):
        await shelf.install(needed(Index.pip, [{"name": "sly"}]), ())
    assert inside.asked == []


@pytest.mark.needs("node")
async def test_npm_fetches_from_its_registry_and_not_from_an_address_that_a_package_names(
    index: Web, inside: Web, shelf: LocalPackages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"{index.address}/")
    inside.pages["/inner.tgz"] = tarball({"name": "inner", "version": "1.0.0"})
    for name, named in (("plain", {}), ("sly", {"inner": f"{inside.address}/inner.tgz"})):
        told = {"name": name, "version": "1.0.0", "dependencies": named}
        packed = tarball(told)
        about = {"tarball": f"{index.address}/{name}.tgz", "shasum": hashlib.sha1(packed).hexdigest()}
        versions = {"1.0.0": {**told, "dist": about}}
        page = {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": versions}
        index.pages[f"/{name}"] = json.dumps(page).encode()
        index.pages[f"/{name}.tgz"] = packed
    place = await shelf.install(needed(Index.npm, [{"name": "plain"}]), ())
    assert (Path(place) / "node_modules/plain/package.json").is_file()
    with pytest.raises(ToolError, match=r"127\.0\.0\.1 may not be reached: its address is in a private network"):
        await shelf.install(needed(Index.npm, [{"name": "sly"}]), ())
    assert inside.asked == []


class Told:
    """An installer that tells what is set for it."""

    def __init__(self, settings: str) -> None:
        self._settings = settings

    async def run(self, *_: Any, **__: Any) -> ProcessResult:
        return ProcessResult(0, self._settings.encode(), b"")


@pytest.mark.parametrize(
    ("settings", "env"),
    [
        ("global.proxy='http://10.0.0.1:3128'\n", {}),
        ('{\n  "https-proxy": "http://10.0.0.1:3128/",\n  "proxy": null\n}', {}),
        ("", {"https_proxy": "http://10.0.0.1:3128"}),
        ("", {"PIP_PROXY": "10.0.0.1:3128"}),
    ],
)
async def test_an_operator_s_own_proxy_stays_the_way_out(settings: str, env: dict[str, str]) -> None:
    async with installer_network(Told(settings), Index.npm, env) as network:
        assert network.env == env and network.refused is None


async def test_without_one_everything_goes_through_ours() -> None:
    settings = '{\n  "https-proxy": null,\n  "noproxy": [\n    "10.0.0.1"\n  ],\n  "proxy": null\n}'
    async with installer_network(Told(settings), Index.npm, {"HOME": "/root", "no_proxy": "10.0.0.1"}) as network:
        ways = {network.env[name] for name in ("http_proxy", "HTTPS_PROXY", "ALL_PROXY")}
        assert len(ways) == 1 and ways.pop().startswith("http://127.0.0.1:")
        assert network.env["HOME"] == "/root"
        assert "10.0.0.1" not in network.env.values(), "nothing passes it by"


def test_the_hosts_of_the_operator_s_addresses_are_known() -> None:
    told = """:env:.index-url='https://user:secret@pypi.corp/simple'
global.extra-index-url='http://10.0.0.5:3141/root HTTPS://Mirror.Corp./x file:///opt/simple'
"registry": "http://[fd00::1]:4873/", http://bad:port/ "plain": "text"
"""
    hosts = (("pypi.corp", 443), ("10.0.0.5", 3141), ("mirror.corp", 443), ("fd00::1", 4873))
    assert _named(told) == tuple(EgressEntry(*each) for each in hosts)


@pytest.mark.needs("pip")
async def test_the_public_index_may_lie_anywhere() -> None:
    """A network may have a mirror of its own under the names of the public ones."""
    told = await _settings(SystemProcesses(), Index.pip, _ENV)
    hosts = [each.name for each in _named(told)]
    assert hosts.count("10.0.0.5") == 1 and len(hosts) == 3, "where pip looks by itself, and where its files lie"
