"""Where groups can be made: on directories that stand for the kernel's, which hold no process and refuse nothing."""

import errno
import os
from pathlib import Path

import pytest

from kelpie.world.isolation import control_group_search as room
from kelpie.world.isolation.control_group import ControlGroups, Group
from kelpie.world.isolation.control_group_search import LEAF, PREFIX, NoGroups, find

KIN = f"{PREFIX}ns{Path('/proc/self/ns/pid').stat().st_ino}-"
OURS = f"{KIN}{os.getpid()}"


@pytest.fixture(autouse=True)
def limits_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel puts these files into every new group; a directory has none."""
    made = ControlGroups.make

    def make(self: ControlGroups, name: str) -> Group:
        group = made(self, name)
        for directory in group.directories:
            for file in ("memory.max", "pids.max", "cgroup.procs"):
                (directory / file).write_text("")
        return group

    def remove(self: Group) -> bool:
        for directory in self.directories:
            for file in directory.glob("*.*"):
                file.unlink()
            if directory.exists():
                directory.rmdir()
        return True

    monkeypatch.setattr(ControlGroups, "make", make)
    monkeypatch.setattr(Group, "remove", remove)


def proc(tmp_path: Path, mounts: str, groups: str) -> Path:
    found = tmp_path / "proc"
    (found / "self").mkdir(parents=True)
    (found / "self/mounts").write_text(mounts)
    (found / "self/cgroup").write_text(groups)
    return found


def laid(place: Path, controllers: str, *, divided: str = "", processes: str = "") -> Path:
    (place / OURS).mkdir(parents=True)
    for name, text in (("controllers", controllers), ("subtree_control", divided), ("procs", processes)):
        (place / f"cgroup.{name}").write_text(text)
    (place / OURS / "cgroup.controllers").write_text(divided or controllers)
    return place


def unified(tmp_path: Path, controllers: str, processes: str = "41\n42\n") -> tuple[Path, Path]:
    """A hierarchy in which this process is in the group `kelpie.service`."""
    own = laid(tmp_path / "cgroup/kelpie.service", controllers, processes=processes)
    return own, proc(tmp_path, f"cgroup2 {own.parent} cgroup2 rw 0 0\n", "0::/kelpie.service\n")


def place(found: ControlGroups | NoGroups) -> Path:
    assert isinstance(found, ControlGroups), found
    return found.tops[0].parent


def test_one_s_own_group_is_divided(tmp_path: Path) -> None:
    own, where = unified(tmp_path, "cpu memory pids")
    assert place(find(where)) == own
    assert (own / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    assert (own / OURS / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"


def test_a_controller_that_nobody_gave_us_is_not_asked_for(tmp_path: Path) -> None:
    own, where = unified(tmp_path, "memory pids")
    assert place(find(where)) == own
    assert (own / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_processes_in_the_way_go_into_a_leaf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, where = unified(tmp_path, "memory pids")
    written, write = list[str](), Path.write_text

    def busy(self: Path, data: str) -> int:
        """The kernel refuses to divide a group that holds processes."""
        if self.name == "cgroup.subtree_control" and self.parent == own and not (own / LEAF).exists():
            raise OSError(errno.EBUSY, "busy")
        if self.parent.name == LEAF:
            written.append(data)
            if data == "41":
                raise ProcessLookupError(errno.ESRCH, "gone meanwhile")
        return write(self, data)

    monkeypatch.setattr(Path, "write_text", busy)
    assert place(find(where)) == own
    assert written == ["41", "42"], "every process went into the leaf, one write each"
    monkeypatch.setattr(room, "MOVES_MAX", 0)
    (own / "cgroup.subtree_control").unlink()
    assert isinstance(find(where), NoGroups), "others that keep coming do not keep us for ever"


def test_who_looks_again_from_the_leaf_finds_the_same_place(tmp_path: Path) -> None:
    own = laid(tmp_path / "cgroup/kelpie.service", "memory pids", divided="memory pids")
    laid(own / LEAF, "memory pids", processes=f"{os.getpid()}\n")
    where = proc(tmp_path, f"cgroup2 {own.parent} cgroup2 rw 0 0\n", f"0::/kelpie.service/{LEAF}\n")
    assert place(find(where)) == own and (own / LEAF / "cgroup.subtree_control").read_text() == ""


def test_a_group_above_that_is_divided_already_comes_first_unless_ours_was_given_to_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, where = unified(tmp_path, "cpu memory pids")
    above = laid(own.parent, "cpu memory pids", divided="memory pids")
    assert place(find(where)) == above
    assert not (own / LEAF).exists() and (own / "cgroup.subtree_control").read_text() == ""
    given = {(own, "user.delegate"): b"1"}

    def attribute(path: Path, name: str) -> bytes:
        """Files of other kinds refuse such attributes, so systemd's mark is told here."""
        if (path, name) in given:
            return given[path, name]
        raise OSError(errno.ENODATA, "none")

    monkeypatch.setattr(os, "getxattr", attribute)
    assert place(find(where)) == own


def test_a_group_without_controllers_is_none(tmp_path: Path) -> None:
    own, where = unified(tmp_path, "cpu")
    found = find(where)
    assert isinstance(found, NoGroups)
    assert found.seen == f"{own}: it lacks memory and pids" and "cgroup_enable=memory" in found.remedy


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.EROFS, "writable-cgroups=true"), (errno.EACCES, "systemd-run --user --scope")]
)
def test_what_the_kernel_refuses_comes_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    _, where = unified(tmp_path, "cpu memory pids")

    def refuse(self: Path, mode: int = 0, parents: bool = False, exist_ok: bool = False) -> None:
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    found = find(where)
    assert isinstance(found, NoGroups) and remedy in found.remedy and os.strerror(number) in found.seen
    assert len(found.remedy) <= 200, "the doctor shows all of it"


def test_a_group_that_nobody_can_enter_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, where = unified(tmp_path, "cpu memory pids")
    monkeypatch.setattr(Group, "entering", lambda *_: ["/bin/false"])
    found = find(where)
    assert isinstance(found, NoGroups) and "no process may enter" in found.seen


def test_a_machine_without_any_has_none(tmp_path: Path) -> None:
    found = find(proc(tmp_path, "proc /proc proc rw 0 0\n", ""))
    assert isinstance(found, NoGroups) and "mounted" in found.seen
    assert isinstance(find(tmp_path / "nowhere"), NoGroups)


def test_the_older_kind_has_a_directory_for_each_hierarchy(tmp_path: Path) -> None:
    mounts, groups = "", ""
    for number, name in enumerate(("memory", "pids", "cpu,cpuacct", "cpuset")):
        (tmp_path / "cgroup" / name / "ours").mkdir(parents=True)
        mounts += f"cgroup {tmp_path}/cgroup/{name} cgroup rw,{name} 0 0\n"
        groups += f"{number}:{name}:/ours\n"
    old = tmp_path / f"cgroup/memory/ours/{KIN}4000000/cell-9"
    elsewhere = tmp_path / f"cgroup/memory/ours/{PREFIX}ns1-4000000/cell-9"
    old.mkdir(parents=True)
    elsewhere.mkdir(parents=True)
    found = find(proc(tmp_path, mounts, groups))
    assert isinstance(found, ControlGroups) and not old.parent.exists(), "what an earlier life left is removed"
    assert elsewhere.exists(), "whose processes we cannot see may be alive"
    group = found.make("cell-1")
    assert [each.parts[-4] for each in group.directories] == ["memory", "pids", "cpu,cpuacct"], "each of them once"
