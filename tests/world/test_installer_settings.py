"""Settings of installers: what of the operator's files and variables reaches a cell; errors as clients read them."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kelpie.core.errors import ToolError
from kelpie.core.tools.egress_rules import EgressEntry
from kelpie.core.tools.package_requirements import Index
from kelpie.world.cell_programs import package_installer
from kelpie.world.egress.proxy_request import ProxyRequest
from kelpie.world.packages import installer_report, installers
from kelpie.world.packages.index_addresses import named_hosts
from kelpie.world.packages.installer_errors import readable
from kelpie.world.packages.installer_report import installer_reports
from kelpie.world.packages.installer_settings import COPIES, InstallerSettings, read_settings
from kelpie.world.packages.installers import PIP_VERSION, Installer
from kelpie.world.processes.processes import ProcessResult, SystemProcesses

ROOT = Path(__file__).parents[2]
_PIP_ENV = {"PATH": "/usr/bin", "PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": "http://10.0.0.5/simple"}


class Told:
    """An installer that tells what is set for it."""

    def __init__(self, settings: str) -> None:
        self._settings = settings

    async def run(self, *_: Any, **__: Any) -> ProcessResult:
        return ProcessResult(0, self._settings.encode(), b"")


async def settings(
    installer: Installer, told: str, env: Mapping[str, str], closed: str = "/nowhere"
) -> InstallerSettings:
    return await read_settings(Told(told), installer, env, Path(closed))


def file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.fixture
def index_directory(tmp_path: Path) -> Path:
    """An index in the usual layout, and everything above it open to the user of a cell."""
    (tmp_path / "index/simple").mkdir(parents=True)
    return tmp_path / "index/simple"


async def test_pip_gets_the_values_that_lead_to_its_index_and_copies_of_files(
    tmp_path: Path, index_directory: Path
) -> None:
    certificates = file(tmp_path / "certificates.pem", "CERTIFICATES")
    file(tmp_path / "home/.netrc", "machine pypi.corp login me password word\nmachine other login me password no\n")
    lines = {
        ":env:.index-url": "https://pypi.corp/simple",
        "global.index-url": "https://ignored.corp/simple",
        "global.extra-index-url": f"\nhttps://user:p%40ss@extra.corp/simple\n{index_directory.as_uri()}",
        "global.cert": str(certificates),
        "install.target": "/etc",
        "freeze.timeout": "1",
    }
    told = "\n".join(f"{name}={value!r}" for name, value in lines.items())
    env = {"HOME": str(tmp_path / "home"), "OPENAI_API_KEY": "secret", "PIP_TARGET": "/etc"}
    found = await settings(Installer.pip, told, env)
    assert found.env["PIP_INDEX_URL"] == "https://pypi.corp/simple" and found.env["PIP_CONFIG_FILE"] == "/dev/null"
    assert found.files[found.env["PIP_CERT"]] == "CERTIFICATES" and found.env["PIP_CERT"].startswith(COPIES)
    assert found.shown == (str(index_directory.parent),), "files of an index lie beside its pages"
    assert found.files[found.env["NETRC"]] == "machine pypi.corp login me password word\n"
    assert found.secrets == {"word", "p%40ss", "p@ss"}
    assert {entry.name for entry in found.hosts} == {"pypi.corp", "extra.corp"}
    assert "secret" not in found.env.values() and not {"PIP_TARGET", "PIP_TIMEOUT", "HOME"} & found.env.keys()


async def test_npm_gets_copies_of_its_files_with_the_variables_that_they_name(tmp_path: Path) -> None:
    authority = file(tmp_path / "ca.pem", "AUTHORITY")
    user = file(
        tmp_path / "npmrc",
        f"cafile={authority}\n//npm.corp/:_authToken=${{CORP_TOKEN}}\n@me:registry=https://npm.corp/\n"
        "proxy=http://me:word@10.0.0.1:3128\ncache=${HOME}/x\n",
    )
    told = json.dumps({"userconfig": str(user), "globalconfig": str(tmp_path / "none"), "registry": "https://r.corp/"})
    env = {"CORP_TOKEN": "t0ken", "OTHER_TOKEN": "x", "HOME": "/root", "npm_config_cache": "/c", "npm_config_tag": "x"}
    found = await settings(Installer.npm, told, env)
    text = found.files[found.env["NPM_CONFIG_USERCONFIG"]]
    copy = text.splitlines()[0].removeprefix("cafile=")
    assert found.files[copy] == "AUTHORITY" and "${CORP_TOKEN}" in text and "3128" not in text
    assert found.env["CORP_TOKEN"] == "t0ken" and found.env["npm_config_tag"] == "x"
    assert not {"HOME", "OTHER_TOKEN", "npm_config_cache"} & found.env.keys() and "t0ken" in found.secrets
    assert {entry.name for entry in found.hosts} == {"npm.corp", "r.corp"}


async def test_uv_gets_its_variables_and_a_copy_of_its_file(tmp_path: Path, index_directory: Path) -> None:
    file(tmp_path / "uv/uv.toml", f'[[index]]\nurl = "{index_directory.as_uri()}"\n[pip]\nno-index = true\n')
    (tmp_path / "links").mkdir()
    named = f"corp=file://{tmp_path}/links"
    env = {"XDG_CONFIG_HOME": str(tmp_path), "UV_INDEX_CORP_PASSWORD": "w", "UV_CACHE_DIR": "/c", "UV_INDEX": named}
    found = await settings(Installer.uv, "", env)
    assert "no-index" in found.files[f"{found.env['XDG_CONFIG_HOME']}/uv/uv.toml"]
    assert found.shown == (str(tmp_path / "links"), str(index_directory.parent)) and found.env["UV_INDEX"] == named
    assert "w" in found.secrets and "UV_CACHE_DIR" not in found.env


@pytest.mark.parametrize(
    ("installer", "told", "env"),
    [
        (Installer.pip, "global.proxy='http://10.0.0.1:3128'\n", {}),
        (Installer.npm, '{\n  "https-proxy": "http://10.0.0.1:3128/",\n  "proxy": null\n}', {}),
        (Installer.npm, "{}", {"https_proxy": "http://10.0.0.1:3128"}),
        (Installer.uv, "", {"ALL_PROXY": "10.0.0.1:3128"}),
    ],
)
async def test_an_operator_s_own_proxy_stays_the_way_out(
    installer: Installer, told: str, env: Mapping[str, str]
) -> None:
    found = await settings(installer, told, env)
    proxy = found.upstream.of(ProxyRequest("index.example", 443, tunnel=True))
    assert proxy is not None and (proxy.host, proxy.port) == ("10.0.0.1", 3128)
    assert "10.0.0.1" not in str(found.env) and EgressEntry("10.0.0.1", 3128) not in found.hosts


async def test_a_directory_around_the_server_s_files_is_never_shown(
    tmp_path: Path, index_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = f"global.find-links={str(index_directory)!r}"
    for closed in (index_directory / "data", index_directory, index_directory.parent):
        with pytest.raises(ToolError, match="it names a directory that holds other files too"):
            await settings(Installer.pip, told, {}, str(closed))
    found = await settings(Installer.pip, told, {}, str(index_directory.parent / "data"))
    assert found.shown == (str(index_directory),), "and not the directory around it, which holds the data"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    os.chmod(index_directory, 0o700)  # noqa: PTH101
    with pytest.raises(ToolError, match="let all users read that directory"):
        await settings(Installer.pip, told, {}, str(index_directory.parent / "data"))


async def test_a_file_that_is_set_and_missing_is_told_without_its_path() -> None:
    with pytest.raises(ToolError, match="cert is set for pip on this server and cannot be used") as error:
        await settings(Installer.pip, "global.cert='/secret/place.pem'", {})
    assert "/secret" not in str(error.value)


def test_the_hosts_of_the_operator_s_addresses_are_known() -> None:
    told = """:env:.index-url='https://user:secret@pypi.corp/simple'
