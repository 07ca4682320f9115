"""The policies differ, are drawn from the seed, and can be replayed from a tape."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from kelpie.sim.loop.errors import TapeDiverged
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.loop.schedules import Fifo
from kelpie.sim.loop.simulation import simulate
from kelpie.sim.loop.tape import Replay, Tape


async def _race(loop: SimLoop) -> str:
    order: list[str] = []

    async def step(name: str) -> None:
        for turn in range(3):
            order.append(f"{name}{turn}")
            await asyncio.sleep(0)

    await asyncio.gather(*(step(name) for name in "abcd"))
    return " ".join(order)


def test_fifo_is_the_order_of_a_real_loop() -> None:
    async def main() -> str:
        return await _race(SimLoop())

    assert simulate(_race, SimLoop(policy=Fifo())).get() == asyncio.run(main())


def test_every_policy_is_drawn_by_some_seed() -> None:
    names = {SimLoop(seed).policy.name.partition("(")[0] for seed in range(50)}
    assert names == {"jitter", "random", "pct"}


def test_seeds_explore_different_orders_and_one_seed_only_one() -> None:
    orders = [simulate(_race, SimLoop(seed)).get() for seed in range(60)]
    assert len(set(orders)) > 30
    assert orders == [simulate(_race, SimLoop(seed)).get() for seed in range(60)]


def test_pct_runs_the_leader_until_it_falls() -> None:
    """Strict priorities: some seed lets one task finish before any other has taken its second turn."""
    pct = [seed for seed in range(200) if SimLoop(seed).policy.name.startswith("pct")]
    orders = {simulate(_race, SimLoop(seed)).get() for seed in pct}
    assert any(order.replace(" ", "").startswith(f"{name}0{name}1{name}2") for order in orders for name in "abcd")


def test_a_tape_replays_the_run() -> None:
    for seed in range(20):
        first = SimLoop(seed)
        outcome = simulate(_race, first)
        again = SimLoop(seed, Replay(first.tape))
        replayed = simulate(_race, again)
        assert replayed.trace_hash == outcome.trace_hash
        assert replayed.get() == outcome.get()
        assert again.tape.picks == first.tape.picks


def test_a_tape_of_another_run_is_noticed() -> None:
    loop = SimLoop(3)
    simulate(_race, loop)
    for tape in (loop.tape.prefix(3), Tape([99] * 1000)):
        assert isinstance(simulate(_race, SimLoop(3, Replay(tape))).error, TapeDiverged)
        assert simulate(_race, SimLoop(3, Replay(tape, strict=False))).error is None


@given(st.lists(st.integers(0, 50)))
def test_a_tape_survives_being_written_down(picks: list[int]) -> None:
    assert list(Tape.parse(Tape(picks).text()).picks) == picks
