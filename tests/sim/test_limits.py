"""The whole server under the seed: no agent starves at the limits of a provider, and a chain of models saves turns."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import pytest

from kelpie.core.access.consumers import Consumer
from kelpie.core.models.provider_limits import ProviderLimits
from kelpie.llm.limits.limiter import Cost, Limiter, Reservation
from kelpie.sim.faults import Aim, Fault, Faults
from kelpie.sim.loop.errors import Broken
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.loop.simulation import simulate
from kelpie.sim.network.outgoing_http import OutgoingRequest, OutgoingResponse
from kelpie.sim.ports.model_provider import ChargedReply, ScriptedLlm, SeenRequest
from kelpie.sim.runs.machine import LLM_HOST, Machine
from kelpie.sim.runs.scenario import Report, Scenario, run
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together
from tests.turns import in_turns

SEEDS = range(8)
SPARE_HOST = "spare.sim"
SPARE = "vllm/scripted"

CALLS, REQUESTS = 2, 30
LIMITED = replace(
    SETTINGS, provider_limits=(f"openai: calls={CALLS} requests={REQUESTS}",), provider_wait_s=900.0, model_attempts=1
)


class Gauge:
    """In front of the model: how many calls were in it at once, and whose they were."""

    def __init__(self, inner: ScriptedLlm) -> None:
        self.most = 0
        self._inner = inner
        self._now = 0

    async def __call__(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        chats = asked.path.endswith("/chat/completions")
        self._now += chats
        self.most = max(self.most, self._now)
        try:
            await self._inner(asked, answer)
        finally:
            self._now -= chats


class Crowd(ServerScenario):
    """One agent's people talk without a pause, in several conversations' worth; the others come now and then."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.gauge = Gauge(machine.llm)
        machine.world.internet.host(LLM_HOST, self.gauge)

    async def act(self) -> None:
        await self.make_agents(6)
        clients = self.clients(6)
        await together(self._talk(client, number) for number, client in enumerate(clients))

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for _ in range(14 if number < 2 else 3):
            if number >= 2:
                await client.pause(20.0)
            heard = await client.say(self.agents[number], stream=client.tosses(0.5))
            if not heard.acknowledged:
                raise Broken("who waits for a provider's limit is served", f"{heard.said.token}: {heard.trouble}")

    def check(self) -> None:
        super().check()
        if self.gauge.most > CALLS:
            raise Broken("calls at once are bounded", f"{self.gauge.most} at once")
        _within_the_minute(self.machine.llm.seen)


def _within_the_minute(seen: list[SeenRequest]) -> None:
    moments = [each.at_s for each in seen]
    for first, last in zip(moments, moments[REQUESTS:], strict=False):
        if last - first < 59.0:  # the network may bring two of them closer together by its own delays
            raise Broken("requests a minute are bounded", f"{REQUESTS + 1} between {first} and {last}")


def check_all(played: Scenario, seeds: range) -> list[Report]:
    reports = [run(played, seed) for seed in seeds]
    for report in reports:
        assert report.broken is None, report.text()
    return reports


@pytest.mark.long
def test_no_agent_starves_at_the_limits_and_the_limits_hold() -> None:
    reports = check_all(scenario("limits", Crowd, settings=LIMITED, quiet_s=120.0), SEEDS)
    assert max(report.virtual_s for report in reports) > 120 + 60, "nobody had to wait for the minute"


@pytest.mark.parametrize(
    "bounds",
    [
        ProviderLimits(calls=1),
        ProviderLimits(calls=3),
        ProviderLimits(requests=20),
        ProviderLimits(calls=2, tokens=300),
    ],
)
@pytest.mark.parametrize("organization", ["one for all", "{agent}"])
def test_nobody_is_passed_twice_by_the_same_agent_while_it_waits(bounds: ProviderLimits, organization: str) -> None:
    """One agent keeps forty calls waiting, some are cancelled; whoever waits with one call sees each other agent served
    at most once before it, whatever the schedule, be they of one organization or of several."""
    for seed in range(15):
        log = simulate(lambda loop: _contend(loop, bounds, organization), SimLoop(seed)).get()
        served = [(at, agent) for at, (what, agent) in enumerate(log) if what == "served"]
        for joined, (what, agent) in enumerate(log):
            if what != "waits" or agent == "greedy":
                continue
            own = next((at for at, who in served if at > joined and who == agent), None)
            assert own is not None, f"{agent} starves with seed {seed}"
            passed = Counter(who for at, who in served if joined < at < own)
            assert all(count == 1 for count in passed.values()), f"{agent} is passed with seed {seed}: {passed}"


class Watched(Limiter):
    """Writes down who is let in, at that moment: who then runs first is up to the loop."""

    def __init__(self, bounds: ProviderLimits) -> None:
        super().__init__("openai", bounds, 36_000.0)
        self.log: list[tuple[str, str]] = []
        self.names: dict[int, str] = {}

    def _admit(self, consumer: Consumer, reservation: Reservation) -> None:
        self.log.append(("served", self.names[id(reservation.cost)]))
        super()._admit(consumer, reservation)


async def _contend(loop: SimLoop, bounds: ProviderLimits, organization: str) -> list[tuple[str, str]]:
    limiter = Watched(bounds)
    rng = loop.rng("contention")
    costs: list[Cost] = []

    async def call(agent: str) -> None:
        limiter.log.append(("waits", agent))
        costs.append(Cost(tokens=rng.randrange(50)))
        limiter.names[id(costs[-1])] = agent
        async with limiter.reserve(Consumer(organization.format(agent=agent), agent), costs[-1]) as reservation:
            await asyncio.sleep(rng.uniform(0.1, 2.0))
            reservation.settle(Cost(tokens=rng.randrange(80)))

    async def modest(agent: str) -> None:
        for _ in range(4):
            await asyncio.sleep(rng.uniform(0.0, 10.0))
            await call(agent)

    greedy = [asyncio.ensure_future(call("greedy")) for _ in range(40)]
    others = [asyncio.ensure_future(modest(f"modest {number}")) for number in range(5)]
    await asyncio.sleep(3.0)
    for task in rng.sample(greedy, 8):
        task.cancel()
    await asyncio.gather(*greedy, *others, return_exceptions=True)
    assert limiter.waiting == 0
    return limiter.log


