"""Keys and tokens created and revoked while the disk fails and the power is cut: a credential works until it is revoked
or expires, and never after its revocation was acknowledged. Wrong keys from the same address do not make it wait.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from kelpie.accounts.login_failures import FAILURES_MAX
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.http_client import Response
from kelpie.sim.network.network import ConnectionLost
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

ROUNDS = 3
TOKEN_S = 300.0
TRIES_MAX = 200
_NOT_NOW = (None, 429, 503)  # no answer, or one that says nothing about the key
SITE = "https://app.example"
GUESSES = FAILURES_MAX + 2


@dataclass(slots=True)
class HeldCredential:
    """A credential of a client. It may end from `ending_s` on, and has ended at `ended_s` at the latest."""

    id: str
    text: str
    path: str = "/v1/agents/count"
    ending_s: float = float("inf")
    ended_s: float = float("inf")


class Credentials(ServerScenario):
    async def act(self) -> None:
        self.held: list[HeldCredential] = []
        await self.make_agents(1)
        operators = [self.client(f"operator-{number}") for number in range(2)]
        await together((*(self._operate(one) for one in operators), self._visit(self.client("page-maker"))))

    async def _operate(self, operator: ScenarioClient) -> None:
        for number in range(ROUNDS):
            body = {"name": f"{operator.name} {number}", "scopes": ["read"]}
            made = await operator.insist("POST", "/v1/kelpie/keys", body)
            key = HeldCredential(made["id"], made["key"])
            self.held.append(key)
            using = asyncio.ensure_future(self._use(key, f"{operator.name}-program-{number}"))
            await operator.pause(3.0)
            if operator.tosses(0.8):
                await self._revoke(operator, key)
            if operator.tosses(0.2):
                self.machine.crash()
            await using

    async def _revoke(self, operator: ScenarioClient, key: HeldCredential) -> None:
        """Repeats the request until it is certain; a missing key was revoked by a request whose answer got lost."""
        key.ending_s = self.machine.loop.time()
        for _ in range(TRIES_MAX):
            response = await operator.ask("DELETE", f"/v1/kelpie/keys/{key.id}")
            if response is not None and response.status in (200, 404):
                key.ended_s = self.machine.loop.time()
                return
            await operator.pause()
        raise Broken("the server recovers", f"{key.id} could not be revoked in {TRIES_MAX} tries")

    async def _use(self, key: HeldCredential, name: str) -> None:
        client = self.client(name)
        forged = HeldCredential(
            key.id, key.text[:-3] + ("AAA" if not key.text.endswith("AAA") else "BBB"), ending_s=0.0, ended_s=0.0
        )
        for _ in range(6):
            await client.pause()
            if client.tosses(0.3):
                await self._guess(name)
            await self._show(key, name)
            status = await self._status("POST", "/v1/agents/", key.text, name, {"name": "never"})
            if status not in (401, 403, *_NOT_NOW):
                raise Broken("a key to read writes nothing", f"{key.id} was answered {status}")
        await self._show(forged, f"{name}-forger")

    async def _guess(self, name: str) -> None:
        """Shows invented keys from the address of this client, so many that further wrong ones have to wait."""
        for number in range(GUESSES):
            invented = f"kelpie-key_{number:032x}_{'A' * 43}"
            if await self._status("GET", "/v1/agents/count", invented, name) not in (401, *_NOT_NOW):
                raise Broken("an invented key lets nobody in", name)

    async def _visit(self, maker: ScenarioClient) -> None:
        """A page with a token for a few minutes."""
        policy = [{"type": "agent", "id": self.agents[0], "access": ["read_agent"]}]
        asked_s = self.machine.loop.time()
        made = await maker.insist("POST", "/v1/client-side-access-tokens", {"hostname": SITE, "policy": policy})
        path = f"/v1/agents/{self.agents[0]}"
        ended_s = self.machine.loop.time() + TOKEN_S
        token = HeldCredential("a token", made["token"], path, asked_s + TOKEN_S, ended_s)
        self.held.append(token)
        await self._show(token, "page")
        if await self._status("GET", "/v1/agents/", token.text, "page") not in (403, *_NOT_NOW):
            raise Broken("a token opens what it is for", "it listed all agents")
        await asyncio.sleep(TOKEN_S + 1.0)
        await self._show(token, "page")

    async def _show(self, held: HeldCredential, name: str) -> int | None:
        """Uses the credential once. Raises Broken when it works too long or not long enough."""
        loop = self.machine.loop
        called_s = loop.time()
        answer = await self._answer("GET", held.path, held.text, name)
        status = None if answer is None else answer.status
        known = called_s < held.ending_s and loop.time() < held.ending_s
        if known and answer is not None and status == 429 and b"failed logins" in answer.body:
            raise Broken("wrong keys do not make a right one wait", f"{held.id} of {name}")
        if status == 200 and called_s >= held.ended_s:
            raise Broken("what has ended lets nobody in", f"{held.id} of {name}")
        if status not in (200, *_NOT_NOW) and loop.time() < held.ending_s:
            raise Broken("a credential works until it ends", f"{held.id} of {name} was answered {status}")
        return status

    async def _status(self, method: str, path: str, text: str, name: str, body: Any = None) -> int | None:
        answer = await self._answer(method, path, text, name, body)
        return None if answer is None else answer.status

    async def _answer(self, method: str, path: str, text: str, name: str, body: Any = None) -> Response | None:
        await self.machine.up()
        headers = {"Authorization": f"Bearer {text}"}
        try:
            return await self.machine.client(name).request(method, path, body, headers=headers)
        except ConnectionLost:
            return None

    async def settle(self) -> None:
        for number, held in enumerate(self.held):
            ended = held.ended_s < float("inf")
            status = await self._show(held, f"checker-{number}")
            if status != (401 if ended else 200):
                raise Broken("in the end a credential works or has ended", f"{held.id} was answered {status}")
        stored = {row[0] for row in self.machine.disk.query("SELECT id FROM api_keys")}
        if left := [held.id for held in self.held if held.ended_s < float("inf") and held.id in stored]:
            raise Broken("a revoked key is gone", ", ".join(left))
        await super().settle()


CREDENTIALS = scenario(
    "keys-under-storage-faults",
    Credentials,
    faults=(
        Aim(Fault.storage_write_fail, "database.begin", rate=0.05),
        Aim(Fault.storage_write_fail, "database.commit", rate=0.05),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.1),
        Aim(Fault.storage_read_fail, "database.read", rate=0.1),
        Aim(Fault.storage_latency, "database.write", rate=0.1),
        Aim(Fault.storage_latency, "database.read", rate=0.1),
        Aim(Fault.crash_after_write, "database.acknowledge", rate=0.01, times_max=1),
    ),
    swarm=(Fault.storage_busy, Fault.network_delay, Fault.cpu_starvation, Fault.vanishing_client),
)
