"""Limits of control groups of both kinds, on directories that stand for the kernel's."""

import signal
import subprocess
from pathlib import Path

import pytest

from kelpie.core.tools.confinement import MEGABYTE, Confinement
from kelpie.world.isolation.control_group import OWN_PROCESSES, ControlGroups, Group

MOST = Confinement(memory_bytes=64 * MEGABYTE, processes=7, cpu_share=0.5)


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


def test_a_limit_that_matters_and_is_not_there_is_an_error(tmp_path: Path) -> None:
    group = Group((tmp_path,))
    with pytest.raises(OSError, match="no limits for memory and processes"):
        group.limit(MOST)
    (tmp_path / "memory.max").write_text("")
    with pytest.raises(OSError, match="no limits for memory and processes"):
        group.limit(MOST)
    (tmp_path / "pids.max").write_text("")
    group.limit(MOST)
    group.lift()
    group.kill()


def test_one_that_wanted_more_of_the_processor_is_told(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 9\nnr_periods 3\nnr_throttled 0\n")
    assert not Group((tmp_path,)).was_throttled()
    (tmp_path / "cpu.stat").write_text("usage_usec 9\nnr_periods 3\nnr_throttled 2\n")
    assert Group((tmp_path,)).was_throttled()


def test_a_process_that_ended_by_itself_is_no_trouble(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        (tmp_path / "cgroup.procs").write_text(
            f"0\n4194304\n{process.pid}\n"
        )  # 0: none we see; the next: none there is
        Group((tmp_path,)).kill_each()
        assert process.wait() == -signal.SIGKILL


def test_a_group_that_cannot_be_made_in_full_is_not_made(tmp_path: Path) -> None:
    memory, pids = tmp_path / "memory", tmp_path / "pids"
    memory.mkdir()
    with pytest.raises(FileNotFoundError):
        ControlGroups([memory, pids]).make("cell-1")
    assert not list(memory.iterdir())
