"""Means of isolation are believed by their effect: what the probe says, what it cannot say, and what it never says."""

import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kelpie.world.isolation import probes as room
from kelpie.world.isolation.probes import isolation
from kelpie.world.processes.processes import ProcessResult

PROBE = Path(room.__file__).with_name("probe_program.py")


class Scripted:
    """Answers every command the same way and remembers the commands."""

    def __init__(self, answer: ProcessResult | OSError) -> None:
        self.answer = answer
        self.commands: list[tuple[str, ...]] = []

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float,
        output_bytes_max: int,
    ) -> ProcessResult:
        assert 0 < timeout_s <= 10 and output_bytes_max <= 4096
        self.commands.append(tuple(argv))
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer


@pytest.fixture
def everything_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room.shutil, "which", lambda name: f"/bin/{name}")


@pytest.mark.usefixtures("everything_installed")
@pytest.mark.parametrize(
    ("answer", "works", "seen"),
    [
        (ProcessResult(0, b"yes it is so\n", b""), True, "it is so"),
        (ProcessResult(0, b"no nothing happened\n", b""), False, "nothing happened"),
        (
            ProcessResult(1, b"yes\n", b"noise\nbwrap: setting up uid map: Permission denied\n"),
            False,
            "Permission denied",
        ),
        (ProcessResult(-31, b"", b""), False, "code -31"),
        (ProcessResult(0, b"", b""), False, "code 0"),
        (ProcessResult(0, b"perhaps\n", b""), False, "code 0"),
        (ProcessResult(-9, b"", b"", timed_out=True), False, "no result within"),
        (PermissionError(13, "Permission denied"), False, "cannot be run: Permission denied"),
    ],
)
def test_only_a_plain_yes_is_believed(answer: ProcessResult | OSError, works: bool, seen: str) -> None:
    processes = Scripted(answer)
    found = isolation(processes)
    assert {each.works for each in found} == {works} and all(seen in each.seen for each in found)
    assert all(bool(each.remedy) is not works for each in found)
    assert all(len(each.remedy or "") <= 200 for each in found), "the doctor shows all of it"
    assert len(processes.commands) == len(found) == len({each.name for each in found})


def test_what_is_not_installed_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room.shutil, "which", lambda name: None if name in ("bwrap", "runsc") else name)
    processes = Scripted(ProcessResult(0, b"yes fine\n", b""))
    absent = {each.name: each for each in isolation(processes) if not each.works}
    assert set(absent) == {"bubblewrap", "gVisor"} and "no bwrap on the PATH" in absent["bubblewrap"].seen
    assert not any(command[0] in ("bwrap", "runsc") for command in processes.commands)


def test_elsewhere_than_on_linux_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room.sys, "platform", "darwin")
    processes = Scripted(ProcessResult(0, b"yes\n", b""))
    assert not any(each.works for each in isolation(processes)) and not processes.commands


def probe(*arguments: str) -> str:
    command = [sys.executable, "-I", "-S", str(PROBE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.skipif(sys.platform != "linux", reason="the means are parts of Linux")
def test_the_real_machine_is_tried_without_being_changed() -> None:
    before = threading.active_count()
    found = isolation()
    names = [
        "bubblewrap",
        "user namespaces",
        "network namespaces",
        "Landlock",
        "seccomp",
        "gVisor",
        "KVM",
    ]
    assert [each.name for each in found] == names
    assert all(each.seen and bool(each.remedy) is not each.works for each in found)
    assert threading.active_count() == before


@pytest.mark.skipif(sys.platform != "linux", reason="the means are parts of Linux")
def test_the_probe_does_not_call_an_open_room_a_jail(tmp_path: Path) -> None:
    assert probe("jailed", str(tmp_path)) == f"no {tmp_path} can be written to\n"
    assert not list(tmp_path.iterdir())
    assert probe("jailed", str(tmp_path / "missing")).startswith("no ")