def test_a_run_is_the_same_every_time() -> None:
    played = scenario("limits", Crowd, settings=LIMITED, quiet_s=120.0)
    assert run(played, 5).trace_hash == run(played, 5).trace_hash


class Impatient(ServerScenario):
    """Nobody may wait for long: who finds no room is told which limit it was, and when to come back."""

    told: ClassVar[Counter[str]] = Counter()

    async def act(self) -> None:
        await self.make_agents(4)
        await together(self._talk(client, number) for number, client in enumerate(self.clients(4)))

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for _ in range(5):
            heard = await client.say(self.agents[number])
            if heard.acknowledged:
                continue
            if heard.status != 429 or "The limit of openai is reached: 6 requests a minute" not in heard.trouble:
                raise Broken("a limit is told by name", f"{heard.status} {heard.trouble}")
            if not 1 <= int(heard.headers["retry-after"]) <= 62:
                raise Broken("a limit tells when to come back", str(heard.headers))
            self.told["429"] += 1


def test_who_waits_too_long_gets_a_429_that_names_the_limit_and_nothing_of_it_stays() -> None:
    Impatient.told.clear()
    settings = replace(SETTINGS, provider_limits=("openai: requests=6",), provider_wait_s=1.0)
    check_all(scenario("impatient", Impatient, settings=settings, quiet_s=120.0), range(4))
    assert Impatient.told["429"] >= 4


class Saved(ServerScenario):
    """The agents' own model fails in its ways; a spare one that never does stands behind it."""

    stood_in: ClassVar[Counter[str]] = Counter()

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.spare = ScriptedLlm(machine.loop, Faults(machine.loop))
        machine.world.internet.host(SPARE_HOST, self.spare)

    def charged(self) -> list[ChargedReply]:
        return [*super().charged(), *self.spare.charged]

    async def act(self) -> None:
        await self.make_agents(2)
        await together(self._talk(client, number) for number, client in enumerate(self.clients(3)))

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for _ in range(4):
            await client.pause()
            stream = client.tosses(0.5)
            heard = await client.say(
                self.agents[number % 2], 'call conversation_search {"query": "x"}', stream=stream, tokens=stream
            )
            if not heard.acknowledged and not stream:
                raise Broken("a chain saves what was not told yet", f"{heard.said.token}: {heard.trouble}")

    def check(self) -> None:
        super().check()
        rows = self.machine.disk.query("SELECT model_handle, provider_name, model FROM steps WHERE status = 'success'")
        for handle, provider, model in rows:
            if handle != f"{provider}/{model}":
                raise Broken("a step names the model that answered", f"{handle}, {provider}, {model}")
            self.stood_in[handle] += 1
        answered = sum(handle == SPARE for handle, _, _ in rows)
        if answered > len(self.spare.seen):
            raise Broken(
                "a step names the model that answered", f"{answered} by one asked {len(self.spare.seen)} times"
            )


CHAINED = replace(
    SETTINGS, vllm_base_url=f"http://{SPARE_HOST}", model_fallbacks=(SPARE,), model_timeout_s=30.0, model_attempts=2
)
WAYS: dict[str, Callable[[], Aim]] = {
    f"{fault}-{place}": lambda fault=fault, place=place, rate=rate: Aim(fault, place, rate=rate)
    for fault, place, rate in (
        (Fault.llm_timeout, "llm.reply", 0.5),
        (Fault.llm_rate_limit, "llm.with_retry_after", 0.6),
        (Fault.llm_rate_limit, "llm.without_retry_after", 0.6),
        (Fault.llm_malformed, "llm.body", 0.6),
        (Fault.llm_malformed, "llm.content_type", 0.6),
        (Fault.llm_malformed, "llm.status", 0.6),
        (Fault.llm_malformed, "llm.choices", 0.6),
    )
}


@pytest.mark.parametrize("way", in_turns("ways to fail", {way: way for way in WAYS}, 2))
def test_a_chain_saves_turns_from_a_model_that_fails(way: str) -> None:
    Saved.stood_in.clear()
    aim = WAYS[way]()
    reports = check_all(scenario("chain", Saved, faults=(aim,), settings=CHAINED, quiet_s=120.0), range(4))
    assert sum(report.fired(aim.fault, aim.place) for report in reports) > 8
    assert Saved.stood_in[SPARE] > 0, "nobody ever stood in"
    assert Saved.stood_in["openai/scripted"] > 0, "the agents' own model was never used"


def test_a_chain_amid_everything_else() -> None:
    swarm = (Fault.storage_write_fail, Fault.crash_after_write, Fault.network_packet_loss, Fault.clock_jump)
    faults = tuple(replace(make(), rate=0.15) for make in WAYS.values())
    played = scenario("chain-swarm", _Battered, faults=faults, swarm=swarm, settings=CHAINED, quiet_s=180.0)
    check_all(played, range(8))


class _Battered(Saved):
    """Beside the model, storage, network and clock fail too: what cannot be saved must still be told."""

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for _ in range(3):
            await client.pause()
            stream = client.tosses(0.5)
            await client.say(self.agents[number % 2], stream=stream, tokens=stream)
