"""A model that does not answer, refuses, or sends invalid replies, over a network that loses, delays and reorders."""

import asyncio
import json
from collections import Counter
from dataclasses import replace

from kelpie.core.settings.settings import Settings
from kelpie.sim.checks.client_history import Fate
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.outgoing_http import Internet, OutgoingRequest, OutgoingResponse
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.basic.storage_faults import LINES
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import MODEL, SETTINGS
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

PATIENCE = replace(SETTINGS, model_timeout_s=30.0)
PLACE = "network.provider"
PRICES = {"scripted": 1, "second": 10}  # in millionths of a dollar for a token
VLLM = "127.0.0.1:8000"
GPU = "gpu.test:8000"
ABSENCES = 3
FOUND = replace(
    PATIENCE, default_model="vllm/scripted", openai_base_url=Settings().openai_base_url, openai_api_key=None
)


class ModelFaults(ServerScenario):
    """Three clients, some streaming, some not. A first step that failed leaves nothing in the history."""

    async def act(self) -> None:
        await self.make_agents(2)
        await together(self._talk(client, number) for number, client in enumerate(self.clients(3)))

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(2):
            await client.pause()
            lines = LINES[(number + turn) % len(LINES)]
            await client.say(self.agents[number % 2], *lines, stream=client.tosses(0.7), tokens=client.tosses(0.9))

    def check(self) -> None:
        super().check()
        for each in self.heard:
            if each.said.fate is Fate.failed and not each.trouble:
                raise Broken("a failure is told with its cause", each.said.token)


