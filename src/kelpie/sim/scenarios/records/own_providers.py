"""Providers with organizations' own keys, added, changed and deleted while their agents talk and the encryption key is
rotated: a change counts for the next call, no organization calls with another's key, and in the end every stored key
reads as it was written, with the one encryption key that is left.
"""

import asyncio
import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.http_client import Response
from kelpie.sim.network.outgoing_http import OutgoingRequest, OutgoingResponse
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import MODEL
from kelpie.sim.scenarios.records.secrets import KEYS, boot_with_key_file, everything_is_resealed, one_key_is_left
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

HOST = "own.sim"
NAME = "mine"  # in both organizations
PROVIDERS = "/v1/providers"
CHANGES = 4
MESSAGES = 5
ROTATIONS = 2
TRIES_MAX = 100
_TOKEN = re.compile(r"tok-\d+-x")


@dataclass(slots=True)
class StoredKey:
    """The key of one organization's provider, with the values that it may have: one, or more after an answer that was
    lost. None: there is no provider."""

    values: set[str | None] = field(default_factory=lambda: {None})
    doubtful: set[str] = field(default_factory=set[str])
    retired_s: dict[str, float] = field(default_factory=dict[str, float])  # when a key was surely replaced

    def sent(self, value: str | None, answer: Response | None, now: float) -> None:
        """Notes a change that was asked for."""
        if answer is not None and (answer.status == 200 or (value is None and answer.status == 404)):
            for each in self.values - {value}:
                if each is not None and each not in self.doubtful:
                    self.retired_s[each] = now
            self.values = {value}
        elif answer is None or answer.status >= 500:
            self.values.add(value)
            if value is not None:
                self.doubtful.add(value)


@dataclass(frozen=True, slots=True)
class _Call:
    """A model call as the provider got it."""

    key: str
    agent: str
    token: str


class Tenant:
    """One organization: its client, its provider's key, and its agent."""

    def __init__(self, name: str, client: ScenarioClient) -> None:
        self.name = name
        self.client = client
        self.stored = StoredKey()
        self.agent = ""
        self._keys = 0

    def new_key(self) -> str:
        self._keys += 1
        return f"hush-{self.name}-{self._keys}"

    async def provider(self) -> dict[str, Any] | None:
        """The provider as it is stored."""
        found = await self.client.insist("GET", f"{PROVIDERS}/")
        return found[0] if found else None


