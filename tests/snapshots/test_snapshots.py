"""Each session gives the answers, prompts and logs that its file says, also when the power is cut after every step."""

import re
from collections.abc import Callable
from difflib import unified_diff
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.snapshots.session import NoStep, play, steps, without_doubt
from tests.turns import in_turns

FOLDER = Path(__file__).parent
TEXTS = {str(file.relative_to(FOLDER).with_suffix("")): file.read_text() for file in sorted(FOLDER.rglob("*.txt"))}
PARTS = 8  # of the sessions that are played in another way than plainly
_TURN = "the model is asked"
_UNCUT = re.compile(r"^# Without power cuts( or doubtful commits)?, because ", re.MULTILINE)
_CERTAIN = re.compile(r"^# Without (power cuts or )?doubtful commits, because ", re.MULTILINE)


def _in_turns(what: str, fits: Callable[[str], object]) -> list[ParameterSet]:
    return in_turns(what, {name: name for name, text in TEXTS.items() if fits(text)}, PARTS)


@pytest.mark.parametrize("name", TEXTS)
def test_the_session_is_as_it_was_recorded(name: str) -> None:
    recorded = TEXTS[name]
    assert (told := difference(recorded, play(recorded), name)) == "", told


@pytest.mark.parametrize("name", _in_turns("power cuts", lambda text: not _UNCUT.search(text)))
def test_a_power_cut_after_every_step_changes_nothing(name: str) -> None:
    recorded = TEXTS[name]
    assert (told := difference(recorded, play(recorded, restarts=True), name)) == "", told


@pytest.mark.parametrize(
    "name", _in_turns("doubtful commits", lambda text: _TURN in text and not _CERTAIN.search(text))
)
def test_commits_that_are_refused_or_not_heard_of_change_nothing(name: str) -> None:
    recorded = TEXTS[name]
    assert (told := difference(without_doubt(recorded), play(recorded, doubtful=True), name)) == "", told


def difference(recorded: str, played: str, name: str) -> str:
    """What to read and do where a session differs from its file; an empty text where it does not."""
    lines = list(unified_diff(recorded.splitlines(), played.splitlines(), "recorded", "played", lineterm=""))
    if not lines:
        return ""
    again = f"Where this is meant, record it with: python -m tests.snapshots tests/snapshots/{name}.txt"
    return "\n".join([*lines[:80], again])


def test_a_command_that_nobody_knows_is_refused() -> None:
    with pytest.raises(NoStep, match="knows the command 'dance'"):
        play("> dance\n")
    with pytest.raises(NoStep, match="no JSON"):
        play("> POST /v1/agents/ {name}\n")
    with pytest.raises(NoStep, match="no setting 'speed'"):
        play("> setting speed=1\n")


def test_what_was_recorded_is_no_step() -> None:
    assert [step.command for step in steps("# a\n> wait 1\n  200\n  {}\n\n> GET /a\n> {}\n")] == [
        "wait 1",
        "GET /a\n{}",
    ]
