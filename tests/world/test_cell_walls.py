"""What of the host a cell is shown, on machines that are laid out otherwise than this one."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kelpie.core.tools.confinement import Runner
from kelpie.world.cells import mounts as cell_mounts
from kelpie.world.cells.port import CellPlan


@pytest.fixture(autouse=True)
def looked_up_anew() -> Iterator[None]:
    for each in (cell_mounts._host, cell_mounts._found_node):
        each.cache_clear()
    yield
    for each in (cell_mounts._host, cell_mounts._found_node):
        each.cache_clear()


def shown() -> list[str]:
    told = cell_mounts.isolation_options(CellPlan(Runner.python), 3, 4)
    return [told[at + 1] for at, word in enumerate(told) if word in ("--ro-bind", "--bind", "--ro-bind-try")]


def test_a_home_with_programs_in_it_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "base_exec_prefix", str(tmp_path))
    program = tmp_path / "bin" / "node"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    found = shown()
    assert str(program) in found, "only the program itself"
    assert cell_mounts.interpreter() in found or Path(cell_mounts.interpreter()).is_relative_to("/usr")
    assert str(tmp_path) not in found and str(program.parent) not in found


def test_an_installation_of_its_own_is_shown_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "include" / "node").mkdir(parents=True)
    (tmp_path / "bin" / "node").write_text("")
    (tmp_path / "bin" / "node").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert str(tmp_path) in shown()


def test_the_data_of_the_server_is_covered_where_it_lies_below_what_is_shown() -> None:
    told = cell_mounts.isolation_options(CellPlan(Runner.python), 3, 4, ["/usr/local/var/kelpie", "/var/lib/kelpie"])
    covered = [told[at + 1] for at, word in enumerate(told) if word == "--tmpfs"]
    assert "/usr/local/var/kelpie" in covered and "/var/lib/kelpie" not in covered
    assert told.index("/usr/local/var/kelpie") > told.index("/usr")
