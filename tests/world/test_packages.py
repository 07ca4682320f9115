"""Packages on the disk: whole or not there, ordinary files only, bounds. No index is asked."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kelpie.core.errors import ToolError
from kelpie.core.tools.package_requirements import Index, RequiredPackages, needed
from kelpie.world.files import untrusted_tree
from kelpie.world.packages import store as package_store
from kelpie.world.packages.installers import TEMPORARY
from kelpie.world.packages.store import LocalPackages
from kelpie.world.processes.processes import SystemProcesses


class Installer:
    """Stands for pip and npm: puts a file into the directory, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.started: list[RequiredPackages] = []

    async def install(self, wanted: RequiredPackages, into: Path) -> None:
        self.started.append(wanted)
        (into / TEMPORARY).mkdir()
        (into / TEMPORARY / "cache").write_text("large")
        (into / "module.py").write_text("x = 1\n" * 10)
        if self.error is not None:
            raise self.error


def store(directory: Path, error: Exception | None = None) -> LocalPackages:
    return LocalPackages(Installer(error), SystemProcesses(), directory)


def there(place: Path) -> list[str]:
    return sorted(each.name for each in place.iterdir())


def wanted(name: str = "cowsay", index: Index = Index.pip) -> RequiredPackages:
    return needed(index, [{"name": name, "version": "1"}])


async def test_a_set_is_there_when_it_is_whole(tmp_path: Path) -> None:
    shelf = store(tmp_path / "packages")
    assert shelf.find(wanted()) is None
    place = await shelf.install(wanted(), ())
    assert shelf.find(wanted()) == place and there(Path(place)) == ["module.py"], "no cache is left"
    assert there(tmp_path / "packages") == [Path(place).name], "nothing unfinished is left"


@pytest.mark.parametrize("error", [ToolError("No such version"), FileNotFoundError(2, "No such version", "/secret")])
async def test_a_failure_is_told_and_leaves_nothing(tmp_path: Path, error: Exception) -> None:
    shelf = store(tmp_path, error)
    with pytest.raises(ToolError, match=r"No such version$"):
        await shelf.install(wanted(), ())
    assert shelf.find(wanted()) is None and there(tmp_path) == []


async def test_a_set_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_store, "SET_BYTES_MAX", 10)
    with pytest.raises(ToolError, match="the packages are too large"):
        await store(tmp_path).install(wanted(), ())
    assert there(tmp_path) == []


async def test_old_sets_make_room_but_not_those_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_store, "SETS_KEPT", 2)
    shelf = store(tmp_path)
    places: list[str] = []
    for number, name in enumerate("abcd"):
        places.append(await shelf.install(wanted(name), places[:1]))
        os.utime(places[-1], (number, number))
    assert [name for name in "abcd" if shelf.find(wanted(name))] == ["a", "c", "d"]


async def test_sets_that_vanish_meanwhile_are_no_trouble(tmp_path: Path) -> None:
    shelf = store(tmp_path)
    (tmp_path / "gone.part").symlink_to(tmp_path / "nowhere")  # what is listed and then not there
    place = await shelf.install(wanted(), ())
    assert shelf.find(wanted()) == place


def _unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: path.symlink_to("/etc/passwd"), "a symbolic link"),
        (lambda path: path.symlink_to("module.py"), "a symbolic link"),
        (lambda path: path.hardlink_to(path.parent.parent / "canary"), "a hard link"),
        (os.mkfifo, "a device, socket or pipe"),
        (_unix_socket, "a device, socket or pipe"),
    ],
)
def test_a_tree_with_anything_but_ordinary_files_is_not_sealed(
    tmp_path: Path, make: Callable[[Path], None], told: str
) -> None:
    canary, tree = tmp_path / "canary", tmp_path / "t"
    canary.write_text("x")
    canary.chmod(0o600)
    tree.mkdir()
    make(tree / "x")
    with pytest.raises(untrusted_tree.UnusualEntry, match=told):
        untrusted_tree.seal(str(tree), os.geteuid(), os.getegid())
    assert stat.S_IMODE(canary.stat().st_mode) == 0o600


def test_a_sealed_tree_has_ordinary_modes(tmp_path: Path) -> None:
    """Whatever the modes were: also a program that would run as its owner, and a directory closed to its owner."""
    (tmp_path / "t/closed").mkdir(parents=True)
    for name, mode in (("program", 0o6711), ("data", 0o400), ("open", 0o666)):
        (tmp_path / "t/closed" / name).touch()
        (tmp_path / "t/closed" / name).chmod(mode)
    (tmp_path / "t/closed").chmod(0o000)
    untrusted_tree.seal(str(tmp_path / "t"), os.geteuid(), os.getegid())
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "t").rglob("*")}
    assert modes == {"closed": 0o755, "program": 0o755, "data": 0o644, "open": 0o644}
