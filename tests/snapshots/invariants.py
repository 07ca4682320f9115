"""What must be true of the server after every step of a session, whatever the step was.

It reads the memory of the server and the disk, so a session notices what none of its answers shows.
"""

import asyncio

from kelpie.sim.checks.consistency import rows_agree
from kelpie.sim.loop.errors import Broken
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.checks.index_checks import index_is_whole
from kelpie.sim.scenarios.checks.memory_checks import memory_is_current, nothing_is_held, spending_is_current
from kelpie.sim.scenarios.checks.turn_checks import newest_runs_are_known, turns_are_recorded

_REST_S = 3600.0
_LOOK_S = 30.0
_UNDER_WAY = "SELECT id FROM runs WHERE status = 'running'"


def hold(machine: Machine) -> None:
    """What holds between two steps, if nobody waits for an answer. Raises Broken.

    While a turn is under way, the call that it makes has no result yet, which the rows show.
    """
    memory_is_current(machine, fully=True)
    spending_is_current(machine)
    turns_are_recorded(machine.disk)
    newest_runs_are_known(machine.disk)
    if not machine.disk.query(_UNDER_WAY):
        rows_agree(machine.disk, machine.history)
    index_is_whole(machine.disk)


async def hold_at_the_end(machine: Machine) -> None:
    """At the latest after a while the server holds nothing for work that is over. Raises Broken."""
    until_s = machine.loop.time() + _REST_S
    while True:
        try:
            nothing_is_held(machine)
            break
        except Broken:
            if machine.loop.time() > until_s:
                raise
        await asyncio.sleep(_LOOK_S)
    hold(machine)
