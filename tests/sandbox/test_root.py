"""A server that is root and has no control groups: its cells are users of their own, so what they start is counted."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kelpie.core.errors import SandboxUnavailable
from kelpie.core.tools.confinement import Confinement, Mount, Runner
from kelpie.sandbox.port import JobEnding, JobResult
from kelpie.sandbox.process import ProcessSandbox
from kelpie.world.cells import users as cell_users
from kelpie.world.cells.bubblewrap import BubblewrapCells
from kelpie.world.cells.port import CellPlan
from kelpie.world.cells.self_test import prove
from kelpie.world.cells.users import CellUsers, NoUsers
from kelpie.world.clock import SystemClock
from kelpie.world.isolation.control_group_search import NoGroups
from tests.parts import lacks
from tests.sandbox.jobs import FORKS, function, script

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has users to give to its cells")
PLAN, LIMIT = CellPlan(Runner.command), 40
BOMB = """
import os
told = False
while True:
    try:
        os.fork()
    except OSError:
        try:
            told = told or os.close(os.open("/data/full", os.O_WRONLY | os.O_NONBLOCK)) is None
        except OSError:
            told = True
"""


@pytest.fixture
async def root(tmp_path: Path) -> AsyncIterator[BubblewrapCells]:
    """Cells of root without groups."""
    cells = BubblewrapCells(lambda: NoGroups("none are wanted", "none"), kept=tmp_path / "kept" / "isolation.json")
    (tmp_path / "kept").mkdir()
    if isinstance(cells.users, NoUsers):
        pytest.skip(str(cells.users.seen))
    try:
        await (await cells.start(PLAN)).kill()
    except SandboxUnavailable as error:
        lacks("sandbox", str(error))
    assert isinstance(cells.users, CellUsers), cells.users  # this machine has what it takes, so it must have worked
    yield cells
    await cells.close()


@pytest.fixture
async def sandbox(root: BubblewrapCells) -> AsyncIterator[ProcessSandbox]:
    found = ProcessSandbox(root, SystemClock())
    yield found
    await found.close()


def value(ended: JobResult) -> object:
    assert ended.result is not None, ended
    return json.loads(ended.result)["value"]


def status_of(process: int) -> str:
    return Path(f"/proc/{process}/status").read_text()


def processes_of(user: int) -> int:
    """How many processes a user has on this machine."""
    count = 0
    for each in Path("/proc").glob("[0-9]*"):
        try:
            count += each.stat().st_uid == user
        except OSError:
            continue  # it ended meanwhile
    return count


async def test_a_fork_bomb_is_bounded_and_hinders_nobody(sandbox: ProcessSandbox, tmp_path: Path) -> None:
    data, full = tmp_path / "data", asyncio.Event()
    data.mkdir()
    os.mkfifo(data / "full")
    door = os.open(data / "full", os.O_RDONLY | os.O_NONBLOCK)
    asyncio.get_running_loop().add_reader(door, full.set)
    mounts = (Mount(str(data), "/data", writable=True),)
    bomb = asyncio.create_task(sandbox.run(script(BOMB, Confinement(wall_s=2, processes=LIMIT), mounts)))
    async with asyncio.timeout(30):
        await full.wait()
    asyncio.get_running_loop().remove_reader(door)
    os.close(door)
    user = data.stat().st_uid
    seen = [processes_of(user)]
    while not bomb.done():
        seen.append(await asyncio.to_thread(processes_of, user))
        beside = await sandbox.run(function(FORKS, most=Confinement(processes=LIMIT)))
        assert value(beside) == LIMIT - 1, "a neighbour has all of its own"
    assert (await bomb).how is JobEnding.timed_out
    assert LIMIT // 2 < max(seen) <= LIMIT
    assert processes_of(user) == 0, "all of it is gone"
    assert value(await sandbox.run(function("def tool(): return 1"))) == 1


async def test_cells_are_nobody_on_the_host(root: BubblewrapCells) -> None:
    cells = [await root.open(PLAN) for _ in range(3)]
    try:
        seen = [status_of(cell._runner) for cell in cells]
        users = [cell.user for cell in cells]
        assert len(set(users)) == 3 and None not in users
        for user, status in zip(users, seen, strict=True):
            assert f"Uid:\t{user}\t{user}\t{user}\t{user}\n" in status
            assert f"Gid:\t{user}\t{user}\t{user}\t{user}\n" in status
            assert "Groups:\t \n" in status
            for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb"):
                assert f"Cap{kind}:\t{0:016x}\n" in status
    finally:
        for cell in cells:
            await cell.kill()


async def test_files_of_root_are_closed_even_where_they_are_mounted(sandbox: ProcessSandbox, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.mkdir(mode=0o755)
    shown.chmod(0o755)
    (shown / "secret").write_text("of root")
    (shown / "secret").chmod(0o600)
    mounts = (Mount(str(shown), "/shown"),)
    ended = await sandbox.run(script("open('/shown/secret')", mounts=mounts))
    assert b"PermissionError" in ended.stderr


async def test_streams_scratch_and_shared_memory_can_be_used_by_their_names(sandbox: ProcessSandbox) -> None:
    source = """
