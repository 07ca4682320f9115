"""Packages on the disk: whole or not there, the installer's environment, bounds. No index is asked."""

import os
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kelpie.core.errors import ToolError
from kelpie.core.tools.package_requirements import Index, RequiredPackages, needed
from kelpie.world.packages import store as package_store
from kelpie.world.packages.installers import TEMPORARY
from kelpie.world.packages.store import LocalPackages
from kelpie.world.processes.processes import ProcessResult, SystemProcesses


class Installer:
    """Stands for pip and npm: puts a file where it is told to, and says how it ended."""

    settings = b""

    def __init__(self, done: ProcessResult | OSError | None = None) -> None:
        self.done = done or ProcessResult(0, b"", b"")
        self.started: list[tuple[Sequence[str], Mapping[str, str]]] = []

    async def run(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **_: Any) -> ProcessResult:
        if "config" in argv:
            return ProcessResult(0, self.settings, b"")
        self.started.append((argv, env or {}))
        if isinstance(self.done, OSError):
            raise self.done
        fill(argv[argv.index("--target" if "--target" in argv else "--prefix") + 1])
        return self.done


def fill(place: str) -> None:
    Path(place, "module.py").write_text("x = 1\n" * 10)


def there(place: Path) -> list[str]:
    return sorted(each.name for each in place.iterdir())


def wanted(name: str = "cowsay", index: Index = Index.pip) -> RequiredPackages:
    return needed(index, [{"name": name, "version": "1"}])


async def test_a_set_is_there_when_it_is_whole(tmp_path: Path) -> None:
    installer = Installer()
    shelf = LocalPackages(installer, tmp_path / "packages")
    assert shelf.find(wanted()) is None
    place = await shelf.install(wanted(), ())
    assert shelf.find(wanted()) == place and there(Path(place)) == ["module.py"]
    assert there(tmp_path / "packages") == [Path(place).name], "nothing unfinished is left"
    (argv, _) = installer.started[0]
    assert list(argv)[-2:] == ["--", "cowsay==1"] and ":all:" in argv, (
        "wheels only, and nothing that could be an option"
    )
    await shelf.install(wanted("left-pad", Index.npm), ())
    assert "--ignore-scripts" in installer.started[1][0] and installer.started[1][0][-1] == "left-pad@1"


async def test_the_installer_knows_nothing_of_the_servers_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "KELPIE_SERVER_PASSWORD", "LETTA_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example")
    installer = Installer()
    await LocalPackages(installer, tmp_path).install(wanted(), ())
    env = installer.started[0][1]
    assert "secret" not in env.values() and env["PIP_INDEX_URL"] == "https://index.example" and env["PATH"]


@pytest.mark.parametrize(
    ("done", "told"),
    [
        (
            ProcessResult(1, b"", b"WARNING: an index of ours\nERROR: No such version"),
            r"cowsay==1: ERROR: No such version$",
        ),
        (ProcessResult(-9, b"", b"", timed_out=True), "took longer than 300 s"),
        (FileNotFoundError(2, "No such file or directory"), "No such file"),
    ],
)
async def test_a_failure_is_told_and_leaves_nothing(tmp_path: Path, done: ProcessResult | OSError, told: str) -> None:
    shelf = LocalPackages(Installer(done), tmp_path)
    with pytest.raises(ToolError, match=told):
        await shelf.install(wanted(), ())
    assert shelf.find(wanted()) is None and there(tmp_path) == []


async def test_a_set_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_store, "SET_BYTES_MAX", 10)
    with pytest.raises(ToolError, match="the packages are too large"):
        await LocalPackages(Installer(), tmp_path).install(wanted(), ())
    assert there(tmp_path) == []


async def test_old_sets_make_room_but_not_those_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_store, "SETS_KEPT", 2)
    shelf = LocalPackages(Installer(), tmp_path)
    places: list[str] = []
    for number, name in enumerate("abcd"):
        places.append(await shelf.install(wanted(name), places[:1]))
        os.utime(places[-1], (number, number))
    assert [name for name in "abcd" if shelf.find(wanted(name))] == ["a", "c", "d"]


async def test_what_unpacks_into_too_much_is_ended_before_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_store, "SET_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(package_store, "LOOK_S", 0.02)
    endless = "import os, time\nopen(os.environ['TMPDIR'] + '/large', 'w').write('x' * (3 << 20))\ntime.sleep(60)"
    monkeypatch.setattr(package_store, "command", lambda *_: [sys.executable, "-c", endless])
    with pytest.raises(ToolError, match="the packages are too large"):
        await LocalPackages(SystemProcesses(), tmp_path).install(wanted(), ())
    assert there(tmp_path) == []


async def test_sets_that_vanish_meanwhile_are_no_trouble(tmp_path: Path) -> None:
    shelf = LocalPackages(Installer(), tmp_path)
    (tmp_path / "gone.part").symlink_to(tmp_path / "nowhere")  # what is listed and then not there
    place = await shelf.install(wanted(), ())
    assert shelf.find(wanted()) == place


def _wheel(path: Path, name: str, *metadata: str) -> None:
    with zipfile.ZipFile(path / f"{name}-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "x = 1\n")
        told = "\n".join(("Metadata-Version: 2.1", f"Name: {name}", "Version: 1", *metadata, ""))
        wheel.writestr(f"{name}-1.dist-info/METADATA", told)
        wheel.writestr(f"{name}-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}-1.dist-info/RECORD", "")


@pytest.mark.needs("pip")
async def test_a_package_that_names_a_source_by_its_address_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wheels only are taken from the index, but a wheel may name another package by its address."""
    index, source = tmp_path / "index", tmp_path / "source"
    index.mkdir()
    source.mkdir()
    (source / "pyproject.toml").write_text('[build-system]\nrequires = []\nbuild-backend = "b"\nbackend-path = ["."]\n')
    (source / "b.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    _wheel(index, "plain")
    _wheel(index, "sly", f"Requires-Dist: built @ {source.as_uri()}")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    shelf = LocalPackages(SystemProcesses(), tmp_path / "packages")
    place = await shelf.install(wanted("plain"), ())
    assert (Path(place) / "plain.py").is_file() and not (Path(place) / TEMPORARY).exists()
    with pytest.raises(ToolError, match="would have to be built"):
        await shelf.install(wanted("sly"), ())
    assert not (tmp_path / "ran").exists() and shelf.find(wanted("sly")) is None
