"""Quotas of organizations: exact under parallel requests, freed by deleting, readable, and never in the way of a turn
that has begun."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from kelpie.accounts.quotas.disk_usage import DiskUsage
from kelpie.accounts.quotas.organization_usage import OrganizationUsages
from kelpie.accounts.quotas.quotas import MINUTE_NS, Quotas
from kelpie.agent.turn import model_call
from kelpie.app import Kelpie
from kelpie.core.access.callers import Caller
from kelpie.core.errors import CommitUnknown, RateExceeded
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, OrganizationId
from kelpie.core.permissions.organization_limits import OrganizationLimits, OrganizationUsage
from kelpie.storage.accounts import usage
from kelpie.world.clock import SystemClock
from kelpie.world.database import Database
from tests.server.rig import Puppet, called, make_agent, open_rig, said
from tests.server.test_auth import shown

PASSWORD = "open sesame"


class MovableClock(SystemClock):
    """The clock of the machine, and what it is set forward by."""

    ahead_ns = 0

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self.ahead_ns


@pytest.fixture(scope="module")
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
async def rig(tmp_path: Path, clock: MovableClock) -> AsyncIterator[tuple[Kelpie, Puppet]]:
    async with open_rig(tmp_path, password=PASSWORD, clock=clock, quota_agents=3, quota_messages=0) as opened:
        yield opened


@pytest.fixture
async def operator(kelpie: Kelpie) -> AsyncIterator[httpx.AsyncClient]:
    async with shown(kelpie, PASSWORD) as client:
        yield client


@pytest.fixture
async def tenant(kelpie: Kelpie, operator: httpx.AsyncClient) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the admin key of an organization of its own."""
    organization = (await operator.post("/v1/admin/orgs/", json={"name": "tenant"})).json()["id"]
    made = {"name": "owner", "organization_id": organization}
    user = (await operator.post("/v1/admin/users/", json=made)).json()["id"]
    given = {"name": "key", "user_id": user, "scopes": ["admin"]}
    key = (await operator.post("/v1/kelpie/keys", json=given)).json()["key"]
    async with shown(kelpie, key) as client:
        client.headers["x-test-organization"] = organization
        yield client


def organization_of(tenant: httpx.AsyncClient) -> OrganizationId:
    return OrganizationId(tenant.headers["x-test-organization"])


async def set_quotas(operator: httpx.AsyncClient, tenant: httpx.AsyncClient, **limits: int) -> dict[str, Any]:
    answer = await operator.put(f"/v1/kelpie/quotas/{organization_of(tenant)}", json=limits)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def used(tenant: httpx.AsyncClient) -> dict[str, int]:
    return (await tenant.get("/v1/kelpie/usage")).json()["usage"]


async def is_counted(kelpie: Kelpie, tenant: httpx.AsyncClient) -> None:
    """The counters are what the rows say."""
    organization = organization_of(tenant)
    assert await kelpie.world.database.read(lambda tx: usage.deviation(tx, organization)) == OrganizationUsage()


