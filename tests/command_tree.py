"""The tree of commands, built once where this module is imported, for all forks of that process.

Typer builds it from the functions of all commands at each start, which takes most of a short command.
"""

import os

import typer
from typer import main

from kelpie.cli.app import kelpie

_ASKED_FOR_COMPLETION = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"  # it changes the options of the tree

_build = main.get_command
_TREE = _build(kelpie)


def _tree(commands: typer.Typer) -> object:
    return _TREE if commands is kelpie and _ASKED_FOR_COMPLETION not in os.environ else _build(commands)


setattr(main, "get_command", _tree)  # noqa: B010 - Typer looks it up there
