"""How rows are printed: on a terminal, on one that is too narrow, and elsewhere; bars only where one looks."""

import io
import json
import re
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from kelpie.cli import main
from kelpie.cli.commands.operations.logs import Level, logs
from kelpie.cli.output import counted, print_facts, print_json, print_rows, print_text, say, waiting
from kelpie.cli.terminal import share
from kelpie.core.errors import InvalidInput
from kelpie.core.settings.settings import Settings

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


HOSTILE = "na\x1b]0;PWNED\x07me\x9b2J \u202eexe\u2066\u200e\u061c"
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # of the table and the bar themselves


def everything() -> None:
    say(HOSTILE)
    print_rows(("name", "tags"), [(HOSTILE, [HOSTILE, "b"])])
    print_facts({"name": HOSTILE})
    print_text(f"{HOSTILE}\n{HOSTILE}")
    print_json({"name": HOSTILE})
    with waiting(HOSTILE), share() as show:
        show(HOSTILE, 1, 2)


def test_names_and_texts_of_others_cannot_steer_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_terminal = on_a_screen(monkeypatch, 200, everything)
    everything()
    for shown in (on_terminal, capsys.readouterr().out):
        left = _STYLE.sub("", shown)
        assert not any(each in left for each in "\x1b\x07\x9b\u202e\u2066\u200e\u061c")
        assert r"na\x1b]0;PWNED\x07me\x9b2J \u202eexe" in left
        assert "[2J" not in left.replace(r"\x9b2J", "")


def test_errors_and_tracebacks_are_escaped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(arguments: list[str]) -> int:
        raise InvalidInput("name", HOSTILE)

    monkeypatch.setattr(main, "_dispatch", fail)
    assert main.run([]) == 1
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        main._print_traceback(type(error), error, error.__traceback__)
    told = capsys.readouterr().err
    assert told.replace("\n", "").isprintable() and told.count("PWNED") == 2 and "Traceback" in told


@pytest.mark.parametrize("as_json", [False, True])
def test_a_log_of_an_older_server_is_escaped_when_it_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    event = {"time": "t", "level": "info", "component": "server", "code": "x", "event": HOSTILE, "path": HOSTILE}
    event["exception"] = f"Traceback\n{HOSTILE}"
    lines = [json.dumps(event, ensure_ascii=False), f"not an event {HOSTILE}", f'"{HOSTILE}"']
    (tmp_path / "kelpie.log").write_text("\n".join(lines) + "\n")
    assert logs(Settings(data_dir=str(tmp_path)), 10, follow=False, level=Level.debug, as_json=as_json) == 0
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable() and shown.count("PWNED") == 5
    if as_json:
        assert json.loads(shown.splitlines()[0]) == event


def test_only_the_module_of_output_prints() -> None:
    source = Path(main.__file__).parent
    own = {"output.py", "terminal.py"}
    prints = re.compile(r"(?<![\w.])print\((?!reply)", re.MULTILINE)  # `demo` shows a program that prints
    assert [
        str(file) for file in source.rglob("*.py") if file.name not in own and prints.search(file.read_text())
    ] == []
