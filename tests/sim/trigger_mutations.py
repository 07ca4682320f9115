"""Planted bugs in projects and schedules, each with the seed that finds it.

`tests/sim/mutations.py` describes how they are used.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from kelpie.agent.resources.projects import Projects
from kelpie.core.triggers.schedules import Firing, FiringStatus, after_failure
from kelpie.triggers import delivery, scheduler
from tests.sim.mutations import Mutation


def a_home_project_that_goes_is_told_to_no_live_agent(patch: pytest.MonkeyPatch) -> None:
    original = Projects.__init__

    def init(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        self._live_agents = SimpleNamespace(reload=lambda _: None)

    patch.setattr(Projects, "__init__", init)


def a_firing_that_was_heard_is_tried_again(patch: pytest.MonkeyPatch) -> None:
    original = delivery.settle

    def settle(tx: Any, firing: Firing, now: int) -> Firing | None:
        after = original(tx, firing, now)
        again = after is not None and after.status in (FiringStatus.dead, FiringStatus.done) and firing.attempts < 2
        return after_failure(firing, "again", now, counted=True) if again else after

    patch.setattr(scheduler.delivery, "settle", settle)


TRIGGERED = (
    Mutation(a_home_project_that_goes_is_told_to_no_live_agent, "projects", 3, 20, "a live agent has what is stored"),
    Mutation(a_firing_that_was_heard_is_tried_again, "schedules-and-webhooks", 0, 10, "a firing is heard once"),
)
