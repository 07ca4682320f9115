"""The end of a log, and what comes after it, also over a rotation."""

from pathlib import Path

import pytest

from kelpie.world.files.log_file import RotatedFile
from kelpie.world.files.log_tail import LogTail


@pytest.mark.parametrize("count", [0, 1, 3, 5, 100])
def test_the_last_lines_are_the_last_whole_lines(tmp_path: Path, count: int) -> None:
    path = tmp_path / "log"
    lines = [f"line {number} {'x' * number * 9000}" for number in range(5)]
    path.write_text("\n".join(lines) + "\nhalf a line")
    assert LogTail(path).last(count) == (lines[-count:] if count else [])


def test_a_missing_or_empty_file_has_no_lines(tmp_path: Path) -> None:
    assert LogTail(tmp_path / "none").last(10) == []
    (tmp_path / "empty").touch()
    assert LogTail(tmp_path / "empty").last(10) == []


def test_what_is_added_follows_without_a_gap_over_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = RotatedFile(path, bytes_max=20, files_max=3)
    log.write("first\n")
    log.flush()
    tail = LogTail(path)
    log.write("second\n")
    log.flush()
    assert tail.last(1) == ["second"]
    added = tail.added()
    log.write("third\n")
    log.flush()
    assert next(added) == "third"
    log.write("the fourth rotates\n")
    log.flush()
    assert next(added) == "the fourth rotates"
    log.close()


def test_a_half_line_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("whole\nha")
    tail = LogTail(path)
    assert tail.last(5) == ["whole"]
    with path.open("a") as file:
        file.write("lf\n")
    assert next(tail.added()) == "half"


def test_a_file_that_comes_later_is_read_from_its_beginning(tmp_path: Path) -> None:
    tail = LogTail(tmp_path / "log")
    assert tail.last(5) == []
    (tmp_path / "log").write_text("one\n")
    assert next(tail.added()) == "one"
