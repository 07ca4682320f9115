"""A test without its part is skipped; where `KELPIE_TEST_REQUIRE` names the part, it fails and says what to install."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts import PARTS, REQUIRE, lacks, required

ROOT = Path(__file__).parents[2]
NEEDS_NODE = "tests/sandbox/test_process.py::test_javascript_runs_as_a_function_and_as_a_script"


@pytest.mark.parametrize("part", PARTS)
def test_a_missing_part_skips_or_fails(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRE, ",".join(other for other in PARTS if other != part))
    with pytest.raises(pytest.skip.Exception, match=part):
        lacks(part, "nobody installed it")
    monkeypatch.setenv(REQUIRE, f"{part}, ")
    with pytest.raises(pytest.fail.Exception) as failed:
        lacks(part, "nobody installed it")
    told = str(failed.value)
    assert PARTS[part].what in told and PARTS[part].remedy in told and "nobody installed it" in told


def test_an_unknown_part_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRE, "node,nodde")
    with pytest.raises(pytest.UsageError, match="unknown parts: nodde"):
        required()


@pytest.mark.parametrize(("named", "code", "told"), [("node", 1, "apt install nodejs npm"), ("", 0, "(part 'node')")])
def test_a_mark_looks_for_its_part(named: str, code: int, told: str, tmp_path: Path) -> None:
    environment = os.environ | {REQUIRE: named, "PATH": str(tmp_path)}
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", NEEDS_NODE)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, told in done.stdout) == (code, True), done.stdout


def test_ci_requires_what_make_test_installs() -> None:
    assert f"{REQUIRE}=sandbox,node,model" in (ROOT / ".ci" / "run").read_text()
