"""Every command explains itself, says how it is called, completes in the shell, and can print what it lists as JSON."""

import os
import pty
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from kelpie.cli import app
from tests.cli.live import BIN, forked
from tests.cli.pseudo_terminal import plain

# What these print is a sentence about what they did, or a conversation; everything else can print JSON.
NO_JSON = {
    "mcp serve",  # it speaks nothing but JSON
    "version", "server start", "server restart", "server stop", "demo", "agents delete", "models pull",
    "models remove", "keys revoke", "blocks edit", "blocks attach", "blocks detach", "tools attach", "tools detach",
    "tools delete", "templates delete", "config set", "config unset", "config path", "config edit",
    "mcp login", "mcp remove", "providers remove", "schedules delete", "hooks delete",
    "projects remove", "projects delete", "folders attach", "folders detach", "folders delete", "files delete", "open",
}  # fmt: skip
SHELL_OPERATORS = ("|", "||", "<", ">", "&&")


def walk(command: object, name: str = "") -> Iterator[tuple[str, TyperCommand | TyperGroup]]:
    """Every command and every group of commands, by its full name."""
    assert isinstance(command, TyperCommand | TyperGroup)
    yield name, command
    if isinstance(command, TyperGroup):
        for child_name, child in command.commands.items():
            yield from walk(child, f"{name} {child_name}".strip())


TREE = get_command(app.kelpie)
ALL = dict(walk(TREE))
LEAVES = {name: command for name, command in ALL.items() if not isinstance(command, TyperGroup)}


def examples_of(command: TyperCommand | TyperGroup) -> list[str]:
    heading, *lines = (command.epilog or "").removeprefix("\b\n").split("\n")
    assert heading == "Examples:"
    return [line.strip(" -`") for line in lines if line]  # at a terminal it is a list in Markdown


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_command_has_help_and_examples_of_itself(name: str) -> None:
    command = ALL[name]
    assert command.help or name == ""
    assert examples_of(command) and all(text.startswith(f"kelpie {name}".strip()) for text in examples_of(command))
    for parameter in command.params:
        assert parameter.name == "help" or getattr(parameter, "help", None), f"{name}: {parameter.name}"


@pytest.mark.parametrize("name", sorted(ALL))
def test_its_examples_are_calls_that_it_understands(name: str) -> None:
    for text in examples_of(ALL[name]):
        words = shlex.split(text)[1:]
        end = next((place for place, word in enumerate(words) if word in SHELL_OPERATORS), len(words))
        command, context = TREE, None
        words = words[:end]
        while isinstance(command, TyperGroup):
            context = command.make_context("kelpie", [], parent=context, resilient_parsing=True)
            _, found, words = command.resolve_command(context, words)
            assert isinstance(found, TyperCommand | TyperGroup)
            command = found
        command.make_context(command.name, words, parent=context)  # raises for what it does not understand


def test_everything_that_tells_something_can_print_json() -> None:
    without = {name for name, command in LEAVES.items() if not any("--json" in each.opts for each in command.params)}
    assert without == NO_JSON


