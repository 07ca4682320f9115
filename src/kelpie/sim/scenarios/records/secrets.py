"""Secrets written and read while their encryption key is rotated and the power is cut: every secret reads as it was
written, and in the end all of them use the one key that is left.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import JSON, Text

from kelpie.core.settings.settings import Settings
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.http_client import Response
from kelpie.sim.ports.database import SimDatabase
from kelpie.sim.ports.key_file import SimKeyFile
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import RunningKelpie, boot
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together
from kelpie.storage.tables import metadata
from kelpie.world.keyring import Key, Keyring
from kelpie.world.world import World

ROUNDS = 4
ROTATIONS = 3
KEYS = "/v1/kelpie/encryption"
UNSET = ""
SECRET = (
    *("agent_secrets.value", "sandbox_variables.value", "mcp_servers.token", "mcp_servers.custom_headers"),
    *("providers.api_key", "providers.access_key"),
)
_SEALED = re.compile(r'"?1:[0-9a-f]{16}:')


@dataclass(slots=True)
class HeldSecret:
    """A secret of a client, with the values that it may have: one, or more after an answer that was lost."""

    path: str
    values: set[str] = field(default_factory=lambda: {UNSET})

    def sent(self, value: str, answer: Response | None) -> None:
        """Notes a change that was asked for."""
        if answer is not None and answer.status == 200:
            self.values = {value}
        elif answer is None or answer.status >= 500:
            self.values.add(value)


class Secrets(ServerScenario):
    async def act(self) -> None:
        self.held: list[HeldSecret] = []
        await self.make_agents(1)
        config = (await self.client("maker").insist("POST", "/v1/sandbox-config/local/default"))["id"]
        writers = [self._write(client, number, config) for number, client in enumerate(self.clients(2))]
        await together((*writers, self._rotate(self.client("operator"))))

    async def _rotate(self, operator: ScenarioClient) -> None:
        for _ in range(ROTATIONS):
            await operator.pause(3.0)
            await operator.ask("POST", f"{KEYS}/rotate")
            if operator.tosses(0.3):
                await operator.pause(0.02)
                self.machine.crash()

    async def _write(self, client: ScenarioClient, number: int, config: str) -> None:
        agent = (await client.insist("POST", "/v1/agents/", {"name": f"keeper {number}"}))["id"]
        sse = {"mcp_server_type": "sse", "server_url": "https://mcp.example"}
        server = await client.ask("POST", "/v1/mcp-servers/", {"server_name": f"s{number}", "config": sse})
        secret = HeldSecret(f"/v1/agents/{agent}?include=agent.secrets")
        self.held.append(secret)
        token = None
        if server is not None and server.status == 200:
            token = HeldSecret(f"/v1/mcp-servers/{server.json()['id']}")
            self.held.append(token)
        for turn in range(ROUNDS):
            value = f"hush-{number}-{turn}"
            await client.pause(2.0)
            body = {"key": value.replace("-", "_"), "value": value}
            await client.ask("POST", f"/v1/sandbox-config/{config}/environment-variable", body)
            secret.sent(value, await client.ask("PATCH", f"/v1/agents/{agent}", {"secrets": {"KEY": value}}))
            if token is not None:
                changed = sse | {"auth_token": value, "custom_headers": {"X": value}}
                token.sent(f"Bearer {value}", await client.ask("PATCH", token.path, {"config": changed}))
            for each in (secret, token):
                if each is not None:
                    _check(each, await client.ask("GET", each.path))

    async def settle(self) -> None:
        visitor = self.client("visitor")
        status = await visitor.insist("GET", f"{KEYS}?wait_s=60")
        if status["rotating"] or status["unreadable_count"]:
            raise Broken("a rotation ends", f"{status}")
        for each in self.held:
            _check(each, await visitor.ask("GET", each.path))
        one_key_is_left(self.machine, status["keys"])
        await everything_is_resealed(self.machine, visitor)
        await super().settle()


async def everything_is_resealed(machine: Machine, client: ScenarioClient) -> None:
    """A rotation at rest, when nobody writes secrets: every one of them uses the new key."""
    await client.insist("POST", f"{KEYS}/rotate")
    one_key_is_left(machine, (await client.insist("GET", f"{KEYS}?wait_s=60"))["keys"])


def one_key_is_left(machine: Machine, known: Sequence[Mapping[str, Any]]) -> None:
    """The database knows one key, the file has it, and every secret in any column of any table uses it."""
    disk = machine.disk
    there = {Key(material).id for material in disk.key_file}
    if len(known) != 1 or known[0]["id"] not in there:
        raise Broken("in the end one key is left", f"the database knows {known}, the file has {sorted(there)}")
    for table in metadata.sorted_tables:
        columns = [each.name for each in table.columns if isinstance(each.type, (Text, JSON))]
        for row in disk.query(f"SELECT {', '.join(columns)} FROM {table.name}") if columns else ():
            for column, stored in zip(columns, row, strict=True):
                place = f"{table.name}.{column}"
                if not isinstance(stored, str):
                    continue
                if _SEALED.match(stored) and not stored.strip('"').startswith(f"1:{known[0]['id']}:"):
                    raise Broken("every secret uses the key that is left", f"{place}: {stored[:40]}, known is {known}")
                if place in SECRET and stored and (not _SEALED.match(stored) or "hush" in stored):
                    raise Broken("every secret uses the key that is left", f"{place}: {stored[:40]} is not encrypted")


def _check(held: HeldSecret, answer: Response | None) -> None:
    """Raises Broken for a secret that is not as its client was told."""
    if answer is None or answer.status != 200:
        return
    found = answer.json()
    shown = next((one["value"] for one in found.get("secrets", ())), found.get("auth_token") or UNSET)
    if b"kelpie_error" in answer.body or shown not in held.values:
        raise Broken("a secret reads as it was written", f"{held.path}: {shown}, but it was {sorted(held.values)}")


async def boot_with_key_file(world: World, settings: Settings) -> RunningKelpie:
    """Boots a server whose encryption keys are in a file that outlives it."""
    assert isinstance(world.database, SimDatabase)
    return await boot(replace(world, keyring=Keyring(store=SimKeyFile(world.database))), settings)


SECRETS = replace(
    scenario(
        "secrets-under-rotation",
        Secrets,
        faults=(
            Aim(Fault.crash_before_write, "keys.write", rate=0.1, times_max=2),
            Aim(Fault.crash_after_write, "keys.write", rate=0.1, times_max=2),
            Aim(Fault.crash_during_transaction, "database.commit", rate=0.02, times_max=3),
            Aim(Fault.crash_after_write, "database.acknowledge", rate=0.02, times_max=3),
            Aim(Fault.storage_write_fail, "database.commit", rate=0.03),
            Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.03),
            Aim(Fault.storage_read_fail, "database.read", rate=0.03),
        ),
        swarm=(Fault.storage_busy, Fault.disk_full, Fault.storage_latency, Fault.network_delay),
    ),
    boot=boot_with_key_file,
)
