"""The minutes of a pause, whatever a model sends, and who may have the tool."""

import pytest

from kelpie.agent.prompt.agent_types import TYPES
from kelpie.core.agents.agent import AgentType
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import DEFAULT_ORGANIZATION
from kelpie.tools.builtin import BUILTINS, RESERVED
from kelpie.tools.builtin.pause import NAME, corrected_arguments, require_heartbeats

PAUSE = BUILTINS[NAME].row(DEFAULT_ORGANIZATION, 0)


@pytest.mark.parametrize(
    ("given", "minutes"),
    [
        *((n, n) for n in (1, 2, 30, 60)),
        *((n, 1) for n in (0, -1, -1e300, "-4", "0", float("-inf"))),
        *((n, 60) for n in (61, 10**30, "90", float("inf"))),
        *((n, 2) for n in (None, "", "soon", "5 minutes", [], {}, [5], True, False, float("nan"), "nan")),
        *((n, 5) for n in (5.0, "5", " 5 ", 5.2, "4.9")),
    ],
)
def test_minutes_are_clamped_and_bad_ones_mean_the_default(given: object, minutes: int) -> None:
    assert corrected_arguments({"minutes": given}) == {"minutes": minutes}


def test_left_out_minutes_and_foreign_arguments_mean_the_default() -> None:
    assert corrected_arguments({}) == {"minutes": 2} and corrected_arguments({"reason": "tired"}) == {"minutes": 2}


def test_the_name_is_reserved() -> None:
    assert NAME == "pause_heartbeats" and NAME in RESERVED


@pytest.mark.parametrize("agent_type", AgentType)
def test_only_types_with_heartbeats_take_it(agent_type: AgentType) -> None:
    assert agent_type.has_heartbeats == TYPES[agent_type].heartbeats
    if agent_type.has_heartbeats:
        require_heartbeats("tools", agent_type, [PAUSE])
        return
    with pytest.raises(InvalidInput, match=rf"^tools: '{NAME}' .*{agent_type} has none.*memgpt_agent"):
        require_heartbeats("tools", agent_type, [PAUSE])
