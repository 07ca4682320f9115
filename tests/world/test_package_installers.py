"""Real pip, uv and npm in their cell: what they install, and that no package reaches anything else with them."""

import asyncio
import base64
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from kelpie.core.errors import ToolError
from kelpie.core.tools.package_requirements import Index, needed
from kelpie.world.cells.bubblewrap import BubblewrapCells
from kelpie.world.cells.mounts import interpreter
from kelpie.world.packages import installer_cell, installers
from kelpie.world.packages.installer_cell import CellInstaller
from kelpie.world.packages.installers import Installer, InstallerProgram
from kelpie.world.packages.store import LocalPackages
from kelpie.world.processes.processes import SystemProcesses
from tests.package_index import Web, archive, wheel

SECRET = "s3cret-of-the-index"


def pip(name: str) -> Any:
    return needed(Index.pip, [{"name": name}])


def npm(name: str) -> Any:
    return needed(Index.npm, [{"name": name}])


def contents(place: str) -> bytes:
    """The names and contents of all files of a set."""
    return b"".join(str(each).encode() + each.read_bytes() for each in sorted(Path(place).rglob("*")) if each.is_file())


def names(place: str | Path) -> list[str]:
    return sorted(each.name for each in Path(place).iterdir())


def assert_nothing_is_left(directory: Path) -> None:
    assert names(directory) == []


def canary(tmp_path: Path) -> Path:
    file = tmp_path / "canary"
    file.write_text("#!/bin/sh\r\n")
    file.chmod(0o600)
    return file


def assert_untouched(file: Path) -> None:
    about = file.stat()
    assert (stat.S_IMODE(about.st_mode), about.st_nlink, file.read_bytes()) == (0o600, 1, b"#!/bin/sh\r\n")


