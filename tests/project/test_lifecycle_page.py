"""docs/lifecycle.md lists exactly the states, transitions and stop reasons of the tables in the code."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from kelpie.core.agents.activation_state import MOVES
from kelpie.core.conversations.runs import RUN_MOVES, StopReason, status_for

PAGE = Path(__file__).parents[2] / "docs" / "lifecycle.md"


def rows(heading: str) -> list[list[str]]:
    """The rows of the table under a heading of the second level, without its header."""
    found = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{PAGE.name} has no section {heading!r}"
    lines = [line for line in found[1].splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.mark.parametrize(("heading", "moves"), [("Activation states", MOVES), ("Run states", RUN_MOVES)])
def test_the_page_explains_every_state(heading: str, moves: Mapping[str, frozenset[str]]) -> None:
    table = rows(heading)
    assert [state for state, _ in table] == [str(state) for state in moves]
    assert all(meaning for _, meaning in table)


@pytest.mark.parametrize(("heading", "moves"), [("Activation transitions", MOVES), ("Run transitions", RUN_MOVES)])
def test_the_page_lists_every_transition_with_its_trigger(heading: str, moves: Mapping[str, frozenset[str]]) -> None:
    table = rows(heading)
    listed = [(before, after) for before, after, _ in table]
    assert sorted(listed) == sorted((str(before), str(after)) for before in moves for after in moves[before])
    assert all(trigger for *_, trigger in table)


def test_the_page_lists_every_stop_reason_with_the_state_of_its_run() -> None:
    table = rows("Stop reasons")
    assert [(reason, state) for reason, state, _ in table] == [(str(one), str(status_for(one))) for one in StopReason]
    assert all(meaning for *_, meaning in table)
