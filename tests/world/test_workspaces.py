"""Directories that somebody else filled: measured to the last byte and removed to the last entry, whatever they are."""

import asyncio
import os
import resource
import stat
from pathlib import Path

import pytest

from kelpie.core.ids import AgentId
from kelpie.world.files.untrusted_tree import measure, remove
from kelpie.world.files.workspaces import DirectoryWorkspaces

ANN = AgentId("agent-00000000-0000-4000-8000-000000000001")


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _descend(top: Path, name: str, levels: int) -> int:
    """Makes directories within directories and gives a descriptor of the lowest."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    return here


def _put(directory: int, name: str, size: int) -> None:
    file = os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=directory)
    os.write(file, b"x" * size)
    os.close(file)
    os.close(directory)


@pytest.mark.parametrize(("name", "levels"), [("d" * 200, 60), ("d", 1200)])
def test_no_depth_hides_anything_or_stays(tmp_path: Path, name: str, levels: int) -> None:
    """Paths longer than the kernel takes, and more levels than a recursion or a table of descriptors has."""
    top = tmp_path / "top"
    top.mkdir()
    _put(_descend(top, name, levels), "file", 3_000_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = _descriptors()
    resource.setrlimit(resource.RLIMIT_NOFILE, (held + 60, hard))
    try:
        size, entries = measure(str(top), 10_000)
        assert size >= 3_000_000 and entries == levels + 1
        remove(str(top))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not top.exists() and _descriptors() == held


def test_a_count_ends_when_it_is_too_much(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / str(number)).mkdir()
    assert measure(str(tmp_path), 10)[1] == 30
    assert measure(str(tmp_path / "nothing"), 10) == (0, 0)
    remove(str(tmp_path / "nothing"))


def test_links_are_removed_and_never_followed(tmp_path: Path) -> None:
    kept, top = tmp_path / "kept", tmp_path / "top"
    kept.mkdir(mode=0o755)
    (kept / "file").write_text("x" * 100_000)
    (top / "in").mkdir(parents=True)
    (top / "link").symlink_to(kept)
    (top / "in" / "link").symlink_to(kept)
    (top / "in" / "gone").symlink_to("nowhere")
    assert measure(str(top), 100)[0] < 100_000
    remove(str(top))
    assert not top.exists() and (kept / "file").exists() and stat.S_IMODE(kept.stat().st_mode) == 0o755
    top.symlink_to(kept)
    remove(str(top))
    assert (kept / "file").exists() and stat.S_IMODE(kept.stat().st_mode) == 0o755


def test_closed_directories_are_opened(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "file").write_text("x" * 100_000)
    for path in (top / "a" / "b", top / "a", top):
        path.chmod(0)
    assert measure(str(top), 100)[0] >= 100_000
    remove(str(top))
    assert not top.exists()


def test_nobody_else_gets_to_an_open_workspace(tmp_path: Path) -> None:
    """Its agent's code owns the directory and can open it for everybody; not the one above."""
    tmp_path.chmod(0o755)
    workspaces = DirectoryWorkspaces(tmp_path)
    for _ in range(2):
        place = Path(asyncio.run(workspaces.directory(ANN)))
        place.chmod(0o777)
        assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
        place.parent.chmod(0o755)  # as one of an earlier version
    size = asyncio.run(workspaces.size(ANN))
    assert size.free_bytes is not None and size.free_bytes > 0
