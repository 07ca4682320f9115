"""How rows are printed: on a terminal, on one that is too narrow, and elsewhere; bars only where one looks."""

import io
import json
import re
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kelpie.cli import main
from kelpie.cli.commands.operations.logs import Filter, logs
from kelpie.cli.display.age import age
from kelpie.cli.display.table import short_ids
from kelpie.cli.display.terminal import share
from kelpie.cli.output import counted, print_facts, print_json, print_list, print_rows, print_text, say, waiting
from kelpie.core.errors import InvalidInput
from kelpie.core.settings.settings import Settings
from kelpie.core.time import as_datetime
from kelpie.world.clock import SystemClock

ID = "agent-91926355-1bc3-4460-8ae0-86943be180c3"
ROWS = [(ID, "a text of several words that may well go on in the next line", None), (ID, "short", True)]
COLUMNS = ("id", "text", "flag")
NOW = SystemClock().now()


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


def test_a_table_fits_with_short_ids_and_wrapped_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    heading, *lines = on_a_screen(monkeypatch, 50, lambda: print_rows(COLUMNS, ROWS)).splitlines()
    assert _STYLE.sub("", heading).split() == ["ID", "TEXT", "FLAG"]
    assert all(len(line) <= 50 for line in lines) and len(lines) > 2
    assert ID not in "".join(lines) and lines[0].startswith("agent-91926355  a text of several")
    assert "next line" in " ".join(" ".join(lines).split()), "nothing of a text is lost"


def test_a_list_has_one_line_a_record_and_leaves_out_spare_columns_last(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = ("name", "id", "created", "cost")
    rows = [("a name of many words", ID, (datetime.now(UTC) - timedelta(days=2, hours=1)).isoformat(), "$0.5")]
    wide = on_a_screen(monkeypatch, 80, lambda: print_list(columns, rows, spare=("cost",))).splitlines()
    assert wide[1].split("  ") == ["a name of many words", "agent-91926355", "2 days ago", "$0.5"]
    narrow = on_a_screen(monkeypatch, 44, lambda: print_list(columns, rows, spare=("cost",))).splitlines()
    assert narrow[1] == "a name of…  agent-91926355  2 days ago  $0.5"
    least = on_a_screen(monkeypatch, 37, lambda: print_list(columns, rows, spare=("cost",))).splitlines()
    assert least[1] == "a name o…  agent-91926355  2 days ago" and "Not shown: cost." in least[2]


def test_in_a_pipe_everything_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    at = "2026-01-31T12:00:00.000001Z"
    print_list(("id", "text", "created"), [(ID, "long " * 100, at)])
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split() == ["ID", "TEXT", "CREATED"]
    assert line.startswith(ID) and line.endswith(at) and line.count("long") == 100


def test_ids_that_begin_alike_are_shown_until_they_differ() -> None:
    other = ID[:16] + "f" + ID[17:]
    assert short_ids([ID, ID, "-"]) == ["agent-91926355", "agent-91926355", "-"]
    assert short_ids([ID, other]) == [ID[:17], other[:17]]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "just now"), (59, "59 seconds ago"), (60, "1 minute ago"), (7200, "2 hours ago"), (86400 * 3, "3 days ago"),
        (86400 * 70, "2 months ago"), (86400 * 800, "2 years ago"), (-90, "in 1 minute"), (-86400 * 30, "in 1 month"),
    ],
)  # fmt: skip
def test_times_are_ages(seconds: int, told: str) -> None:
    now = as_datetime(NOW)
    assert age(now - timedelta(seconds=seconds), now) == told


def test_wide_characters_take_two_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_a_screen(monkeypatch, 12, lambda: print_list(("name", "n"), [("日本語日本語", 1)])).splitlines()
    assert shown[1] == "日本語日… 1".replace(" 1", "  1")


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
    assert logs(Settings(data_dir=str(tmp_path)), 10, Filter(), follow=False, as_json=as_json) == 0
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable() and shown.count("PWNED") == 5
    if as_json:
        assert json.loads(shown.splitlines()[0]) == event


def test_only_the_module_of_output_prints() -> None:
    source = Path(main.__file__).parent
    own = {"output.py", "terminal.py", "terminal_table.py"}
    prints = re.compile(r"(?<![\w.])print\((?!reply)", re.MULTILINE)  # `demo` shows a program that prints
    assert [
        str(file) for file in source.rglob("*.py") if file.name not in own and prints.search(file.read_text())
    ] == []