import os
for path in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
    with open(path, "a") as out: out.write("out ")
for path in ("/tmp/file", "/dev/shm/file"):
    with open(path, "w") as file: file.write("x")
print(os.stat("/tmp/file").st_uid, os.getuid())
"""
    ended = await sandbox.run(script(source))
    assert ended.stdout == b"out out out 1000 1000\n", ended


async def test_a_workspace_from_the_time_when_cells_were_root_goes_on(
    root: BubblewrapCells, sandbox: ProcessSandbox, tmp_path: Path
) -> None:
    workspace = tmp_path / "workspace"
    (workspace / "deep").mkdir(parents=True, mode=0o700)
    (workspace / "deep" / "note").write_text("before, ")
    mounts = (Mount(str(workspace), "/data", writable=True),)
    append = "with open('/data/deep/note', 'a') as note: note.write('now, ')"
    assert (await sandbox.run(script(append, mounts=mounts))).code == 0
    assert (await sandbox.run(script(append, mounts=mounts))).code == 0
    lessened = BubblewrapCells(users=lambda _: NoUsers("it was taken away"))
    without = ProcessSandbox(lessened, SystemClock())
    try:
        assert (await without.run(script(append, mounts=mounts))).code == 0, "nor does it end with these users"
    finally:
        await without.close()
    assert (workspace / "deep" / "note").read_text() == "before, now, now, now, "


async def test_a_workspace_on_a_disk_without_owners_goes_on(
    sandbox: ProcessSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir(mode=0o700)
    monkeypatch.setattr(os, "chown", lambda *_, **__: None)
    mounts = (Mount(str(workspace), "/data", writable=True),)
    assert (await sandbox.run(script("open('/data/note', 'w').write('written')", mounts=mounts))).code == 0
    assert (workspace / "note").read_text() == "written"


async def test_where_nobody_can_be_admitted_cells_are_as_before_and_that_is_told(
    root: BubblewrapCells, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(process: int, user: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(cell_users, "admit", refused)
    with pytest.raises(SandboxUnavailable, match="cannot be mapped"):
        await root.open(PLAN)
    assert isinstance(root.users, CellUsers), "what held once is never given up"
    later = BubblewrapCells()
    proof = await prove(later, "x86_64")
    assert proof.lacking is None
    (told,) = [each for each in proof.tried if each.name == "runs as an unprivileged user on the host"]
    assert not told.works and "cannot be mapped" in told.seen and told.remedy
    await later.close()


async def test_who_does_not_become_the_user_it_should_is_not_let_in(
    root: BubblewrapCells, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit = cell_users.admit
    monkeypatch.setattr(cell_users, "admit", lambda process, user: admit(process, user + 1))
    with pytest.raises(SandboxUnavailable, match="did not switch to its own user"):
        await root.open(PLAN)
