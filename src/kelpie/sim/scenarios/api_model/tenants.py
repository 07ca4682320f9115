"""Two organizations on one server that do the same: with the same names, texts and choices, each against its own model.

Whatever one of them sees of the other breaks its model. At the end strangers find nothing, and a power cut changes
nothing that can be read.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kelpie.core.ids import DEFAULT_ORGANIZATION
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.ports.clock import START
from kelpie.sim.runs.scenario import QUIET_S
from kelpie.sim.scenarios.api_model.account_model import AccountModel
from kelpie.sim.scenarios.api_model.agent_model import AgentModel, CheckpointModel
from kelpie.sim.scenarios.api_model.approval_model import APPROVAL_S, ApprovalModel
from kelpie.sim.scenarios.api_model.credential_model import OWN, CredentialModel
from kelpie.sim.scenarios.api_model.field_model import (
    AGENTS,
    ARCHIVES,
    BLOCKS,
    CONVERSATIONS,
    IDENTITIES,
    FeedbackModel,
    FieldModel,
)
from kelpie.sim.scenarios.api_model.limit_model import PRICE_USD, LimitModel
from kelpie.sim.scenarios.api_model.memory_model import (
    BYTES_MAX,
    ENTRIES_MAX,
    VALUE_BYTES_MAX,
    VERSIONS_KEPT,
    BlockModel,
    PassageModel,
    WorkingMemoryModel,
)
from kelpie.sim.scenarios.api_model.modelled_resource import ModelledResource
from kelpie.sim.scenarios.api_model.record_kinds import (
    FolderKind,
    GroupKind,
    IdentityKind,
    McpServerKind,
    ProjectKind,
    ProviderKind,
    ToolKind,
    VariableKind,
)
from kelpie.sim.scenarios.api_model.record_model import Cast, CastModel, RecordModel
from kelpie.sim.scenarios.api_model.template_model import TemplateModel
from kelpie.sim.scenarios.api_model.trigger_kinds import ScheduleKind, WebhookKind
from kelpie.sim.scenarios.api_model.turn_model import MAILBOX_SIZE, PROMPT_USD, REPLY_USD, TurnModel, WallClock
from kelpie.sim.scenarios.checks.route_walk import (
    a_power_cut_changes_nothing,
    foreign_ids_link_nothing,
    ids_of,
    strangers_reach_nothing,
)
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.external_service import SOURCE
from kelpie.sim.scenarios.fixtures.kelpie_node import MODEL, SETTINGS
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

ROUNDS = 15
CHECKS = 0.15
DAY_S = 24 * 3600
DATES = (0, 30, 40, 58, 100, 364)  # in days of the year
OPERATED = ("key_id", "user_id")  # of what another organization has, what an operator may see
FAULTS = (
    Aim(Fault.storage_write_fail, "database.begin", rate=0.02),
    Aim(Fault.storage_write_fail, "database.commit", rate=0.02),
    Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.03),
    Aim(Fault.storage_read_fail, "database.read", rate=0.01),
    Aim(Fault.crash_before_write, "database.begin", rate=0.005, times_max=2),
    Aim(Fault.crash_after_write, "database.acknowledge", rate=0.01, times_max=2),
)


class Tenants(ServerScenario):
    """A subclass says which resources each organization has."""

    rounds = ROUNDS
    at_once = True
    always_lists = False  # else they are walked over in half of the runs
    links = False  # what one organization has is linked with what the other has, which must be refused

    async def models(self, client: ScenarioClient) -> Sequence[ModelledResource]:
        raise NotImplementedError

    async def act(self) -> None:
        self.of: dict[str, Sequence[ModelledResource]] = {}
        owner = self.client("owner")
        clients = (owner, await self.moves_in(owner))
        for client in clients:
            self.of[client.name] = await self.models(client)
        if self.at_once:
            await together(self._live(client, self.rounds) for client in clients)
            return
        for _ in range(self.rounds):
            for client in clients:
                await self._live(client, 1)

    async def moves_in(self, owner: ScenarioClient) -> ScenarioClient:
        """A user of another organization."""
        self.guests = (await owner.insist("POST", "/v1/admin/orgs/", {"name": "neighbour"}))["id"]
        body = {"name": "guest", "organization_id": self.guests}
        self.user_id = (await owner.insist("POST", "/v1/admin/users/", body))["id"]
        return self._guest()

    async def _live(self, client: ScenarioClient, rounds: int) -> None:
        resources = self.of[client.name]
        for _ in range(rounds):
            await client.pause(0.5)
            resource = client.picks(resources)
            await resource.act()
            if client.tosses(CHECKS):
                await client.picks(resources).check()

    async def settle(self) -> None:
        for resources in self.of.values():
            for resource in dict.fromkeys(resources):
                await resource.check()
        await super().settle()
        half = self.machine.loop.seed // 2 % 2 == 0  # with and without faults
        if half or self.always_lists:
            for client, organization in ((self.client("owner"), DEFAULT_ORGANIZATION), (self._guest(), self.guests)):
                await self.reads_are_right(client, organization)
        if half:
            await self._is_kept_apart()

    async def _is_kept_apart(self) -> None:
        """Neither organization reaches anything of the other, and a power cut changes nothing for either."""
        owner, guest = self.client("owner"), self._guest()
        own, foreign = (ids_of(self.machine, organization) for organization in (DEFAULT_ORGANIZATION, self.guests))
        await strangers_reach_nothing(self.machine, guest, own)
        apart = {name: one for name, one in foreign.items() if name not in OPERATED}
        await strangers_reach_nothing(self.machine, owner, apart)
        await a_power_cut_changes_nothing(self.machine, guest, foreign)
        for resources in self.of.values():
            for resource in dict.fromkeys(resources):
                await resource.check()
        if self.links:
            ours = {name: one for name, one in own.items() if name not in OPERATED}
            await foreign_ids_link_nothing(self.machine, guest, foreign, owner, ours)

    def _guest(self) -> ScenarioClient:
        client = self.machine.client("guest", {"user_id": self.user_id})
        return ScenarioClient(self.machine, "guest", self.heard, client)

    async def agent_of(self, client: ScenarioClient, **given: Any) -> str:
        """A new agent of the organization; the same in each of them."""
        body = {"name": "keeper", "agent_type": "letta_v1_agent", **given}
        return (await client.insist("POST", "/v1/agents/", body))["id"]


class MemoryOfTenants(Tenants):
    async def models(self, client: ScenarioClient) -> Sequence[ModelledResource]:
        agent_id = await self.agent_of(client)
        await client.insist("POST", f"/v1/agents/{agent_id}/messages", {"input": "hello"})
        await client.insist("POST", f"/v1/conversations/?agent_id={agent_id}", {"summary": "apart"})
        await client.insist("POST", f"/v1/conversations/default/fork?agent_id={agent_id}")
        quotas = f"/v1/kelpie/quotas/{DEFAULT_ORGANIZATION if client.name == 'owner' else self.guests}"
        agents = AgentModel(self.machine, client, self.client("operator"), quotas)
        blocks = BlockModel(self.machine, client, agent_id)
        entries = WorkingMemoryModel(self.machine, client, agent_id)
        passages = PassageModel(self.machine, client, agent_id)
        checkpoint = CheckpointModel(self.machine, client, agent_id, (blocks, entries, passages))
        return [blocks, blocks, entries, entries, passages, checkpoint, agents]


class TurnsOfTenants(Tenants):
    rounds = 8

    async def models(self, client: ScenarioClient) -> Sequence[ModelledResource]:
        if not self.of:
            self.clock = WallClock()
        await client.insist("PUT", "/v1/tools/", {"source_code": SOURCE})
        given = {"tools": ["outside"], "memory_blocks": [{"label": "human", "value": "start"}]}
        return [TurnModel(self.machine, client, await self.agent_of(client, **given), self.clock)]


class FieldsOfTenants(Tenants):
    """Every field of agents, blocks, archives, identities and conversations, and lists with many filters."""

    rounds = 45
    always_lists = True
    links = True

    async def models(self, client: ScenarioClient) -> Sequence[ModelledResource]:
        await client.insist("PUT", "/v1/tools/", {"source_code": SOURCE})
        agent_id = await self.agent_of(client, tools=["outside"])
        lanes = FieldModel(self.machine, client, CONVERSATIONS, f"?agent_id={agent_id}")
        feedback = FeedbackModel(self.machine, client, agent_id, lanes)
        kinds = (AGENTS, BLOCKS, ARCHIVES, IDENTITIES)
        return [lanes, lanes, feedback, feedback, *(FieldModel(self.machine, client, kind) for kind in kinds)]


class LimitsOfTenants(Tenants):
    """One organization acts after the other, so that the hour ends for both at once and nothing is in flight."""

    rounds = 10
    at_once = False

    async def models(self, client: ScenarioClient) -> Sequence[ModelledResource]:
        """On some day of some month."""
        if not self.of:
            self.machine.world.ahead_s += client.picks(DATES) * DAY_S
        await client.insist("PUT", "/v1/tools/", {"source_code": SOURCE})
        memory = {"tools": ["outside"], "memory_blocks": [{"label": "human", "value": "start"}]}
        bound = await self.agent_of(client, **memory)
        return [LimitModel(self.machine, client, bound, self.outside)]


class AccessOfTenants(Tenants):
    rounds = 16

    async def models(self, client: ScenarioClient) -> Sequence[ModelledResource]:
        await client.insist("PUT", "/v1/tools/", {"source_code": SOURCE})
        guarded = await self.agent_of(client, tools=["outside"])
        await client.insist("PATCH", f"/v1/agents/{guarded}/tools/approval/outside", {"requires_approval": True})
        await self.agent_of(client)
        agents = [one["id"] for one in await client.insist("GET", "/v1/agents/")]
        key = (await client.insist("POST", "/v1/kelpie/keys", {"name": OWN, "scopes": ["admin"]}))["key"]
        connection = self.machine.client(client.name, {"Authorization": f"Bearer {key}"})  # not the operator any more
        admin = ScenarioClient(self.machine, client.name, self.heard, connection)
        approvals = ApprovalModel(self.machine, client, guarded, self.outside)
        accounts = AccountModel(self.machine, client, DEFAULT_ORGANIZATION if client.name == "owner" else self.guests)
        credentials = CredentialModel(self.machine, admin, agents)
        return [credentials, credentials, approvals, approvals, approvals, accounts]


class RecordsOfTenants(Tenants):
    """Three of the kinds of records in each run, in turn, so that few runs have had all of them."""

    rounds = 60
    kinds_at_once = 3
    links = True

    async def models(self, client: ScenarioClient) -> Sequence[ModelledResource]:
        agents = {name: await self.agent_of(client, name=name) for name in ("ann", "bea")}
        blocks = {
            label: (await client.insist("POST", "/v1/blocks/", {"label": label, "value": "some"}))["id"]
            for label in ("rules", "plans")
        }
        cast = Cast(agents, blocks)
        kinds = [
            *(kind(cast) for kind in (IdentityKind, FolderKind, ProviderKind, GroupKind, ToolKind, McpServerKind)),
            *(ProjectKind(cast), ScheduleKind(cast, START), WebhookKind(cast), VariableKind(cast)),
        ]
        first = self.machine.loop.seed // 2 * self.kinds_at_once
        some = [kinds[(first + place) % len(kinds)] for place in range(self.kinds_at_once)]
        models = [RecordModel(self.machine, client, kind) for kind in some]
        for model in models:
            await model.check()
        others: list[ModelledResource] = [CastModel(self.machine, client, cast, models)] * 2
        if self.machine.loop.seed // 2 % 2 == 0:
            others += [TemplateModel(self.machine, client, await self.agent_of(client))] * 2
        return [*models, *models, *models, *others]


API_MEMORY = scenario(
    "api-model-of-memory",
    MemoryOfTenants,
    plots=((), FAULTS),
    settings=replace(
        SETTINGS,
        block_versions=VERSIONS_KEPT,
        working_memory_entries_max=ENTRIES_MAX,
        working_memory_value_bytes_max=VALUE_BYTES_MAX,
        working_memory_bytes_max=BYTES_MAX,
    ),
)
API_TURNS = scenario(
    "api-model-of-turns",
    TurnsOfTenants,
    plots=((), FAULTS),
    settings=replace(SETTINGS, mailbox_size=MAILBOX_SIZE, model_prices=(f"{MODEL}={PROMPT_USD}/{REPLY_USD}",)),
)
API_FIELDS = scenario("api-model-of-fields", FieldsOfTenants, plots=((), FAULTS))
API_LIMITS = scenario(
    "api-model-of-limits",
    LimitsOfTenants,
    plots=((), FAULTS),
    settings=replace(SETTINGS, model_prices=(f"{MODEL}={PRICE_USD}/{PRICE_USD}",)),
)
API_RECORDS = scenario(
    "api-model-of-records",
    RecordsOfTenants,
    plots=((), FAULTS),
    settings=SETTINGS,
)
API_ACCESS = scenario(
    "api-model-of-access",
    AccessOfTenants,
    plots=((), FAULTS),
    settings=replace(SETTINGS, approval_s=APPROVAL_S),
    quiet_s=APPROVAL_S + QUIET_S,  # an approval that expires begins a turn
)