@pytest.mark.needs("pip")
async def test_pip_installs_with_credentials_and_a_proxy_of_the_operator_that_never_reach_a_set(
    index: Web, shelf: LocalPackages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cell has no way to the proxy, and does not know its password: the server asks it for pip."""
    index.authorization = "Basic " + base64.b64encode(f"user:{SECRET}".encode()).decode()
    index.add_wheel("plain", before="http://index.invalid")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://user:{SECRET}@index.invalid/simple")
    monkeypatch.setenv("PIP_TRUSTED_HOST", "index.invalid")
    monkeypatch.setenv("http_proxy", f"http://proxy-user:proxy-word@127.0.0.1:{index.port}")
    place = await shelf.install(pip("plain"), ())
    assert (Path(place) / "plain.py").read_text() == "x = 1\n"
    assert index.asked[-1] == "http://index.invalid/plain-1-py3-none-any.whl"
    credentials = base64.b64encode(b"proxy-user:proxy-word").decode()
    assert {each.get("Proxy-Authorization") for each in index.headers} == {f"Basic {credentials}"}
    assert SECRET.encode() not in contents(place) and b"proxy-word" not in contents(place)


async def _check_source_archive(index: Web, shelf: LocalPackages, tmp_path: Path) -> str:
    """Finding 1: a wheel names a source archive, which unpacks through its own link."""
    outside = tmp_path / "outside"
    outside.mkdir()
    index.add_wheel("linkw", f"Requires-Dist: lk @ {index.address}/lk-1.0.tar.gz")
    index.pages["/lk-1.0.tar.gz"] = archive(
        {"lk-1.0/d/written_by_sdist.txt": "x", "lk-1.0/setup.py": "open('/tmp/ran', 'w')", "lk-1.0/PKG-INFO": ""},
        links=[("lk-1.0/d", str(outside))],
    )
    with pytest.raises(ToolError) as error:
        await shelf.install(pip("linkw"), ())
    assert list(outside.iterdir()) == []
    assert_nothing_is_left(tmp_path / "data/packages")
    assert str(tmp_path) not in str(error.value) and "Traceback" not in str(error.value)
    return str(error.value)


@pytest.mark.needs("pip")
async def test_pip_opens_no_source_archive_that_a_wheel_names(
    index: Web, shelf: LocalPackages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.address}/simple")
    told = await _check_source_archive(index, shelf, tmp_path)
    assert "/lk-1.0.tar.gz" in index.asked and "the address of its source, and not of a wheel: refused" in told


@pytest.mark.needs("pip")
async def test_pip_finds_packages_in_a_directory_and_builds_none_of_them(
    shelf: LocalPackages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wheels only are taken from the index, but a wheel may name another package by its address."""
    directory, source = tmp_path / "index", tmp_path / "index/source"
    source.mkdir(parents=True)
    (source / "pyproject.toml").write_text('[build-system]\nrequires = []\nbuild-backend = "b"\nbackend-path = ["."]\n')
    (source / "b.py").write_text("raise SystemExit('code of a package ran')\n")
    (directory / "plain-1-py3-none-any.whl").write_bytes(wheel("plain"))
    (directory / "sly-1-py3-none-any.whl").write_bytes(wheel("sly", f"Requires-Dist: built @ {source.as_uri()}"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    place = await shelf.install(pip("plain"), ())
    assert names(place) == ["__pycache__", "plain-1.dist-info", "plain.py"], "and nothing temporary"
    with pytest.raises(ToolError, match="the address of its source, and not of a wheel: refused") as error:
        await shelf.install(pip("sly"), ())
    assert "code of a package ran" not in str(error.value) and shelf.find(pip("sly")) is None


@pytest.mark.needs("pip", "node")
def test_the_commands_take_wheels_run_no_scripts_and_end_with_the_names() -> None:
    """A name cannot be an option, whatever it is."""
    for installer in (Installer.pip, Installer.uv):
        [command] = installers.program(installer, pip("cowsay")).commands
        assert list(command)[-2:] == ["--", "cowsay"]
        assert list(command)[command.index("--only-binary") + 1] == ":all:"
    resolve, install = installers.program(Installer.npm, npm("left-pad")).commands
    assert list(resolve)[-2:] == ["--", "left-pad"]
    assert {"--ignore-scripts", "--no-bin-links", "--git=/dev/null"} <= {*resolve} & {*install}


@pytest.mark.needs("pip")
async def test_pip_installs_no_wheel_with_paths_out_of_its_directory(
    index: Web, shelf: LocalPackages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.address}/simple")
    index.add_wheel("climbs", files={f"{'../' * 20}{tmp_path}/written": "x", "climbs-1.data/data/../../../x": "x"})
    with pytest.raises(ToolError, match="pip could not install climbs") as error:
        await shelf.install(pip("climbs"), ())
    assert str(tmp_path) not in str(error.value) and "written" not in names(tmp_path) and "home" not in names(tmp_path)
    assert_nothing_is_left(tmp_path / "data/packages")


async def test_uv_installs_wheels_and_nothing_that_a_source_archive_holds(
    index: Web, shelf: LocalPackages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installers, "pip_directory", lambda: None)
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{index.address}/simple")
    index.add_wheel("plain")
    await _check_source_archive(index, shelf, tmp_path)
    place = await shelf.install(pip("plain"), ())
    assert (Path(place) / "plain.py").read_text() == "x = 1\n"
    assert names(place) == ["plain-1.dist-info", "plain.py"]


@pytest.mark.needs("node")
async def test_npm_installs_with_the_token_of_an_npmrc_and_refuses_a_dependency_by_its_path(
    index: Web, shelf: LocalPackages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 2: a dependency that lies in a workspace has a program that is a link to a file of the server."""
    monkeypatch.setenv("REGISTRY_TOKEN", SECRET)
    home = tmp_path / "home"
    home.mkdir()
    token = f"//127.0.0.1:{index.port}/:_authToken=${{REGISTRY_TOKEN}}"
    (home / ".npmrc").write_text(f"registry={index.address}/\n{token}\nbin-links=true\n")
    index.authorization = f"Bearer {SECRET}"
    index.add_npm("plain", bin={"plain": "package.json"})
    place = await shelf.install(npm("plain"), ())
    assert json.loads((Path(place) / "node_modules/plain/package.json").read_text())["name"] == "plain"
    assert names(f"{place}/node_modules") == ["plain"], "no links to programs"
    assert SECRET.encode() not in contents(place)
    assert names(home) == [".npmrc"], "no cache in the home directory"
    package, file = tmp_path / "data/workspaces/agent-1/p", canary(tmp_path)
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"name": "p", "version": "1.0.0", "bin": {"y": "./run"}}')
    (package / "run").symlink_to(file)
    index.add_npm("sly", dependencies={"p": f"file:{package}"})
    with pytest.raises(ToolError, match="npm could not install sly: sly names a package by a path") as error:
        await shelf.install(npm("sly"), ())
    assert_untouched(file)
    assert str(tmp_path) not in str(error.value) and shelf.find(npm("sly")) is None


# Stands for an installer that a package took over: it tries everything that its system calls offer.
_HOSTILE = """
import json, os, pathlib, socket, sys
def refused(deed):
    try:
        deed()
    except OSError:
        return True
    return False
canary, data = sys.argv[1:]
os.symlink(canary, "link")
told = {
    "read": refused(lambda: open(canary)), "link": refused(lambda: os.link(canary, "hard")),
    "write": refused(lambda: open("link", "w")), "mode": refused(lambda: os.chmod("link", 0o755)),
    "data": refused(lambda: os.listdir(data)),
    "own": refused(lambda: os.link("/run/kelpie/launcher.py", "hard")),
    "device": refused(lambda: os.mknod("device", 0o20666, os.makedev(1, 3))),
    "set_user_id": refused(lambda: os.chmod("package.py", 0o4755)) if open("package.py", "w") else None,
    "shadow": refused(lambda: open("/etc/shadow")),
    "network": refused(lambda: socket.create_connection(("127.0.0.1", PORT_OF_SERVER), 1)),
}
os.unlink("link")
os.chmod("package.py", 0o777)
open("told.json", "w").write(json.dumps(told))
"""


def takes_over(monkeypatch: pytest.MonkeyPatch, *command: str) -> None:
    monkeypatch.setattr(installer_cell, "program", lambda *_: InstallerProgram([[interpreter(), "-I", "-c", *command]]))


@pytest.mark.needs("pip")
async def test_an_installer_that_was_taken_over_changes_only_its_own_set(
    index: Web, shelf: LocalPackages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = canary(tmp_path)
    hostile = _HOSTILE.replace("PORT_OF_SERVER", str(index.port))
    takes_over(monkeypatch, hostile, str(file), str(tmp_path / "data"))
    place = Path(await shelf.install(pip("hostile"), ()))
    told = json.loads((place / "told.json").read_text())
    assert all(told.values()), [name for name, refused in told.items() if not refused]
    assert_untouched(file)
    assert names(place) == ["package.py", "told.json"]
    about = [(place / name).stat() for name in (".", *names(place))]
    assert {each.st_uid for each in about} == {os.geteuid()}
    assert [oct(stat.S_IMODE(each.st_mode)) for each in about] == ["0o755", "0o755", "0o644"]


@pytest.mark.needs("pip")
async def test_a_link_that_an_installer_leaves_is_refused(
    shelf: LocalPackages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes_over(monkeypatch, "import os; os.makedirs('a/b'); os.symlink('/etc/passwd', 'a/b/c')")
    with pytest.raises(ToolError, match="the packages contain a symbolic link, which is refused"):
        await shelf.install(pip("links"), ())
    assert_nothing_is_left(tmp_path / "data/packages")


@pytest.mark.needs("pip")
async def test_an_installer_that_hangs_is_ended(
    shelf: LocalPackages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installer_cell, "INSTALL_S", 0.2)
    takes_over(monkeypatch, "import signal; signal.pause()")
    with pytest.raises(ToolError, match=r"installing hanging with pip took longer than 0\.2 s and was stopped"):
        await shelf.install(pip("hanging"), ())
    assert_nothing_is_left(tmp_path / "data/packages")


@pytest.mark.needs("pip")
async def test_an_installation_that_is_cancelled_leaves_nothing(
    shelf: LocalPackages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes_over(monkeypatch, "import signal; open('begun', 'w').close(); signal.pause()")
    installing = asyncio.create_task(shelf.install(pip("hanging"), ()))
    async with asyncio.timeout(60):
        while not any((tmp_path / "data").glob("packages/*.part/begun")):
            assert not installing.done()
            await asyncio.sleep(0.01)
    installing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await installing
    assert_nothing_is_left(tmp_path / "data/packages")


@pytest.mark.needs("pip")
async def test_an_installer_that_fills_the_disk_is_ended(
    shelf: LocalPackages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installer_cell, "SET_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(installer_cell, "LOOK_S", 0.02)
    endless = "import os, signal; open(os.environ['TMPDIR'] + '/large', 'wb').write(b'x' * (3 << 20)); signal.pause()"
    takes_over(monkeypatch, endless)
    with pytest.raises(ToolError, match="the packages are too large"):
        await shelf.install(pip("large"), ())
    assert_nothing_is_left(tmp_path / "data/packages")


@pytest.mark.needs("pip")
async def test_without_a_sandbox_nothing_is_installed(
    tmp_path: Path, plain_settings: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    installer = CellInstaller(BubblewrapCells(), SystemProcesses(), tmp_path)
    shelf = LocalPackages(installer, SystemProcesses(), tmp_path / "packages")
    with pytest.raises(ToolError, match=r"plain cannot be installed.*bubblewrap is not installed"):
        await shelf.install(pip("plain"), ())
    assert_nothing_is_left(tmp_path / "packages")
