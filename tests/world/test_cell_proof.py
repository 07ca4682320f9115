"""The walls of cells are tried before they are trusted; what does not hold keeps code from running."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from kelpie.core.errors import SandboxUnavailable
from kelpie.core.tools.confinement import DEFAULT_CONFINEMENT, Mount, Runner
from kelpie.world.cells import launch as cell_launch
from kelpie.world.cells import mounts as cell_mounts
from kelpie.world.cells import self_test
from kelpie.world.cells.bubblewrap import BubblewrapCells
from kelpie.world.cells.port import CellPlan, Order
from kelpie.world.cells.self_test import prove
from kelpie.world.isolation import seccomp
from kelpie.world.isolation.control_group import ControlGroups
from kelpie.world.isolation.control_group_search import NoGroups
from tests.parts import lacks

PYTHON = CellPlan(Runner.python)


def _scratches() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("kelpie-scratch-*"))


async def working() -> BubblewrapCells:
    cells = BubblewrapCells()
    try:
        await (await cells.open(PYTHON)).kill()
    except SandboxUnavailable as error:
        lacks("sandbox", str(error))
    return cells


async def test_a_machine_that_works_proves_it() -> None:
    cells = await working()
    proof = await prove(cells, "x86_64", thoroughly=True)
    assert proof.lacking is None
    found = {each.name: each for each in proof.tried}
    for name in ("the sandbox starts", "no network access", "host files are hidden"):
        assert found[name].works, found[name]
    assert all(each.remedy for each in proof.tried if not each.works)
    assert found["processes are limited"].works or not cells.has_groups
    await cells.close()


async def test_a_wall_that_does_not_hold_keeps_everything_out(monkeypatch: pytest.MonkeyPatch) -> None:
    await working()

    def leaking(
        plan: CellPlan, information: int, filtered: int | None, hidden: Sequence[str], admission: int | None
    ) -> list[str]:
        return [*cell_mounts.isolation_options(plan, information, filtered, hidden, admission), "--share-net"]

    monkeypatch.setattr(cell_launch, "isolation_options", leaking)
    cells = BubblewrapCells()
    proof = await prove(cells, "x86_64")
    assert [each.name for each in proof.tried if not each.works] == ["no network access"]
    with pytest.raises(SandboxUnavailable, match="no network access"):
        await cells.start(PYTHON)
    await cells.close()


async def test_without_bubblewrap_code_is_refused_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxUnavailable, match="Install the package bubblewrap"):
        await BubblewrapCells().start(PYTHON)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("bwrap: No permissions to create new namespace, likely because", "kernel.unprivileged_userns_clone=1"),
        ("bwrap: Creating new namespace failed, likely because", "sysctl user.max_user_namespaces"),
        ("bwrap: unshare user ns: Operation not permitted", "kernel.unprivileged_userns_clone=1"),
        ("bwrap: setting up uid map: Permission denied", "apparmor_restrict_unprivileged_userns=0"),
        ("bwrap: cannot open /proc/sys/user/max_user_namespaces: Read-only file system", "ProtectKernelTunables"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "systempaths=unconfined"),
        ("bwrap: something else", "doctor --isolation"),
    ],
)
async def test_a_bubblewrap_that_fails_is_told_with_its_own_words_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, remedy: str
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text(f'#!/bin/sh\necho "{words}" >&2\nexit 1\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable) as refused:
        await BubblewrapCells().start(PYTHON)
    assert words in str(refused.value) and remedy in str(refused.value)


async def test_what_is_installed_later_counts_without_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    await working()
    cells = BubblewrapCells()
    with monkeypatch.context() as patched:
        patched.setenv("PATH", "/nowhere")
        with pytest.raises(SandboxUnavailable):
            await cells.start(PYTHON)
        assert cells.lacking is not None
    await (await cells.start(PYTHON)).kill()
    assert cells.lacking is None
    await cells.close()


async def test_a_machine_of_an_unknown_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "program", lambda: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxUnavailable):
        await BubblewrapCells().start(PYTHON)


async def test_a_proof_is_kept_until_the_machine_starts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await working()
    kept = tmp_path / "isolation.json"
    first = BubblewrapCells(kept=kept)
    await (await first.start(PYTHON)).kill()
    assert kept.exists()

    async def again(*_: object) -> None:
        raise AssertionError("it was proven already")

    with monkeypatch.context() as patched:
        patched.setattr(self_test, "prove", again)
        second = BubblewrapCells(kept=kept)
        await (await second.start(PYTHON)).kill()
        kept.write_text(kept.read_text().replace('"boot": "', '"boot": "other-'))
        with pytest.raises(AssertionError, match="proven already"):
            await BubblewrapCells(kept=kept).start(PYTHON)
    kept.write_text("{damaged")
    await (await BubblewrapCells(kept=kept).start(PYTHON)).kill()
    assert json.loads(kept.read_text())["user"] >= 0


async def test_only_a_lowered_requirement_runs_code_without_walls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    told: list[str] = []
    cells = BubblewrapCells(lowered=told.append)
    cell = await cells.start(PYTHON)
    await (await cells.start(PYTHON)).kill()
    assert len(told) == 1 and "bubblewrap is not installed" in told[0]
    assert cell.sockets is None
    request = {"source": "import os\ndef tool(): return os.getcwd()", "function": "tool", "arguments": {}}
    await cell.run(Order(json.dumps(request).encode(), DEFAULT_CONFINEMENT))
    result = cell.output().result
    assert result is not None
    scratch = json.loads(result)["value"]
    assert "kelpie-scratch-" in scratch
    await cell.kill()
    assert scratch not in [str(each) for each in _scratches()]
    with pytest.raises(SandboxUnavailable, match="without isolation"):
        await cells.start(CellPlan(Runner.python, (Mount("/usr", "/packages"),)))
    await cells.close()


async def test_where_no_groups_can_be_had_cells_work_and_the_reason_is_told() -> None:
    await working()
    cells = BubblewrapCells(lambda: NoGroups("/sys/fs/cgroup: Read-only file system", "let it be written"))
    assert cells.unbounded is None, "nothing was tried yet"
    await (await cells.start(PYTHON)).kill()
    assert cells.unbounded == ("there are no control groups (/sys/fs/cgroup: Read-only file system); let it be written")
    assert not cells.has_groups and cells.lacking is None
    await cells.close()


async def test_a_place_for_groups_that_was_taken_away_is_looked_for_again(tmp_path: Path) -> None:
    await working()
    gone = ControlGroups([tmp_path / "gone"])
    places = iter([gone, NoGroups("none", "none"), gone, gone])
    cells = BubblewrapCells(lambda: next(places))
    await (await cells.open(PYTHON)).kill()
    cells._groups = None
    with pytest.raises(SandboxUnavailable, match="No such file or directory"):
        await cells.open(PYTHON)
    await cells.close()
