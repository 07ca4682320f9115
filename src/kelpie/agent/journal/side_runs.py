"""A run that is over when it is written: what a model was asked outside any turn. What it cost counts against the
agent's budget, and can be looked up like everything else."""

from collections.abc import Sequence
from dataclasses import replace

from kelpie.agent.journal.run_endings import ended
from kelpie.core.conversations.runs import Run, RunStatus, Step, StopReason
from kelpie.core.ids import OrganizationId
from kelpie.core.time import Micros
from kelpie.storage.agents.ownership_fence import NOBODY
from kelpie.storage.runs import runs, steps
from kelpie.storage.runs.input import RunInput
from kelpie.world.database import Tx


def over(run: Run, made: Sequence[Step], now: Micros) -> Run:
    """The run with these steps, at its end."""
    for step in made:
        run = replace(run, usage=run.usage + step.usage, step_count=run.step_count + 1)
    return ended(run, StopReason.end_turn, now)


def write(tx: Tx, run: Run, made: Sequence[Step], organization: OrganizationId) -> None:
    """Writes down a run that is over, with its steps."""
    runs.open_run(tx, replace(run, status=RunStatus.running), organization, RunInput((), 1), NOBODY)
    for step in made:
        steps.add(tx, step, organization)
    runs.finish(tx, run)