global.extra-index-url='http://10.0.0.5:3141/root HTTPS://Mirror.Corp./x file:///opt/simple'
"registry": "http://[fd00::1]:4873/", http://bad:port/ "plain": "text"
"""
    hosts = (("pypi.corp", 443), ("10.0.0.5", 3141), ("mirror.corp", 443), ("fd00::1", 4873))
    assert tuple(named_hosts(told)) == tuple(EgressEntry(*each) for each in hosts)


@pytest.mark.needs("pip")
async def test_the_public_index_may_lie_anywhere(tmp_path: Path) -> None:
    """A network may have a mirror of its own under the names of the public ones."""
    found = await read_settings(SystemProcesses(), Installer.pip, _PIP_ENV, tmp_path)
    hosts = [each.name for each in found.hosts]
    assert hosts.count("10.0.0.5") == 1 and len(hosts) == 3, "where pip looks by itself, and where its files lie"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("WARNING: an index of ours\nERROR: No such version\n", "ERROR: No such version"),
        (
            'ERROR: Exception:\nTraceback (most recent call last):\n  File "/srv/server/x.py", line 1, in f\n    g()\n'
            "PermissionError: [Errno 1] refused: '/srv/data/x y'\n",
            "ERROR: Exception:\nPermissionError: [Errno 1] refused: '(path) y'",
        ),
        ("Looking in links: /opt/wheels, file:///opt/simple/a", "Looking in links: (path), file:(path)"),
        (
            "404 for https://u:w0rd@pypi.corp/simple/a/ (from ../x)",
            "404 for https://u:****@pypi.corp/simple/a/ (from (path))",
        ),
        ("npm error code E1\nnpm error     at f (/usr/x.js:1)\nnpm error\nnpm warn x", "npm error code E1"),
        ("Unix or POSIX, a/b and @scope/name@1 stay", "Unix or POSIX, a/b and @scope/name@1 stay"),
    ],
)
def test_an_error_has_no_paths_tracebacks_or_credentials(said: str, told: str) -> None:
    assert readable(said.encode(), {"w0rd"}) == told


@pytest.mark.parametrize(
    ("packages", "refused"),
    [
        ({"": {"dependencies": {"a": "^1"}}, "node_modules/a": {"resolved": "https://r.corp/a.tgz"}}, []),
        ({"node_modules/a": {}, "node_modules/a/node_modules/b": {"dependencies": {"c": "npm:d@1"}}}, []),
        ({"node_modules/a": {"dependencies": {"b": "file:/srv/b"}}, "node_modules/b": {}}, ["a"]),
        ({"node_modules/@s/a": {"optionalDependencies": {"b": "git+ssh://h/b"}}}, ["@s/a"]),
        ({"node_modules/a": {"link": True, "resolved": "../srv/a"}, "../srv/a": {}}, ["one of the packages"] * 2),
        ({"node_modules/a": {"resolved": "file:../a.tgz"}}, ["one of the packages"]),
    ],
)
def test_the_tree_that_npm_resolved_names_no_paths(packages: Mapping[str, Any], refused: list[str]) -> None:
    assert list(package_installer._elsewhere(packages)) == refused


def test_the_tested_pip_is_pinned_and_an_older_one_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"pip=={PIP_VERSION}" in (ROOT / "constraints.txt").read_text()
    monkeypatch.setattr(installers, "pip_directory", lambda: "/there")
    monkeypatch.setattr(installer_report, "pip_version", lambda: "23.2.1")
    [pip] = [each for each in installer_reports() if each.index == Index.pip]
    assert (pip.installer, pip.version) == ("pip", "23.2.1") and f"pip=={PIP_VERSION}" in (pip.remedy or "")
    monkeypatch.setattr(installer_report, "pip_version", lambda: PIP_VERSION)
    assert installer_reports()[0].remedy is None
    monkeypatch.setattr(installers, "pip_directory", lambda: None)
    monkeypatch.setattr(installers, "_uv", lambda: None)
    assert "neither pip nor uv" in (installer_reports()[0].remedy or "")
