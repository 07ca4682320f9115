"""Control groups of this machine's own kernel, whichever kind it has; where it gives us none, the reason is told."""

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from kelpie.core.tools.confinement import MEGABYTE, Confinement
from kelpie.world.isolation.control_group import ControlGroups, Group
from kelpie.world.isolation.control_group_search import NoGroups, find
from tests.parts import lacks

LITTLE = Confinement(memory_bytes=48 * MEGABYTE, processes=4, cpu_share=0.1)
FORKS = """
import os
count = 0
try:
    while count < 50:
        if os.fork() == 0:
            os.read(os.pipe()[0], 1)
        count += 1
except OSError:
    print(count, flush=True)
os.kill(0, 9)
"""
BUSY = "import time\nend = time.process_time() + 0.05\nwhile time.process_time() < end: pass"


@pytest.fixture
def groups() -> Iterator[ControlGroups]:
    found = find()
    if isinstance(found, NoGroups):
        lacks("groups", found.seen)
    yield found
    found.close()
    assert not any(top.exists() for top in found.tops), "nothing was left in them"


@pytest.fixture
def group(groups: ControlGroups) -> Iterator[Group]:
    made = groups.make("cell-1")
    made.limit(LITTLE)
    yield made
    end = time.monotonic() + 30
    while not made.remove():  # those that were killed last are on their way out
        assert time.monotonic() < end, "somebody is left in it"
        made.kill_each()


def run(group: Group, source: str) -> subprocess.CompletedProcess[str]:
    command = group.entering([sys.executable, "-I", "-S", "-c", source])
    return subprocess.run(command, capture_output=True, text=True, timeout=60, start_new_session=True, check=False)


def test_who_looks_twice_finds_the_same_place(groups: ControlGroups) -> None:
    again = find()
    assert isinstance(again, ControlGroups) and again.tops == groups.tops


def test_all_processes_of_a_group_are_bounded_together(group: Group) -> None:
    assert 1 <= int(run(group, FORKS).stdout) < 10


def test_what_takes_more_memory_is_ended(group: Group) -> None:
    assert run(group, "print(len(bytes(8 << 20)))").stdout == f"{8 << 20}\n" and not group.ran_out_of_memory()
    assert run(group, "held = bytearray(b'x') * (256 << 20)").returncode != 0
    assert group.ran_out_of_memory() and 8 * MEGABYTE < group.memory_peak_bytes() <= 48 * MEGABYTE


def test_what_takes_more_of_the_processor_is_held_back(group: Group) -> None:
    if not any((each / name).exists() for each in group.directories for name in ("cpu.max", "cpu.cfs_quota_us")):
        lacks("groups", "the groups above do not pass on the processor")
    assert run(group, BUSY).returncode == 0
    assert group.was_throttled() and group.cpu_us() >= 50_000


def test_a_group_stays_while_there_is_somebody_in_it_and_goes_with_him(group: Group) -> None:
    command = group.entering([sys.executable, "-I", "-S", "-c", "print(1, flush=True); import time; time.sleep(60)"])
    with subprocess.Popen(command, stdout=subprocess.PIPE) as held:
        assert held.stdout is not None and held.stdout.readline() == b"1\n"
        assert not group.remove()
        group.lift()
        group.kill()
        group.kill_each()
        assert held.wait(60) == -9
    assert group.remove() and group.remove()
    group.lift()
    group.kill()
    group.kill_each()
    assert not group.ran_out_of_memory()
