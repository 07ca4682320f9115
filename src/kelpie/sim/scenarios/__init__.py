"""The scenarios, by name."""

from kelpie.sim.scenario import Scenario
from kelpie.sim.scenarios.crashes import ANYWHERE, EVERY_POINT
from kelpie.sim.scenarios.storage import CONVERSATIONS

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in (CONVERSATIONS, EVERY_POINT, ANYWHERE)}
