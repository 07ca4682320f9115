"""One server per data directory, and sentences that say what to do when it cannot be used."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kelpie.core.errors import ConfigurationError
from kelpie.world.files import data_dir
from kelpie.world.files.data_dir import DataDir, Holder

HOLDER = """
import sys
from kelpie.world.files.data_dir import DataDir
held = DataDir.open(sys.argv[1])
held.lock()
held.announce("http://127.0.0.1:9")
print("held", flush=True)
sys.stdin.read()
"""


def test_the_directory_is_made_for_its_owner_only(tmp_path: Path) -> None:
    made = DataDir.open(str(tmp_path / "a" / "b"))
    assert made.path == tmp_path / "a" / "b"
    assert made.path.stat().st_mode & 0o777 == 0o700
    assert DataDir.open(str(made.path)).path == made.path


def test_a_directory_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    place = tmp_path / "data"
    (place / "workspaces").mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.write_text("of somebody else")
    for name in ("kelpie.db", "kelpie.db-wal", "kelpie.toml", "server.log"):
        (place / name).write_text("secret")
    (place / "link").symlink_to(outside)
    for path in (place, place / "workspaces", outside, *place.glob("kelpie*"), place / "server.log"):
        path.chmod(0o777 if path.is_dir() else 0o664)
    DataDir.open(str(place))
    modes = {path.name: path.stat().st_mode & 0o777 for path in (place, *place.iterdir()) if not path.is_symlink()}
    assert modes == {
        "data": 0o700,
        "workspaces": 0o700,
        "kelpie.db": 0o600,
        "kelpie.db-wal": 0o600,
        "kelpie.toml": 0o600,
        "server.log": 0o600,
    }
    assert outside.stat().st_mode & 0o777 == 0o664, "no link is followed"


def test_a_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ConfigurationError, match=rf"belongs to another user \(uid {owner}\).*chown -R {owner + 1}"):
        DataDir.open(str(tmp_path))


def test_a_disk_without_permissions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.setattr(Path, "chmod", lambda self, mode: None)
    with pytest.raises(ConfigurationError, match="without permissions"):
        DataDir.open(str(tmp_path))


def test_a_database_elsewhere_is_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    path.write_text("")
    path.chmod(0o644)
    data_dir.restrict_database(path)
    data_dir.restrict_database(tmp_path / "new.db")
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}
    data_dir.restrict_database(tmp_path / "missing" / "new.db")


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigurationError, match=r"KELPIE_DATA_DIR: .* is not a directory"):
            DataDir.open(str(place))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(ConfigurationError, match=r"KELPIE_DATA_DIR: .* is not writable"):
            DataDir.open(str(tmp_path))
        with pytest.raises(ConfigurationError, match=r"KELPIE_DATA_DIR: .* cannot be made"):
            DataDir.open(str(tmp_path / "new"))
    finally:
        tmp_path.chmod(0o700)


def test_a_missing_right_is_told_as_not_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ConfigurationError, match=r"KELPIE_DATA_DIR: .* is not writable"):
        DataDir.open(str(tmp_path))


def test_only_one_may_hold_it_and_the_other_is_told_who(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_dir, "LOCK_PAUSE_S", 0.001)
    first, second = DataDir.open(str(tmp_path)), DataDir.open(str(tmp_path))
    assert DataDir.holder(str(tmp_path)) is None
    first.lock()
    assert DataDir.holder(str(tmp_path)) == Holder(os.getpid())
    with pytest.raises(ConfigurationError, match=f"in use by process {os.getpid()}; stop that server"):
        second.lock()
    first.announce("http://127.0.0.1:8283")
    assert DataDir.holder(str(tmp_path)) == Holder(os.getpid(), "http://127.0.0.1:8283")
    first.close()
    first.close()
    assert DataDir.holder(str(tmp_path)) is None
    second.lock()
    assert DataDir.holder(str(tmp_path)) == Holder(os.getpid())
    second.close()


def test_nobody_holds_what_does_not_exist(tmp_path: Path) -> None:
    assert DataDir.holder(str(tmp_path / "nowhere")) is None
    assert not (tmp_path / "nowhere").exists()


def test_the_lock_of_a_killed_process_is_gone(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout
        assert child.stdout.readline() == b"held\n"
        assert DataDir.holder(str(tmp_path)) == Holder(child.pid, "http://127.0.0.1:9")
        child.send_signal(signal.SIGKILL)
    assert DataDir.holder(str(tmp_path)) is None  # although its note is still there
    taken = DataDir.open(str(tmp_path))
    taken.lock()
    assert DataDir.holder(str(tmp_path)) == Holder(os.getpid())
    taken.close()


def test_those_who_only_look_keep_nobody_from_locking(tmp_path: Path) -> None:
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            DataDir.holder(str(tmp_path))

    onlooker = threading.Thread(target=look)
    onlooker.start()
    try:
        for _ in range(50):
            taken = DataDir.open(str(tmp_path))
            taken.lock()
            taken.close()
    finally:
        done.set()
        onlooker.join()


def test_a_holder_that_has_left_no_note_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_dir, "LOCK_PAUSE_S", 0.001)
    taken = DataDir.open(str(tmp_path))
    taken.lock()
    (tmp_path / data_dir.NOTE_FILE).write_text("garbage")
    with pytest.raises(ConfigurationError, match="is still starting"):
        DataDir.holder(str(tmp_path))
    taken.close()
