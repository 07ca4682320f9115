"""Every command explains itself, says how it is called, completes in the shell, and can print what it lists as JSON."""

import subprocess
from collections.abc import Iterator

import pytest
import typer
from typer.main import get_command

from kelpie.cli import commands
from tests.cli.live import BIN

LISTINGS = ("agents list", "agents show", "runs list", "runs show", "models list", "models check", "config show",
            "doctor", "logs", "sim list", "sim run", "sim search")  # fmt: skip


def leaves(app: typer.Typer) -> Iterator[tuple[str, typer.core.TyperCommand]]:
    def walk(command: object, name: str) -> Iterator[tuple[str, typer.core.TyperCommand]]:
        if isinstance(command, typer.core.TyperGroup):
            assert command.help, name
            for child_name, child in command.commands.items():
                yield from walk(child, f"{name} {child_name}".strip())
        else:
            assert isinstance(command, typer.core.TyperCommand)
            yield name, command

    yield from walk(get_command(app), "")


COMMANDS = dict(leaves(commands.kelpie))


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_has_help_and_examples_of_itself(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    assert command.epilog and f"`kelpie {name}" in command.epilog
    for parameter in command.params:
        assert parameter.name == "help" or getattr(parameter, "help", None), f"{name}: {parameter.name}"


def test_what_lists_can_print_json() -> None:
    assert set(LISTINGS) <= set(COMMANDS)
    without = [name for name in LISTINGS if not any("--json" in parameter.opts for parameter in COMMANDS[name].params)]
    assert not without


def kelpie(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(BIN / "kelpie"), *arguments], env={"PATH": str(BIN), **env}, capture_output=True, text=True, timeout=60
    )


def test_in_a_pipe_help_is_plain() -> None:
    for arguments in (("--help",), ("agents", "--help"), ("agents", "create", "--help")):
        done = kelpie(*arguments)
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


def test_the_completion_script_can_be_shown() -> None:
    done = kelpie("--show-completion", "bash")
    assert done.returncode == 0 and "_KELPIE_COMPLETE" in done.stdout


def test_usage_errors_have_their_own_code() -> None:
    for arguments in (("nonsense",), ("agents", "list", "--nonsense"), ("runs", "list", "-n", "0"), ("runs", "show")):
        done = kelpie(*arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert done.stderr
