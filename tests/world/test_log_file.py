"""The rotated log file: bounded, nothing split, nothing readable by others."""

import threading
from pathlib import Path

from kelpie.world.files.log_file import RotatedFile


def test_what_is_written_is_there_after_reopening(tmp_path: Path) -> None:
    for text in ("one\n", "two\n"):
        file = RotatedFile(tmp_path / "kelpie.log")
        file.write(text)
        file.close()
    assert (tmp_path / "kelpie.log").read_text() == "one\ntwo\n"


def test_size_and_number_of_files_are_bounded_and_the_newest_lines_stay(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "kelpie.log", bytes_max=100, files_max=3)
    for number in range(200):
        file.write(f"line {number:04}\n")
    file.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["kelpie.log", "kelpie.log.1", "kelpie.log.2"]
    assert all(path.stat().st_size <= 100 for path in tmp_path.iterdir())
    kept = "".join((tmp_path / name).read_text() for name in reversed(names)).splitlines()
    assert kept == [f"line {number:04}" for number in range(200 - len(kept), 200)]


def test_a_single_file_starts_anew_when_full(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "kelpie.log", bytes_max=10, files_max=1)
    file.write("12345678\n")
    file.write("abc\n")
    file.close()
    assert [path.name for path in tmp_path.iterdir()] == ["kelpie.log"]
    assert (tmp_path / "kelpie.log").read_text() == "abc\n"


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    RotatedFile(tmp_path / "kelpie.log").close()
    assert (tmp_path / "kelpie.log").stat().st_mode & 0o077 == 0


def test_text_that_is_not_valid_unicode_is_written_escaped(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "kelpie.log")
    file.write("lone \udc80 surrogate\n")
    file.close()
    assert (tmp_path / "kelpie.log").read_text() == "lone \\udc80 surrogate\n"


def test_threads_never_split_a_line(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "kelpie.log", bytes_max=1000, files_max=100)

    def work(letter: str) -> None:
        for _ in range(200):
            file.write(letter * 9 + "\n")

    threads = [threading.Thread(target=work, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    file.close()
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert len(lines) == 800
    assert all(len(line) == 9 and len(set(line)) == 1 for line in lines)
