"""Packages on the disk: whole or not there, the installer's environment, bounds. No index is asked."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kelpie.core.errors import ToolError
from kelpie.core.requirements import Index, Needed, needed
from kelpie.world import packages
from kelpie.world.packages import LocalPackages
from kelpie.world.processes import Finished


class Installer:
    """Stands for pip and npm: puts a file where it is told to, and says how it ended."""

    def __init__(self, done: Finished | OSError | None = None) -> None:
        self.done = done or Finished(0, b"", b"")
        self.started: list[tuple[Sequence[str], Mapping[str, str]]] = []

    async def run(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **_: Any) -> Finished:
        self.started.append((argv, env or {}))
        if isinstance(self.done, OSError):
            raise self.done
        fill(argv[argv.index("--target" if "--target" in argv else "--prefix") + 1])
        return self.done


def fill(place: str) -> None:
    Path(place, "module.py").write_text("x = 1\n" * 10)


def there(place: Path) -> list[str]:
    return sorted(each.name for each in place.iterdir())


def wanted(name: str = "cowsay", index: Index = Index.pip) -> Needed:
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
        (Finished(1, b"", b"WARNING: an index of ours\nERROR: No such version"), r"cowsay==1: ERROR: No such version$"),
        (Finished(-9, b"", b"", timed_out=True), "took longer than 300 s"),
        (FileNotFoundError(2, "No such file or directory"), "No such file"),
    ],
)
async def test_a_failure_is_told_and_leaves_nothing(tmp_path: Path, done: Finished | OSError, told: str) -> None:
    shelf = LocalPackages(Installer(done), tmp_path)
    with pytest.raises(ToolError, match=told):
        await shelf.install(wanted(), ())
    assert shelf.find(wanted()) is None and there(tmp_path) == []


async def test_a_set_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "SET_BYTES_MAX", 10)
    with pytest.raises(ToolError, match="may take"):
        await LocalPackages(Installer(), tmp_path).install(wanted(), ())
    assert there(tmp_path) == []


async def test_old_sets_make_room_but_not_those_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "SETS_KEPT", 2)
    shelf = LocalPackages(Installer(), tmp_path)
    places: list[str] = []
    for number, name in enumerate("abcd"):
        places.append(await shelf.install(wanted(name), places[:1]))
        os.utime(places[-1], (number, number))
    assert [name for name in "abcd" if shelf.find(wanted(name))] == ["a", "c", "d"]
