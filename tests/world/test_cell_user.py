"""Who a cell is outside: found by what the server may do, and given what its cells are to use."""

import os
from pathlib import Path

import pytest

from kelpie.core.tools.confinement import Mount
from kelpie.world.cells import users as cell_users
from kelpie.world.cells.users import CELLS, FIRST, WORKSPACES, CellUsers, NoUsers, find, reclaim

ALL = "CapEff:\t000001ffffffffff\n"
EVERYBODY = "         0          0 4294967295\n"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def _proc(directory: Path, status: str = ALL, users: str = EVERYBODY) -> Path:
    (directory / "self").mkdir()
    (directory / "self" / "status").write_text(f"Name:\tpython\n{status}NoNewPrivs:\t0\n")
    for kind in ("uid", "gid"):
        (directory / "self" / f"{kind}_map").write_text(users)
    return directory


@pytest.mark.parametrize(("user", "users"), [(1234, EVERYBODY), (0, "0 100000 65536\n"), (0, "0 1000 1\n1 9 65536\n")])
def test_an_ordinary_user_is_who_its_cells_are(
    user: int, users: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also one that is called root in a namespace of its own."""
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert find([], _proc(tmp_path, users=users)) == NoUsers()


@pytest.mark.parametrize(
    ("status", "users", "seen"),
    [
        ("CapEff:\t00000000a80425fb\n", EVERYBODY, None),  # what a container of Docker has
        ("CapEff:\t00000000a804253b\n", EVERYBODY, "lacks SETGID, SETUID"),
        ("CapEff:\t0000000000000000\n", EVERYBODY, "lacks CHOWN, DAC_OVERRIDE"),
        (ALL, "0 0 65536\n", "user namespace"),
        (ALL, "0 0 1000\n1000 1000 4294966295\n", None),
    ],
)
def test_root_has_users_for_cells_where_it_may(
    status: str, users: str, seen: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = find(["/usr"], _proc(tmp_path, status, users))
    if seen is None:
        assert isinstance(found, CellUsers)
    else:
        assert isinstance(found, NoUsers) and found.seen is not None and seen in found.seen and found.remedy


def test_programs_that_only_root_reads_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    closed = tmp_path / "python"
    closed.mkdir(mode=0o700)
    found = find(["/usr", str(closed)], _proc(tmp_path))
    assert isinstance(found, NoUsers) and str(closed) in str(found.seen) and "chmod" in found.remedy


async def test_cells_without_a_workspace_share_no_user() -> None:
    users = CellUsers()
    found = [await users.of(()) for _ in range(1000)]
    assert len(set(found)) == 1000 and all(each in range(FIRST, FIRST + CELLS) for each in found)


@as_root
async def test_a_workspace_belongs_to_one_user_for_good(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("of the server")
    workspace = tmp_path / "workspaces" / "agent-1"
    (workspace / "deep").mkdir(parents=True, mode=0o700)
    (workspace / "deep" / "note").write_text("from before")
    (workspace / "link").symlink_to(tmp_path / "outside")
    mounts = (Mount(str(workspace), "/workspace", writable=True),)
    user = await CellUsers().of(mounts)
    assert user in range(FIRST + CELLS, FIRST + CELLS + WORKSPACES)
    mine = (workspace, workspace / "deep", workspace / "deep" / "note", workspace / "link")
    assert {each.lstat().st_uid for each in mine} == {each.lstat().st_gid for each in mine} == {user}
    assert (tmp_path / "outside").stat().st_uid == 0, "no link is followed"
    assert await CellUsers().of(mounts) == user, "also after the server started again"
    moved = workspace.rename(tmp_path / "agent-1")
    mounts = (Mount(str(moved), "/workspace", writable=True),)
    assert await CellUsers().of(mounts) == user, "also where it lies elsewhere now"
    await reclaim(mounts)
    assert {moved.lstat().st_uid, (moved / "deep" / "note").lstat().st_uid} == {0}


@as_root
async def test_what_was_given_half_is_given_whole_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "agent-1"
    workspace.mkdir()
    for number in range(5):
        (workspace / f"{number}").write_text("")
    given, mounts = 0, (Mount(str(workspace), "/workspace", writable=True),)
    chown = os.chown

    def failing(*arguments: object, **named: object) -> None:
        nonlocal given
        given += 1
        if given == 3:
            raise OSError(5, "Input/output error")
        chown(*arguments, **named)  # pyright: ignore[reportArgumentType, reportCallIssue]

    with monkeypatch.context() as broken:
        broken.setattr(os, "chown", failing)
        with pytest.raises(OSError, match="Input/output"):
            await CellUsers().of(mounts)
    user = await CellUsers().of(mounts)
    assert {each.stat().st_uid for each in (workspace, *workspace.iterdir())} == {user}


@pytest.mark.parametrize("refusal", [None, PermissionError(1, "Operation not permitted")])
async def test_a_disk_that_keeps_no_owners_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: OSError | None
) -> None:
    def ignored(*_: object, **__: object) -> None:
        if refusal is not None:
            raise refusal

    monkeypatch.setattr(os, "chown", ignored)
    assert await CellUsers().of((Mount(str(tmp_path), "/workspace", writable=True),)) is None


async def test_what_is_only_read_is_opened_and_stays_whose_it_is(tmp_path: Path) -> None:
    packages = tmp_path / "pip-1"
    (packages / "inner").mkdir(parents=True)
    (packages / "inner" / "module.py").write_text("")
    (packages / "program").write_text("")
    (packages / "nowhere").symlink_to("/nowhere")
    for path, mode in (("inner/module.py", 0o600), ("program", 0o700), ("inner", 0o700), (".", 0o700)):
        (packages / path).chmod(mode)
    await CellUsers().of((Mount(str(packages), "/packages"),))
    found = {each: (packages / each).stat().st_mode & 0o777 for each in (".", "inner", "inner/module.py", "program")}
    assert found == {".": 0o755, "inner": 0o755, "inner/module.py": 0o644, "program": 0o755}
    assert packages.stat().st_uid == os.geteuid()


def test_users_of_cells_are_nobody_else() -> None:
    assert FIRST > 0x6FFF_FFFF, "people, services and containers have smaller numbers"
    assert cell_users.FIRST + CELLS + WORKSPACES <= 0x7FFE_0000, "and some programs know no larger ones"