class OwnProviders(ServerScenario):
    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._calls: list[_Call] = []
        self._listed_with: list[str] = []
        machine.world.internet.host(HOST, self._serve)

    async def _serve(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        key = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if asked.method == "GET":
            self._listed_with.append(key)
        else:
            body = json.loads(asked.body)
            tokens = _TOKEN.findall(json.dumps(body["messages"]))
            self._calls.append(_Call(key, body.get("user", ""), tokens[-1] if tokens else ""))
        await self.machine.llm(asked, answer)

    # --- what is done ----------------------------------------------------------------------------------------------

    async def act(self) -> None:
        owner = self.client("owner")
        organization = await owner.insist("POST", "/v1/admin/orgs/", {"name": "others"})
        body = {"name": "guest", "organization_id": organization["id"]}
        user = await owner.insist("POST", "/v1/admin/users/", body)
        connection = self.machine.client("guest", {"user_id": user["id"]})
        guest = ScenarioClient(self.machine, "guest", self.heard, connection)
        self.tenants = [Tenant("ours", owner), Tenant("theirs", guest)]
        for tenant in self.tenants:
            await self._have(tenant)
            made = {"name": tenant.name, "model": f"{NAME}/scripted"}
            tenant.agent = (await tenant.client.insist("POST", "/v1/agents/", made))["id"]
        self.agents.append(self.tenants[0].agent)
        talking = [self._talk(tenant) for tenant in self.tenants]
        changing = [self._change(tenant) for tenant in self.tenants]
        await together((*talking, *changing, self._rotate(self.client("operator"))))

    async def _have(self, tenant: Tenant) -> str:
        """Adds the provider, unless it is there."""
        for _ in range(TRIES_MAX):
            if (found := await tenant.provider()) is not None:
                return str(found["id"])
            key = tenant.new_key()
            body = {"name": NAME, "provider_type": "openai", "api_key": key, "base_url": f"http://{HOST}/v1"}
            body["access_key"] = f"hush-of-{tenant.name}"
            tenant.stored.sent(key, await tenant.client.ask("POST", PROVIDERS, body), self._now)
        raise Broken("a provider can be added", tenant.name)

    async def _talk(self, tenant: Tenant) -> None:
        for _ in range(MESSAGES):
            await tenant.client.pause(2.0)
            await tenant.client.say(tenant.agent, "remember something", stream=tenant.client.tosses(0.5))

    async def _change(self, tenant: Tenant) -> None:
        client = tenant.client
        for _ in range(CHANGES):
            await client.pause(3.0)
            path = f"{PROVIDERS}/{await self._have(tenant)}"
            if client.tosses(0.3):
                tenant.stored.sent(None, await client.ask("DELETE", path), self._now)
                continue
            key = tenant.new_key()
            answer = await client.ask("PATCH", path, {"api_key": key})
            tenant.stored.sent(key, answer, self._now)
            if answer is not None and b"hush" in answer.body:
                raise Broken("a key is shown to nobody", answer.body.decode())
            for other in self.tenants:
                if other is not tenant:
                    await self._is_closed(other.client, path)

    async def _is_closed(self, client: ScenarioClient, path: str) -> None:
        answer = await client.ask("GET", path)
        if answer is not None and answer.status < 500 and answer.status != 404:
            raise Broken("an organization sees its own providers only", f"{path}: {answer.status}")

    async def _rotate(self, operator: ScenarioClient) -> None:
        for _ in range(ROTATIONS):
            await operator.pause(4.0)
            await operator.ask("POST", f"{KEYS}/rotate")
            if operator.tosses(0.5):
                await operator.pause(0.02)
                self.machine.crash()

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # --- what is there at the end ----------------------------------------------------------------------------------

    async def settle(self) -> None:
        status = await self.client("visitor").insist("GET", f"{KEYS}?wait_s=60")
        if status["rotating"] or status["unreadable_count"]:
            raise Broken("a rotation ends", f"{status}")
        one_key_is_left(self.machine, status["keys"])
        await everything_is_resealed(self.machine, self.client("visitor"))
        for tenant in self.tenants:
            await self._reads_as_written(tenant)
            await tenant.client.insist("PATCH", f"/v1/agents/{tenant.agent}", {"model": MODEL})
        guest = self.tenants[1]
        heard = await guest.client.say(guest.agent)
        if not heard.acknowledged:
            raise Broken("no agent is bricked", f"{guest.agent} was told {heard.status} {heard.trouble}")
        await super().settle()

    async def _reads_as_written(self, tenant: Tenant) -> None:
        """The provider is there or not, and called with a key that may be stored."""
        found, stored = await tenant.provider(), tenant.stored
        possible = stored.values | stored.doubtful
        if found is None:
            if None not in stored.values:
                raise Broken("a provider that was added is there", tenant.name)
            return
        self._listed_with.clear()
        await tenant.client.insist("POST", f"{PROVIDERS}/{found['id']}/check")
        if not self._listed_with or not possible.issuperset(self._listed_with):
            told = f"{tenant.name}: called with {self._listed_with}, but it was {sorted(filter(None, possible))}"
            raise Broken("a stored key reads as it was written", told)

    def check(self) -> None:
        super().check()
        said_s = {each.token: each.called_s for each in self.machine.history.said}
        names = {tenant.agent: tenant.name for tenant in self.tenants}
        for call in self._calls:
            name = names.get(call.agent)
            if name is not None and not call.key.startswith(f"hush-{name}-"):
                raise Broken("an organization calls with its own key", f"{name} called with {call.key}")
        for tenant in self.tenants:
            for call in self._calls:
                ended_s = tenant.stored.retired_s.get(call.key)
                if ended_s is not None and call.token in said_s and said_s[call.token] > ended_s:
                    raise Broken("a change counts for the next call", f"{call.token} was answered with {call.key}")


OWN_PROVIDERS = replace(
    scenario(
        "providers-of-organizations",
        OwnProviders,
        faults=(
            Aim(Fault.crash_after_write, "keys.write", rate=0.1, times_max=1),
            Aim(Fault.crash_during_transaction, "database.commit", rate=0.01, times_max=2),
            Aim(Fault.crash_after_write, "database.acknowledge", rate=0.01, times_max=2),
            Aim(Fault.storage_write_fail, "database.commit", rate=0.02),
            Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.02),
            Aim(Fault.storage_read_fail, "database.read", rate=0.02),
            Aim(Fault.llm_rate_limit, "llm.with_retry_after", rate=0.05),
        ),
        swarm=(Fault.storage_busy, Fault.storage_latency, Fault.network_delay, Fault.network_packet_loss),
    ),
    boot=boot_with_key_file,
)
