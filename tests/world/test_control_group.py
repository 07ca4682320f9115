"""Control groups of both kinds, on directories that stand for the kernel's."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from kelpie.core.confinement import MEGABYTE, Confinement
from kelpie.world.control_group import OWN_PROCESSES, PREFIX, ControlGroups, Group, find

MOST = Confinement(memory_bytes=64 * MEGABYTE, processes=7, cpu_share=0.5)


def proc(tmp_path: Path, mounts: str, groups: str) -> Path:
    found = tmp_path / "proc"
    (found / "self").mkdir(parents=True)
    (found / "self/mounts").write_text(mounts)
    (found / "self/cgroup").write_text(groups)
    return found


def unified(tmp_path: Path, controllers: str) -> tuple[Path, Path]:
    """A hierarchy in which this process is in the group `kelpie.service`."""
    top = tmp_path / "cgroup"
    own = top / "kelpie.service"
    (own / f"{PREFIX}{os.getpid()}").mkdir(parents=True)
    for name, text in (
        ("cgroup.controllers", controllers),
        ("cgroup.subtree_control", ""),
        ("cgroup.procs", "41\n42\n"),
    ):
        (own / name).write_text(text)
    return own, proc(tmp_path, f"cgroup2 {top} cgroup2 rw 0 0\n", "0::/kelpie.service\n")


def test_a_delegated_group_is_divided_with_our_processes_in_a_leaf(tmp_path: Path) -> None:
    own, where = unified(tmp_path, "cpu memory pids")
    groups = find(where)
    assert groups is not None
    assert (own / "server/cgroup.procs").read_text() == "42", "every process went into the leaf, one write each"
    assert (own / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    group = groups.make("cell-1")
    assert group.entries() == [str(own / f"{PREFIX}{os.getpid()}/cell-1/cgroup.procs")]
    assert group.remove() and group.remove()


def test_a_group_without_controllers_is_none(tmp_path: Path) -> None:
    _, where = unified(tmp_path, "cpu")
    assert find(where) is None


def test_a_machine_without_any_has_none(tmp_path: Path) -> None:
    assert find(proc(tmp_path, "proc /proc proc rw 0 0\n", "")) is None


def test_the_older_kind_has_a_directory_for_each_controller(tmp_path: Path) -> None:
    mounts, groups = "", ""
    for number, name in enumerate(("memory", "pids", "cpu", "cpuset")):
        (tmp_path / "cgroup" / name / "ours").mkdir(parents=True)
        mounts += f"cgroup {tmp_path}/cgroup/{name} cgroup rw,{name} 0 0\n"
        groups += f"{number}:{name}:/ours\n"
    old = tmp_path / f"cgroup/memory/ours/{PREFIX}4000000/cell-9"
    old.mkdir(parents=True)
    found = find(proc(tmp_path, mounts, groups))
    assert found is not None and not old.parent.exists(), "what an earlier life left is removed"
    group = found.make("cell-1")
    assert [Path(each).parts[-5] for each in group.entries()] == ["memory", "pids", "cpu"]
    found.close()


def test_limits_are_written_where_the_kernel_has_them(tmp_path: Path) -> None:
    names = ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max", "cgroup.kill")
    for name in names:
        (tmp_path / name).write_text("")
    group = Group((tmp_path,))
    group.limit(MOST)
    written = {name: (tmp_path / name).read_text() for name in names}
    assert written == {
        "memory.max": str(64 * MEGABYTE), "memory.swap.max": "0", "memory.oom.group": "1", "cgroup.kill": "",
        "pids.max": str(7 + OWN_PROCESSES), "cpu.max": "50000 100000",
    }  # fmt: skip
    group.lift()
    group.kill()
    assert (tmp_path / "cpu.max").read_text() == "max 100000" and (tmp_path / "cgroup.kill").read_text() == "1"
    assert not (tmp_path / "memory.limit_in_bytes").exists()


def test_what_it_used_is_read_from_either_kind(tmp_path: Path) -> None:
    group = Group((tmp_path,))
    assert (group.cpu_us(), group.memory_peak_bytes(), group.ran_out_of_memory()) == (0, 0, False)
    (tmp_path / "cpu.stat").write_text("usage_usec 1500\nuser_usec 1000\n")
    (tmp_path / "memory.peak").write_text("4096\n")
    (tmp_path / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    assert (group.cpu_us(), group.memory_peak_bytes(), group.ran_out_of_memory()) == (1500, 4096, True)
    (tmp_path / "cpuacct.usage").write_text("2500000\n")
    assert group.cpu_us() == 2500


def test_a_process_that_ended_by_itself_is_no_trouble(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        (tmp_path / "cgroup.procs").write_text(f"4194304\n{process.pid}\n")  # the first is beyond every process number
        Group((tmp_path,)).kill_each()
        assert process.wait() == -signal.SIGKILL


def test_a_group_that_cannot_be_made_in_full_is_not_made(tmp_path: Path) -> None:
    memory, pids = tmp_path / "memory", tmp_path / "pids"
    memory.mkdir()
    with pytest.raises(FileNotFoundError):
        ControlGroups([memory, pids]).make("cell-1")
    assert not list(memory.iterdir())