class FoundModelServer(ModelFaults):
    """No provider is set up, and vLLM listens on its default port: Kelpie finds it, also after a restart and after
    searches that failed. Until it is found, agents get 503, and listing models works all the time."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        machine.world.internet.host(VLLM, self._serve)

    async def _serve(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        if asked.method == "POST" and asked.path != "/v1/chat/completions":
            raise Broken("a search only reads", f"{asked.method} {asked.path}")
        if asked.path != "/v1/models":
            await self.machine.llm(asked, answer)
            return
        await answer.start(200, {"content-type": "application/json"})
        await answer.send(json.dumps({"data": [{"id": "scripted", "owned_by": "vllm"}]}).encode())

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        await super()._talk(client, number)
        listed = await client.ask("GET", "/v1/models/")
        if listed is not None and listed.status != 200:
            raise Broken("models can always be listed", f"{listed.status} {listed.body!r}")


class AbsentModelServer(ModelFaults):
    """Two providers are set up, and one of them is away at first and now and then. Its agents get 503 with the setting
    to look at; the agents of the other do not notice, and listing models works all the time."""

    async def act(self) -> None:
        maker = self.client("maker")
        await self._list(maker)
        await self._refused(maker)
        await self.make_agents(2)
        self._internet.host(GPU, self.machine.llm)
        made = await maker.insist("POST", "/v1/agents/", {"name": "away", "model": "vllm/scripted"})
        self.agents.append(made["id"])
        clients = self.clients(4)
        await together((*(self._talk(client, number) for number, client in enumerate(clients)), self._come_and_go()))
        self._internet.host(GPU, self.machine.llm)

    @property
    def _internet(self) -> Internet:
        return self.machine.world.internet

    async def _refused(self, maker: ScenarioClient) -> None:
        """An agent with a model of the server that is away is refused with the remedy, and not made."""
        answer = await maker.ask("POST", "/v1/agents/", {"name": "away", "model": "vllm/scripted"})
        if answer is not None and (answer.status != 503 or b"VLLM_API_BASE" not in answer.body):
            raise Broken("an absent provider is told with the remedy", f"{answer.status} {answer.body!r}")

    async def _come_and_go(self) -> None:
        rng = self.machine.loop.rng("absence")
        for _ in range(ABSENCES):
            await asyncio.sleep(rng.uniform(0.0, 2.0))
            self._internet.unhost(GPU)
            await asyncio.sleep(rng.uniform(0.5, 4.0))
            self._internet.host(GPU, self.machine.llm)

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(3):
            await client.pause(2.0)
            lines = LINES[(number + turn) % len(LINES)]
            await client.say(self.agents[-1 - number % 3], *lines, stream=client.tosses(0.5), tokens=True)
            await self._list(client)

    async def _list(self, client: ScenarioClient) -> None:
        listed = await client.ask("GET", "/v1/models/")
        handles = [] if listed is None or listed.status != 200 else [each["handle"] for each in listed.json()]
        if listed is not None and MODEL not in handles:
            raise Broken("models can always be listed", f"{listed.status} {listed.body!r}")

    def check(self) -> None:
        super().check()
        for each in self.heard:
            is_own = each.said.agent_id == self.agents[-1]
            if each.said.fate is Fate.failed and not (is_own and "vllm" in each.trouble):
                raise Broken("an absent provider fails its own agents", f"{each.said.agent_id}: {each.trouble}")


class FallbackModel(ModelFaults):
    """A second model answers when the first one fails, and asks another price."""

    def check(self) -> None:
        super().check()
        sold = Counter(
            (r.prompt_tokens, r.completion_tokens, PRICES[r.model] * (r.prompt_tokens + r.completion_tokens))
            for r in self.charged()
        )
        used = [json.loads(usage) for (usage,) in self.machine.disk.query("SELECT usage FROM steps")]
        told = [each for each in used if each["total_tokens"]]  # a step that failed has none
        paid = Counter((each["prompt_tokens"], each["completion_tokens"], each["cost_micros"]) for each in told)
        if wrong := paid - sold:
            raise Broken("a step costs what the model asks that answered it", f"{dict(wrong)} of {dict(sold)}")


ABSENT = scenario(
    "model-server-that-goes-away",
    AbsentModelServer,
    faults=(
        Aim(Fault.crash_after_write, "journal.step", rate=0.15, times_max=1),
        Aim(Fault.storage_latency, "database.write", rate=0.1),
    ),
    swarm=(Fault.cpu_starvation, Fault.network_delay),
    settings=replace(PATIENCE, vllm_base_url=f"http://{GPU}", model_listing_retry_s=1.0, model_attempts=1),
)

LLM_FAULTS = scenario(
    "llm-faults",
    ModelFaults,
    faults=(
        Aim(Fault.llm_timeout, "llm.reply", rate=0.04),
        Aim(Fault.llm_timeout, "llm.stream", rate=0.06),
        Aim(Fault.llm_rate_limit, "llm.with_retry_after", rate=0.1),
        Aim(Fault.llm_rate_limit, "llm.without_retry_after", rate=0.1),
        Aim(Fault.llm_malformed, "llm.body", rate=0.06),
        Aim(Fault.llm_malformed, "llm.content_type", rate=0.06),
        Aim(Fault.llm_malformed, "llm.status", rate=0.06),
        Aim(Fault.llm_malformed, "llm.choices", rate=0.06),
        Aim(Fault.llm_malformed, "llm.arguments", rate=0.15),
        Aim(Fault.llm_malformed, "llm.cut", rate=0.2),
    ),
    swarm=(Fault.storage_latency, Fault.crash_after_write, Fault.clock_jump),
    settings=PATIENCE,
)

NETWORK = scenario(
    "network-to-the-model",
    ModelFaults,
    faults=(
        Aim(Fault.network_packet_loss, PLACE, rate=0.03),
        Aim(Fault.network_delay, PLACE, rate=0.05),
        Aim(Fault.network_partition, PLACE, rate=0.02),
        Aim(Fault.network_message_reorder, PLACE, rate=0.05),
    ),
    swarm=(Fault.llm_rate_limit, Fault.cpu_starvation, Fault.storage_write_fail, Fault.crash_before_write),
    settings=PATIENCE,
)

FALLBACKS = scenario(
    "another-model-answers",
    FallbackModel,
    faults=(
        Aim(Fault.llm_rate_limit, "llm.without_retry_after", rate=0.2),
        Aim(Fault.llm_malformed, "llm.status", rate=0.1),
        Aim(Fault.storage_latency, "database.write", rate=0.1),
    ),
    swarm=(Fault.llm_timeout, Fault.crash_after_write, Fault.cpu_starvation),
    settings=replace(
        PATIENCE,
        model_attempts=1,
        model_fallbacks=("openai/second",),
        model_prices=tuple(f"openai/{name}={price}/{price}" for name, price in PRICES.items()),
    ),
)

MODEL_SERVER = scenario(
    "model-server-on-this-machine",
    FoundModelServer,
    faults=(
        Aim(Fault.network_packet_loss, PLACE, rate=0.03),
        Aim(Fault.network_delay, PLACE, rate=0.04),
        Aim(Fault.network_partition, PLACE, rate=0.015),
    ),
    swarm=(Fault.llm_rate_limit, Fault.cpu_starvation, Fault.crash_before_write, Fault.crash_after_write),
    settings=FOUND,
)