def content(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


async def test_parallel_creates_cannot_pass_the_quota(
    kelpie: Kelpie, operator: httpx.AsyncClient, tenant: httpx.AsyncClient
) -> None:
    answers = await asyncio.gather(*(tenant.post("/v1/agents/", json={"name": f"a{n}"}) for n in range(8)))
    assert sorted(each.status_code for each in answers) == [200] * 3 + [507] * 5
    refused = next(each for each in answers if each.status_code == 507)
    assert refused.json()["quota"] == {"name": "agents", "limit": 3, "used": 3, "setting": "KELPIE_QUOTA_AGENTS"}
    assert "may have 3 agents and has 3" in refused.json()["detail"]
    assert refused.headers["x-should-retry"] == "false"
    assert (await used(tenant))["agents"] == 3
    assert len((await tenant.get("/v1/agents/")).json()) == 3
    await is_counted(kelpie, tenant)
    # Deleting frees it at once, and the operator can raise it.
    first = next(each.json()["id"] for each in answers if each.status_code == 200)
    assert (await tenant.delete(f"/v1/agents/{first}")).status_code == 200
    await make_agent(tenant)
    assert (await tenant.post("/v1/agents/", json={})).status_code == 507
    assert (await set_quotas(operator, tenant, agents=4))["quotas"]["agents"] == 4
    await make_agent(tenant)
    # The default organization belongs to the operator and has no quota.
    for _ in range(4):
        await make_agent(operator)
    await is_counted(kelpie, tenant)


async def test_files_beyond_the_quota_are_refused_and_deleting_one_makes_room(
    kelpie: Kelpie, operator: httpx.AsyncClient, tenant: httpx.AsyncClient
) -> None:
    path = f"/v1/kelpie/quotas/{organization_of(tenant)}"
    assert (await operator.put(path, json={"files": 2})).status_code == 200
    folder = (await tenant.post("/v1/folders/", json={"name": "notes"})).json()["id"]

    async def upload(number: int) -> httpx.Response:
        file = {"file": (f"{number}.txt", f"note {number}".encode(), "text/plain")}
        return await tenant.post(f"/v1/folders/{folder}/upload", files=file)

    answers = await asyncio.gather(*(upload(number) for number in range(4)))
    assert sorted(each.status_code for each in answers) == [200, 200, 507, 507]
    refused = next(each for each in answers if each.status_code == 507).json()
    assert refused["quota"] == {"name": "files", "limit": 2, "used": 2, "setting": "KELPIE_QUOTA_FILES"}
    assert (await used(tenant))["files"] == 2
    listed = (await tenant.get(f"/v1/folders/{folder}/files")).json()
    assert len(listed) == 2
    assert (await tenant.delete(f"/v1/folders/{folder}/{listed[0]['id']}")).status_code in (200, 204)
    assert (await used(tenant))["files"] == 1
    assert (await upload(5)).status_code == 200
    await is_counted(kelpie, tenant)


async def test_stored_bytes_refuse_what_grows_and_nothing_else(
    kelpie: Kelpie, operator: httpx.AsyncClient, tenant: httpx.AsyncClient
) -> None:
    await set_quotas(operator, tenant, stored_mb=1)
    large = {"label": "notes", "value": "x" * 90_000, "limit": 200_000}
    blocks: list[str] = []
    while (made := await tenant.post("/v1/blocks/", json=large)).status_code == 200:
        blocks.append(made.json()["id"])
    assert made.status_code == 507
    assert made.json()["quota"]["name"] == "stored_mb"
    assert (await used(tenant))["stored_bytes"] <= 1024 * 1024
    # The refused block left nothing; less is always allowed.
    assert len((await tenant.get("/v1/blocks/")).json()) == len(blocks)
    assert (await tenant.delete(f"/v1/blocks/{blocks.pop()}")).status_code == 200
    assert (await tenant.post("/v1/blocks/", json=large)).status_code == 200
    await is_counted(kelpie, tenant)


async def test_without_room_no_turn_begins_and_one_that_has_begun_is_stored(
    kelpie: Kelpie,
    puppet: Puppet,
    operator: httpx.AsyncClient,
    tenant: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = await make_agent(tenant, tools=["core_memory_append"], memory_blocks=[{"label": "human", "value": ""}])
    path = f"/v1/agents/{agent['id']}/messages"
    stored = (await used(tenant))["messages"]
    await set_quotas(operator, tenant, messages=stored + 1)
    append = called("core_memory_append", '{"label": "human", "content": "x"}')
    puppet.script.extend([append, said("done")])
    answer = await tenant.post(path, json=content("hello"))
    assert answer.status_code == 200, answer.text
    assert answer.json()["stop_reason"]["stop_reason"] == "end_turn"
    assert (await used(tenant))["messages"] > stored + 1
    refused = await tenant.post(path, json=content("again"))
    assert (refused.status_code, refused.json()["quota"]["name"]) == (507, "messages")
    for way in ("async", "stream"):
        refused = await tenant.post(f"{path}/{way}", json=content("again"))
        assert refused.status_code == 507 or "may have" in refused.text, refused.text
    said_by_user = (await tenant.get(path)).json()
    assert "again" not in str(said_by_user)
    assert (await tenant.get("/v1/runs/?active=true")).json() == []
    # A long turn ends in order when the room is used up meanwhile.
    monkeypatch.setattr(model_call, "QUOTA_EVERY", 2)
    await set_quotas(operator, tenant, messages=(await used(tenant))["messages"] + 1)
    puppet.script.extend([append] * 6)
    answer = await tenant.post(path, json=content("long"))
    assert answer.status_code == 200, answer.text
    assert answer.json()["stop_reason"]["stop_reason"] == "insufficient_credits"
    await set_quotas(operator, tenant)
    puppet.script.clear()
    assert (await tenant.post(path, json=content("well"))).status_code == 200
    await is_counted(kelpie, tenant)


async def test_a_large_restore_needs_room_for_its_document(
    kelpie: Kelpie, operator: httpx.AsyncClient, tenant: httpx.AsyncClient
) -> None:
    agent = await make_agent(tenant, memory_blocks=[{"label": "human", "value": "x" * 90_000}])
    path = f"/v1/agents/{agent['id']}/memory"
    before = (await tenant.get(f"{path}/checkpoint")).json()
    for number in range(5):
        made = await tenant.post("/v1/blocks/", json={"label": f"b{number}", "value": "x" * 90_000})
        assert made.status_code == 200
    await set_quotas(operator, tenant, stored_mb=1)
    assert (await tenant.post("/v1/blocks/", json={"label": "last", "value": "x" * 9000})).status_code == 507
    kelpie.runtime.piece_size.rows = 0  # every restore is a large one
    refused = await tenant.post(f"{path}/restore", json=before)
    assert (refused.status_code, refused.json()["quota"]["name"]) == (507, "stored_mb")
    assert (await tenant.get(f"{path}/checkpoint")).json()["memory"] == before["memory"]
    await set_quotas(operator, tenant, stored_mb=3)
    assert (await tenant.post(f"{path}/restore", json=before)).status_code == 200
    await is_counted(kelpie, tenant)


async def test_requests_of_a_minute(
    clock: MovableClock, operator: httpx.AsyncClient, tenant: httpx.AsyncClient
) -> None:
    await set_quotas(operator, tenant, requests_per_minute=5)
    clock.ahead_ns += 60 * 1_000_000_000
    codes = [(await tenant.get("/v1/tools/?limit=1")).status_code for _ in range(6)]
    assert codes == [200] * 5 + [429]
    refused = await tenant.get("/v1/tools/?limit=1")
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert refused.json()["quota"] == {
        "name": "requests_per_minute",
        "limit": 5,
        "used": 5,
        "setting": "KELPIE_QUOTA_REQUESTS_PER_MINUTE",
    }
    assert (await operator.get("/v1/tools/?limit=1")).status_code == 200
    clock.ahead_ns += 60 * 1_000_000_000
    assert (await tenant.get("/v1/tools/?limit=1")).status_code == 200


class Doubtful:
    """A database whose writes succeed, and whose answers are lost."""

    def __init__(self, inner: Database) -> None:
        self.read = inner.read
        self._inner = inner

    async def transact(self, fn: Any) -> Any:
        await self._inner.transact(fn)
        raise CommitUnknown("The answer to the commit was lost.")


async def test_limits_whose_commit_is_in_doubt_hold_at_once(
    kelpie: Kelpie, operator: httpx.AsyncClient, tenant: httpx.AsyncClient
) -> None:
    ours, quotas = organization_of(tenant), kelpie.runtime.quotas
    doubtful: Any = Doubtful(kelpie.world.database)
    usages = OrganizationUsages(
        replace(kelpie.world, database=doubtful), quotas, DiskUsage(quotas), Caller(operator=True)
    )
    with pytest.raises(CommitUnknown):
        await usages.set_limits(ours, {"agents": 1})
    await make_agent(tenant)
    assert (await tenant.post("/v1/agents/", json={"name": "more"})).status_code == 507
    assert (await operator.get(f"/v1/kelpie/usage/{ours}")).json()["quotas"]["agents"] == 1


async def test_limits_are_replaced_and_stay_after_a_restart(
    kelpie: Kelpie, operator: httpx.AsyncClient, tenant: httpx.AsyncClient
) -> None:
    """A limit that is not named is the server's again; 0 is none at all, whatever the server says."""
    ours = organization_of(tenant)
    assert (await set_quotas(operator, tenant, agents=7, files=5))["quotas"]["agents"] == 7
    after = await set_quotas(operator, tenant, files=0, messages=9)
    assert {name: after["quotas"][name] for name in ("agents", "files", "messages")} == {
        "agents": 3,
        "files": 0,
        "messages": 9,
    }
    again = Quotas(kelpie.world.clock, OrganizationLimits(agents=3, files=4))
    await again.load(kelpie.world.database)
    assert again.limits(ours) == OrganizationLimits(agents=3, files=0, messages=9)
    assert again.limits(DEFAULT_ORGANIZATION) == OrganizationLimits()
    assert (await operator.put(f"/v1/kelpie/quotas/{ours}", json={})).status_code == 200
    await again.load(kelpie.world.database)
    assert again.own(ours) == {} and again.limits(ours) == OrganizationLimits(agents=3, files=4)


async def test_limits_that_were_read_first_do_not_replace_newer_ones(kelpie: Kelpie) -> None:
    """Two operators set limits at once: the read that began first may end last."""
    organization = OrganizationId("org-00000000-0000-4000-8000-000000000001")
    slow, began = asyncio.Event(), asyncio.Event()
    answers: list[Any] = [{organization: {"agents": 1}}, {organization: {"agents": 2}}]

    class Slow:
        async def read(self, _: Any) -> Any:
            answer = answers.pop(0)
            if len(answers) == 1:
                began.set()
                await slow.wait()
            return answer

    database: Any = Slow()
    quotas = Quotas(kelpie.world.clock)
    first = asyncio.create_task(quotas.load(database))
    await began.wait()
    second = asyncio.create_task(quotas.load(database))
    await asyncio.sleep(0)
    slow.set()
    await asyncio.gather(first, second)
    assert quotas.own(organization) == {"agents": 2}


async def test_requests_are_counted_for_each_organization_and_minute_alone(clock: MovableClock) -> None:
    quotas = Quotas(clock, OrganizationLimits(requests_per_minute=2))
    ours, theirs = (OrganizationId(f"org-00000000-0000-4000-8000-00000000000{number}") for number in (1, 2))
    clock.ahead_ns += MINUTE_NS - clock.monotonic_ns() % MINUTE_NS  # the begin of a minute
    for _ in range(2):
        quotas.count_request(ours)
    with pytest.raises(RateExceeded):
        quotas.count_request(ours)
    quotas.count_request(theirs)
    for _ in range(5):
        quotas.count_request(DEFAULT_ORGANIZATION)  # the operator's own has no limit of the server
    assert [quotas.requests(each) for each in (ours, theirs, DEFAULT_ORGANIZATION)] == [2, 1, 0]
    clock.ahead_ns += MINUTE_NS
    assert [quotas.requests(each) for each in (ours, theirs)] == [0, 0]
    quotas.count_request(ours)
    assert [quotas.requests(each) for each in (ours, theirs)] == [1, 0]


def test_the_size_of_a_workspace_is_known_for_its_organization_until_it_is_gone(clock: MovableClock) -> None:
    one, two, three = (AgentId(f"agent-00000000-0000-4000-8000-00000000000{number}") for number in (1, 2, 3))
    ours, theirs = (OrganizationId(f"org-00000000-0000-4000-8000-00000000000{number}") for number in (1, 2))
    disk = DiskUsage(Quotas(clock, OrganizationLimits(disk_mb=2)))
    disk.measured(ours, one, 10)
    disk.measured(ours, two, 5)
    disk.measured(theirs, three, 7)
    disk.measured(ours, one, 1)
    assert (disk.used(ours), disk.used(theirs), disk.used(DEFAULT_ORGANIZATION)) == (6, 7, 0)
    assert (disk.limit(ours), disk.limit(DEFAULT_ORGANIZATION)) == (2 * 1024 * 1024, None)
    new = AgentId("agent-00000000-0000-4000-8000-000000000004")
    assert disk.unmeasured((one, three, new), 9) == [new]
    assert (disk.used(ours), disk.used(theirs)) == (1, 7), "a workspace that no longer exists uses nothing"
    assert disk.unmeasured((one, two, new), 1) == [two]


async def test_who_may_read_and_set(operator: httpx.AsyncClient, tenant: httpx.AsyncClient) -> None:
    ours = organization_of(tenant)
    assert (await tenant.get(f"/v1/kelpie/usage/{ours}")).json()["organization_id"] == ours
    assert (await tenant.get(f"/v1/kelpie/usage/{DEFAULT_ORGANIZATION}")).status_code == 404
    assert (await tenant.put(f"/v1/kelpie/quotas/{ours}", json={"agents": 9})).status_code == 403
    assert (await tenant.post(f"/v1/kelpie/usage/{ours}/recount")).status_code == 403
    assert (await operator.get(f"/v1/kelpie/usage/{ours}")).json()["quotas"]["agents"] == 3
    assert (await operator.put(f"/v1/kelpie/quotas/{ours}", json={"agent": 9})).status_code == 422
    assert (await operator.put(f"/v1/kelpie/quotas/{ours}", json={"agents": -1})).status_code == 422
    unknown = "org-11111111-1111-4111-8111-111111111111"
    assert (await operator.put(f"/v1/kelpie/quotas/{unknown}", json={})).status_code == 404
    assert (await operator.get("/v1/kelpie/usage")).json()["quotas"]["agents"] == 0


async def test_a_wrong_counter_is_found_and_corrected(
    kelpie: Kelpie, operator: httpx.AsyncClient, tenant: httpx.AsyncClient
) -> None:
    await make_agent(tenant)
    right = await used(tenant)
    wrong = text("UPDATE organization_usage SET messages = messages + 7, bytes = 0 WHERE organization_id = :of")
    await kelpie.world.database.transact(lambda tx: tx.execute(wrong, {"of": organization_of(tenant)}) and None)
    looked = (await operator.get("/v1/kelpie/data")).json()
    assert looked["wrongs"] == {"a usage counter that differs from the rows": 1}
    corrected = (await operator.post(f"/v1/kelpie/usage/{organization_of(tenant)}/recount")).json()
    assert corrected["corrected_by"]["messages"] == -7
    assert (await used(tenant))["stored_bytes"] == right["stored_bytes"]
    assert (await operator.get("/v1/kelpie/data")).json()["sound"] is True


async def test_a_large_agent_is_gone_at_once_and_its_rows_piece_by_piece(
    kelpie: Kelpie, tenant: httpx.AsyncClient
) -> None:
    agent = await make_agent(tenant, tags=["one"], memory_blocks=[{"label": "human", "value": "me"}])
    path = f"/v1/agents/{agent['id']}"
    thread = (await tenant.post(f"/v1/conversations/?agent_id={agent['id']}", json={})).json()["id"]
    for number in range(3):
        sent = await tenant.post(f"{path}/messages", json=content(f"number {number} zebra"))
        assert sent.status_code == 200
    run, step = (await tenant.get("/v1/runs/")).json()[0]["id"], (await tenant.get("/v1/steps/")).json()[0]["id"]
    message = (await tenant.get(f"{path}/messages")).json()[0]["id"]
    block = agent["memory"]["blocks"][0]["id"]
    kelpie.runtime.piece_size.rows = 4
    before = await used(tenant)
    assert (await tenant.delete(path)).status_code == 200
    left = await kelpie.world.database.read(lambda tx: tx.execute(text("SELECT count(*) FROM messages")).scalar())
    assert left, "one piece must not be all"
    for gone in (
        path,
        f"{path}/messages",
        f"/v1/runs/{run}",
        f"/v1/steps/{step}",
        f"/v1/conversations/{thread}",
        f"/v1/messages/{message}",
    ):
        assert (await tenant.get(gone)).status_code == 404, gone
    for empty in ("/v1/agents/", "/v1/runs/", "/v1/steps/", "/v1/conversations/", f"/v1/blocks/{block}/agents"):
        assert (await tenant.get(empty)).json() == [], empty
    found = await tenant.post("/v1/messages/search", json={"query": "zebra"})
    assert found.json() == []
    assert (await tenant.post(f"{path}/messages", json=content("you?"))).status_code == 404
    now = await used(tenant)
    assert (now["agents"], now["messages"]) == (0, left)
    await is_counted(kelpie, tenant)
    assert (await tenant.get("/v1/tools/?limit=1")).status_code == 200
    await kelpie._cleanup.clean_up()  # pyright: ignore[reportPrivateUsage]
    assert await kelpie.world.database.read(_rows_of(agent["id"])) == {}
    await is_counted(kelpie, tenant)
    assert (await used(tenant))["stored_bytes"] < before["stored_bytes"]


def _rows_of(agent_id: str) -> Any:
    def read(tx: Any) -> dict[str, int]:
        tables = (
            tx.execute(
                text(
                    "SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c "
                    "WHERE m.type = 'table' AND c.name = 'agent_id'"
                )
            )
            .scalars()
            .all()
        )
        counts = {
            name: tx.execute(text(f"SELECT count(*) FROM {name} WHERE agent_id = :a"), {"a": agent_id}).scalar()
            for name in tables
        }
        counts["agents"] = tx.execute(text("SELECT count(*) FROM agents WHERE id = :a"), {"a": agent_id}).scalar()
        return {name: count for name, count in counts.items() if count}

    return read
