"""A scenario, and one run of it: `run(scenario, seed)` is a pure function of the two.

A run has three parts: the body under faults, a quiet period in which everything must recover, and the checks. A
scenario names the faults it is about with their places; `search` fails when one of them never fired there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from kelpie.core.settings.settings import Settings
from kelpie.sim.checks.client_history import History
from kelpie.sim.faults import Aim, Fault, Faults, Firing, places_of, swarm
from kelpie.sim.loop.errors import SimError
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.loop.simulation import simulate
from kelpie.sim.loop.tape import Replay, Tape
from kelpie.sim.ports.disk import Disk, Watcher, schema_image
from kelpie.sim.runs.machine import Boot, Machine
from kelpie.sim.runs.sim_world import SimWorld
from kelpie.world.database import Tx

QUIET_S = 60.0
LOOKS = 2
PICKS_MAX = 500_000
VIRTUAL_S_MAX = 6 * 3600.0

Part = Callable[[Machine], Awaitable[None]]
Check = Callable[[Disk, History], None]
Schema = Callable[[Tx], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Definition of a scenario. `settled` runs after the quiet period and shows that every agent still works."""

    name: str
    body: Part
    boot: Boot | None = None
    schema: Schema | None = None  # made once per process, before any run, and copied
    faults: tuple[Aim, ...] = ()  # always on, and missed when they never fire
    plots: tuple[tuple[Aim, ...], ...] = ()  # each run has one of them, in turn by its seed; missed like `faults`
    swarm: tuple[Fault, ...] = ()  # may fire anywhere; about half of them are off in each run
    swarm_everywhere: bool = False  # also in the places that only the real application has
    settled: Part | None = None
    checks: tuple[Check, ...] = ()
    watches: tuple[Callable[[], Watcher], ...] = ()  # looked through after every commit
    settings: Settings = field(default_factory=Settings)
    quiet_s: float = QUIET_S
    quiet_least_s: float = QUIET_S
    pending: tuple[str, ...] = ()  # statements that find work left to do: without any, a long quiet period ends early
    tolerates_unhandled: bool = False

    @property
    def named(self) -> tuple[Aim, ...]:
        """Every fault that the scenario is about, each once."""
        return tuple(dict.fromkeys((*self.faults, *(aim for plot in self.plots for aim in plot))))

    @property
    def points(self) -> tuple[tuple[Fault, str], ...]:
        """Every fault that can fire in the scenario, with its place, each once: those it names first."""
        of_swarm = ((kind, place) for kind in self.swarm for place in places_of(kind, everywhere=self.swarm_everywhere))
        return tuple(dict.fromkeys((*((aim.fault, aim.place) for aim in self.named), *of_swarm)))

    def aims(self, seed: int) -> tuple[Aim, ...]:
        """Those of them that are on in the run with this seed."""
        return (*self.faults, *(self.plots[seed % len(self.plots)] if self.plots else ()))


@dataclass(frozen=True, slots=True)
class Report:
    """Report of one run. `broken` is None when every invariant held."""

    scenario: str
    seed: int
    policy: str
    trace_hash: str
    events: int
    virtual_s: float
    broken: str | None
    firings: tuple[Firing, ...]
    tape: Tape
    notes: tuple[str, ...]
    error: BaseException | None = None

    def fired(self, fault: Fault, place: str | None = None) -> int:
        """The number of times the fault fired, at this place or anywhere."""
        return sum(each.fault is fault and place in (None, each.place) for each in self.firings)

    def text(self) -> str:
        """The report for a person: what broke, how to reproduce it, and the last events."""
        last = "\n  ".join(self.notes[-25:])
        head = f"{self.scenario} seed {self.seed} ({self.policy}, {self.events} events, {self.trace_hash})"
        return f"{head}: {self.broken or 'held'}\n  {last}"


def run(
    scenario: Scenario,
    seed: int,
    *,
    tape: Tape | None = None,
    strict: bool = True,
    disconnected: Iterable[Fault] = (),
) -> Report:
    """Runs a scenario with a seed; with a tape, its picks are replayed instead of drawn."""
    image = _image(scenario.schema) if scenario.schema else None
    policy = Replay(tape, strict=strict) if tape is not None else None
    loop = SimLoop(seed, policy, picks_max=PICKS_MAX, virtual_s_max=VIRTUAL_S_MAX)
    aims = (*swarm(loop.rng("swarm"), scenario.swarm, everywhere=scenario.swarm_everywhere), *scenario.aims(seed))
    disk = Disk(image)
    gate: list[Faults] = []

    async def main(loop: SimLoop) -> None:
        faults = Faults(loop, aims, disconnected=disconnected)
        gate.append(faults)
        await _run_phases(scenario, Machine(SimWorld(lambda _: faults, disk), scenario.boot, scenario.settings))

    outcome = simulate(main, loop)
    disk.close()
    return Report(
        scenario=scenario.name,
        seed=seed,
        policy=loop.policy.name,
        trace_hash=outcome.trace_hash,
        events=outcome.events,
        virtual_s=outcome.virtual_s,
        broken=_broken(scenario, outcome.error, loop.unhandled),
        firings=tuple(gate[0].firings),
        tape=loop.tape,
        notes=tuple(loop.trace.notes),
        error=outcome.error,
    )


async def _run_phases(scenario: Scenario, machine: Machine) -> None:
    for watch in scenario.watches:
        machine.disk.watch(watch())
    if scenario.boot is not None:
        await machine.up()
    await scenario.body(machine)
    machine.faults.quiet()
    await _rest(scenario, machine)
    if scenario.settled is not None:
        if scenario.boot is not None:
            await machine.up()
        await scenario.settled(machine)
    await machine.stop()
    for check in scenario.checks:
        check(machine.disk, machine.history)


async def _rest(scenario: Scenario, machine: Machine) -> None:
    """The quiet period. It ends before its time when nothing was left to do at two looks in a row."""
    left_s, looks = scenario.quiet_s, 0
    while left_s > 0 and looks < LOOKS:
        pause_s = min(left_s, scenario.quiet_least_s / LOOKS) if scenario.pending else left_s
        await asyncio.sleep(pause_s)
        left_s -= pause_s
        looks = 0 if any(machine.disk.query(f"{statement} LIMIT 1") for statement in scenario.pending) else looks + 1


@lru_cache(maxsize=8)
def _image(schema: Schema) -> bytes:
    return schema_image(schema)


def _broken(scenario: Scenario, error: BaseException | None, unhandled: list[str]) -> str | None:
    if isinstance(error, SimError):
        return f"{type(error).__name__}: {error}"
    if error is not None:
        return f"the scenario failed: {type(error).__name__}: {error}"
    if unhandled and not scenario.tolerates_unhandled:
        return f"nobody handled: {unhandled[0]}"
    return None
