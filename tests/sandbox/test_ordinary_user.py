"""The sandbox as an ordinary user, without control groups: what then still holds; and a server that is killed."""

import json
import os
import select
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.parts import lacks

ROOT = Path(__file__).parents[2]
PROGRAM = str(Path(__file__).with_name("ordinary_user.py"))
NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


def run_as_ordinary_user() -> subprocess.CompletedProcess[str]:
    """With an interpreter that this user can reach; the test is skipped where there is none."""
    become = NOBODY if os.getuid() == 0 else ()
    if become and shutil.which("setpriv") is None:
        lacks("setpriv", "so root cannot become another user")
    paths = (str(ROOT / "src"), str(ROOT), sysconfig.get_path("purelib"))
    env = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join(paths)}
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        tried = subprocess.run(
            [*become, python, "-c", "import kelpie, os, sys, tests; os.stat(sys._base_executable)"],
            env=env,
            cwd="/",
            capture_output=True,
        )
        if tried.returncode == 0:
            return subprocess.run(
                [*become, python, PROGRAM], env=env, cwd="/", capture_output=True, text=True, timeout=120
            )
    pytest.skip("an ordinary user can reach neither this interpreter nor this directory")


def test_the_walls_hold_for_an_ordinary_user() -> None:
    done = run_as_ordinary_user()
    if "SandboxUnavailable" in done.stderr:
        lacks("sandbox", done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["user"] != 0
    assert told["plain"][:2] == ["finished", 0] and told["plain"][2]["value"] == 2
    assert told["forks"][2]["value"] < 70
    assert told["slow"][0] == "timed_out"
    assert "ConnectionRefusedError" in told["network"][2]["error"]
    assert "Read-only file system" in told["write"][2]["error"]
    assert told["memory"][0] == "out_of_memory" or "MemoryError" in told["memory"][3]
    assert told["packages"] == {"plain.py": "0o100644", ".": "0o40755"}
    if "r" in told:
        assert told["r"][:2] == ["finished", 0] and told["r"][4] == "2", told["r"]
    if "node" in told:
        assert told["node"][:2] == ["finished", 0] and told["node"][2]["value"] == 1, told["node"]
        assert told["node_forks"][2] is None or told["node_forks"][2]["value"] < 64, told["node_forks"]
        assert told["node_memory"][2] is None or not told["node_memory"][2]["ok"], told["node_memory"]
        assert told["node_memory"][0] != "timed_out", "it took all it wanted"


def test_cells_die_with_a_server_that_is_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "door")
    door = os.open(tmp_path / "door", os.O_RDONLY | os.O_NONBLOCK)
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    command = (sys.executable, PROGRAM, str(tmp_path))
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": paths}, stderr=subprocess.PIPE) as server:
        poll = select.poll()
        poll.register(door, select.POLLIN)
        found = poll.poll(60_000)
        if not found and server.poll() is not None:
            assert server.stderr is not None
            lacks("sandbox", server.stderr.read().decode().splitlines()[-1])
        assert os.read(door, 100) == b"begun"
        server.kill()
    poll.poll(60_000)
    assert os.read(door, 100) == b"", "nobody holds the other end any more"
    os.close(door)
