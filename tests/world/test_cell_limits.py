"""Limits of one process are set from outside, on top of what it took before."""

import os
import resource
import subprocess
import time

from kelpie.core.tools.confinement import Confinement, Runner
from kelpie.world.cells.port import CellPlan
from kelpie.world.cells.rlimits import limit, spent_s


def test_what_a_process_took_before_is_not_held_against_it() -> None:
    before = time.process_time()
    assert int(before) - 1 <= spent_s(os.getpid()) <= time.process_time()
    with subprocess.Popen(["sleep", "60"]) as process:
        limit(process.pid, CellPlan(Runner.command), Confinement(wall_s=5), grouped=True)
        found = resource.prlimit(process.pid, resource.RLIMIT_CPU)
        process.kill()
    assert found == (7, 7), "the time-out and a margin"