def kelpie(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return forked(arguments, "", {"PATH": str(BIN), **env}, None)


@pytest.mark.parametrize("name", sorted(name for name, command in ALL.items() if isinstance(command, TyperGroup)))
def test_no_summary_is_cut_on_a_narrow_terminal(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert app.app([*name.split(), "--help"]) == 0
    _, _, commands = capsys.readouterr().out.partition("Commands:\n")
    assert commands and "..." not in commands.partition("Examples:")[0]


def test_in_a_pipe_help_is_plain() -> None:
    for arguments in (("--help",), ("agents", "--help"), ("agents", "create", "--help")):
        command = [str(BIN / "kelpie"), *arguments]  # a fork would have decided about its form before
        done = subprocess.run(command, env={"PATH": str(BIN)}, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0
        assert "\x1b" not in done.stdout and "│" not in done.stdout and "Usage: kelpie" in done.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("kelpie ag", ["agents"]), ("kelpie agents st", ["start", "stop"]), ("kelpie models pu", ["pull"])],
)
def test_the_shell_completes_commands(typed: str, offered: list[str]) -> None:
    env = {"_KELPIE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = kelpie(**env)
    assert done.stdout.split() == offered


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("kelpie agents create --type memgpt_v", ["memgpt_v2_agent"]),
        ("kelpie config show --set agents.block", ["agents.block_limit=", "agents.block_versions="]),
    ],
)
def test_the_shell_completes_values_without_a_server(typed: str, offered: list[str]) -> None:
    env = {"_KELPIE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    assert kelpie(**env).stdout.split() == offered


@pytest.mark.parametrize(
    ("shell", "env"),
    [
        ("bash", {"COMP_WORDS": "kelpie agents st", "COMP_CWORD": "2"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "kelpie agents st"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "kelpie agents st", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_each_shell_gets_its_script_and_its_answers(shell: str, env: dict[str, str], tmp_path: Path) -> None:
    shown = kelpie("--show-completion", shell)
    assert shown.returncode == 0 and f"_KELPIE_COMPLETE=complete_{shell}" in shown.stdout
    answer = kelpie(_KELPIE_COMPLETE=f"complete_{shell}", **env).stdout
    assert "start" in answer and "stop" in answer and "restart" not in answer and "create" not in answer
    installed = kelpie("--install-completion", shell, HOME=str(tmp_path))
    assert installed.returncode == 0, installed.stderr
    texts = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert any(f"_KELPIE_COMPLETE=complete_{shell}" in text for text in texts)


def test_bash_itself_completes_with_the_script() -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = (
        'eval "$(kelpie --show-completion bash)"; COMP_WORDS=(kelpie agents st); COMP_CWORD=2; '
        'COMP_LINE="kelpie agents st"; COMP_POINT=16; _kelpie_completion kelpie; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run([bash, "-c", script], env={"PATH": f"{BIN}:/bin:/usr/bin"}, capture_output=True, text=True)
    assert done.stdout.split() == ["start", "stop"], done.stderr


def test_usage_errors_have_their_own_code() -> None:
    for arguments in (("nonsense",), ("agents", "list", "--nonsense"), ("runs", "list", "-n", "0"), ("runs", "show")):
        done = kelpie(*arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert done.stderr


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("agents lst", "No such command 'lst'. Did you mean 'list'? See `kelpie agents --help`."),
        (
            "agents create x --tol y",
            "No such option '--tol'. Did you mean '--tool'? See `kelpie agents create --help`.",
        ),
        ("agents create x --foo", "No such option '--foo'. See `kelpie agents create --help`."),
        ("agents show", "Missing argument 'AGENT'. See `kelpie agents show --help`."),
        ("agents show a b c", "Too many arguments: b c. See `kelpie agents show --help`."),
        ("chat --message", "Option '--message' requires an argument. See `kelpie chat --help`."),
        ("chat --new --conversation x", "--new and --conversation exclude each other. See `kelpie chat --help`."),
        (
            "agents list --limit x",
            "Invalid value for '--limit' / '-n': 'x' is not a whole number. See `kelpie agents list --help`.",
        ),
    ],
)
def test_a_usage_error_is_one_plain_line(typed: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.app(typed.split()) == 2
    assert capsys.readouterr() == ("", f"kelpie: {told}\n")


def at_a_real_terminal(*arguments: str) -> str:
    """What a command writes to a terminal, without colours. A fork would have decided about its form before."""
    master, slave = pty.openpty()
    env = {"PATH": str(BIN), "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen([str(BIN / "kelpie"), *arguments], env=env, stdin=slave, stdout=slave, stderr=slave):
        os.close(slave)
        shown = b""
        while data := _read(master):
            shown += data
    os.close(master)
    return plain(shown.decode())


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # the other end is closed
        return b""


def test_a_usage_error_at_a_terminal_is_the_same_plain_line() -> None:
    told = "kelpie: No such command 'lst'. Did you mean 'list'? See `kelpie agents --help`.\n"
    assert at_a_real_terminal("agents", "lst") == told


def test_help_at_a_terminal_shows_no_value_for_a_flag_and_no_type() -> None:
    shown = at_a_real_terminal("agents", "list", "--help")
    assert "NUMBER" in shown and "JSON " not in shown and "bool" not in shown
    assert "bool" not in at_a_real_terminal("--help")


def test_a_group_without_a_command_shows_its_help() -> None:
    done = kelpie("agents")
    assert (done.returncode, done.stdout) == (2, "") and "Usage: kelpie agents" in done.stderr
