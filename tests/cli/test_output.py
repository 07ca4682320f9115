"""How rows are printed: on a terminal, on one that is too narrow, and elsewhere; bars only where one looks."""

import io
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

import pytest

from kelpie.cli.output import counted, print_rows, waiting

ID = "agent-91926355-1bc3-4460-8ae0-86943be180c3"
ROWS = [(ID, "a text of several words that may well go on in the next line", None), (ID, "short", True)]
COLUMNS = ("id", "text", "flag")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_a_screen(monkeypatch: pytest.MonkeyPatch, columns: int, deed: Callable[[], None]) -> str:
    """What a person sees who sits before a terminal so wide."""
    screen = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    with redirect_stdout(screen), redirect_stderr(screen):
        deed()
    return screen.getvalue()


def test_a_table_wraps_texts_and_keeps_ids_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_a_screen(monkeypatch, 70, lambda: print_rows(COLUMNS, ROWS))
    assert shown.count(ID) == 2 and "several words that may well go on" not in shown
    assert "next" in shown and "line" in shown, "nothing is cut"


def test_where_ids_would_not_stay_whole_lines_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    heading, *lines = on_a_screen(monkeypatch, 40, lambda: print_rows(COLUMNS, ROWS)).splitlines()
    assert heading.split() == ["ID", "TEXT", "FLAG"] and [line.split()[0] for line in lines] == [ID, ID]


def work() -> None:
    with counted("looking", 2) as advance:
        advance()
        print("a line")
        advance()
    with waiting("a moment"):
        pass


def test_on_a_terminal_one_sees_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_a_screen(monkeypatch, 80, work)
    assert all(word in shown for word in ("looking", "1/2", "2/2", "a line", "a moment"))


def test_elsewhere_nothing_is_said_of_waiting(capsys: pytest.CaptureFixture[str]) -> None:
    work()
    assert capsys.readouterr() == ("a line\n", "")
