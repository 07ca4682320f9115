"""Providers with an organization's own keys over REST: stored encrypted, shown to nobody, used at once."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client.types import Model
from sqlalchemy import text as sa_text

from kelpie.app import Kelpie
from kelpie.core.access.passports import Passport
from kelpie.core.errors import Forbidden
from kelpie.core.ids import AgentId
from kelpie.core.models.provider_types import PROVIDER_TYPES
from kelpie.memory.embedding_backlog import EmbeddingBacklog
from kelpie.server.http.route_access import check_passport
from kelpie.storage import providers as provider_rows
from tests.llm.fakes import TransportHttp
from tests.server.keyed_provider import URL, KeyedProvider
from tests.server.rig import client_of, make_agent, open_rig
from tests.server.test_auth import bearer, make_key, shown
from tests.server.test_keys_api import on_disk

MASK = "********"
KEY = "sk-the-first-key"
OTHER = "sk-the-other-key"


@asynccontextmanager
async def opened(tmp_path: Path, provider: KeyedProvider, **settings: Any) -> AsyncIterator[Kelpie]:
    async with open_rig(tmp_path, http=provider.http, **settings) as (kelpie, _):
        yield kelpie


@pytest.fixture
def provider() -> KeyedProvider:
    return KeyedProvider({KEY: "first", OTHER: "other"})


@pytest.fixture
async def kelpie(tmp_path: Path, provider: KeyedProvider) -> AsyncIterator[Kelpie]:
    async with opened(tmp_path, provider) as made:
        yield made


@pytest.fixture
async def client(kelpie: Kelpie) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(kelpie) as made:
        yield made


async def add(client: httpx.AsyncClient, name: str = "mine", **fields: Any) -> dict[str, Any]:
    body = {"name": name, "provider_type": "openai", "api_key": KEY, "base_url": URL, **fields}
    answer = await client.post("/v1/providers/", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def say(client: httpx.AsyncClient, agent: str, **headers: str) -> str:
    answer = await client.post(f"/v1/agents/{agent}/messages", json={"input": "hello"}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["messages"][-1]["content"]


# --- records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slash", ["/", ""])
async def test_a_provider_is_added_read_changed_and_deleted(client: httpx.AsyncClient, slash: str) -> None:
    body = {"name": "mine", "provider_type": "openai", "api_key": KEY, "base_url": URL}
    made = (await client.post(f"/v1/providers{slash}", json=body)).json()
    shown_fields = {
        "name": "mine",
        "provider_type": "openai",
        "provider_category": "byok",
        "api_key": None,
        "base_url": URL,
        "access_key": None,
        "region": None,
        "api_version": None,
        "last_synced": None,
        "api_key_enc": MASK,
        "access_key_enc": None,
    }
    assert shown_fields.items() <= made.items() and made["organization_id"].startswith("org-")
    path = f"/v1/providers/{made['id']}"
    read = (await client.get(path)).json()
    assert read["last_synced"] and read | {"last_synced": None} == made
    assert (await client.get(f"/v1/providers{slash}")).json() == [read]
    changed = (await client.patch(path, json={"api_key": OTHER, "api_version": "2"})).json()
    assert (changed["api_version"], changed["api_key_enc"], changed["base_url"]) == ("2", MASK, URL)
    assert changed["updated_at"] > made["updated_at"]
    assert (await client.get(path)).json() == changed
    refreshed = (await client.patch(f"{path}/refresh")).json()
    assert refreshed["last_synced"] > read["last_synced"]
    for method in ("POST", "GET"):
        checked = await client.request(method, f"{path}/check")
        assert checked.json() == {"message": "Valid api key for provider_type=openai"}
    gone = await client.delete(path)
    assert gone.json() == {"message": f"Provider id={made['id']} successfully deleted"}
    assert (await client.get(path)).status_code == 404
    assert (await client.get("/v1/providers/")).json() == []


async def test_lists_have_filters_and_pages(client: httpx.AsyncClient) -> None:
    names = ["a", "b", "c"]
    made = [await add(client, name) for name in names]
    await add(client, "d", provider_type="groq", base_url=None)

    async def listed(**query: Any) -> list[str]:
        answer = await client.get("/v1/providers/", params=query)
        assert answer.status_code == 200, answer.text
        return [each["name"] for each in answer.json()]

    assert await listed() == ["d", "c", "b", "a"]
    assert await listed(order="asc", limit=2) == ["a", "b"]
    assert await listed(order="asc", after=made[0]["id"], provider_type="openai") == ["b", "c"]
    assert await listed(name="b") == ["b"]
    assert await listed(name="b", provider_type="groq") == []
    assert (await client.get("/v1/providers/", params={"provider_type": "zork"})).status_code == 422


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"name": "openai"}, 400, "Provider name 'openai' conflicts with an existing base provider."),
        ({"name": "fake"}, 400, "Provider name 'fake' conflicts with an existing base provider."),
        ({"name": "a/b"}, 400, "name: must have 1 to 100 printable characters, no '/'"),
        ({"provider_type": "zork"}, 422, "'zork' is unknown; use one of anthropic, azure"),
        ({"provider_type": "bedrock"}, 400, "Use one of anthropic, azure"),
        ({"provider_type": "google_vertex"}, 400, "use the type 'google_ai'"),
        ({"api_key": ""}, 400, "api_key: is empty; a provider of type 'openai' needs a key"),
        ({"api_key": MASK}, 400, "send the key itself"),
        ({"api_key": "a b"}, 400, "api_key: contains spaces"),
        ({"provider_type": "azure", "base_url": None}, 400, "base_url: is empty"),
        ({"provider_type": "ollama", "base_url": None}, 400, "base_url: is empty"),
        ({"base_url": "ftp://models.example"}, 400, "base_url: must begin with http"),
        ({"base_url": "https://me:secret@models.example"}, 400, "base_url: must not contain a user name"),
        ({"base_url": "https://models.example/v1?a=b"}, 400, "base_url: must not contain a query"),
        ({"base_url": "http://127.0.0.1:11434"}, 400, "KELPIE_PROVIDER_PRIVATE"),
        ({"base_url": "http://localhost:11434"}, 400, "KELPIE_PROVIDER_PRIVATE"),
        ({"base_url": "http://169.254.169.254/latest"}, 400, "Non-public IP not allowed"),
        ({"base_url": "http://0x7f000001/v1"}, 400, "is not a plain IP address"),
        ({"base_url": "http://[::ffff:10.0.0.1]/v1"}, 400, "Non-public IP not allowed"),
        ({"zork": 1}, 422, "zork"),
        ({"name": None}, 422, "name"),
        ({"api_key": [KEY]}, 422, "api_key"),
        ({"api_key": KEY * 2000}, 422, "api_key"),
    ],
)
async def test_a_provider_that_cannot_be_is_refused_and_not_stored(
    client: httpx.AsyncClient, provider: KeyedProvider, body: dict[str, Any], status: int, says: str
) -> None:
    whole = {"name": "mine", "provider_type": "openai", "api_key": KEY, "base_url": URL, **body}
    answer = await client.post("/v1/providers/", json=whole)
    assert answer.status_code == status and says in answer.text, answer.text
    assert KEY not in answer.text
    assert (await client.get("/v1/providers/")).json() == [] and provider.asked == []


async def test_a_name_is_there_once(client: httpx.AsyncClient) -> None:
    made = await add(client)
    body = {"name": "mine", "provider_type": "openai", "api_key": OTHER}
    answer = await client.post("/v1/providers/", json=body)
    assert answer.status_code == 409 and "A provider with the name 'mine' already exists" in answer.text
    await client.delete(f"/v1/providers/{made['id']}")
    await add(client)


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/check")])
async def test_an_unknown_provider(client: httpx.AsyncClient, method: str, path: str) -> None:
    body = {"api_key": OTHER} if method == "PATCH" else None
    one = "provider-00000000-0000-4000-8000-00000000000f"
    answer = await client.request(method, f"/v1/providers/{one}{path}", json=body)
    assert answer.status_code == 404 and answer.json()["detail"] == f"Provider not found with id='{one}'"
    assert (await client.request(method, f"/v1/providers/zork{path}", json=body)).status_code == 422


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_a_key_is_nowhere_but_at_the_provider(
    client: httpx.AsyncClient, tmp_path: Path, provider: KeyedProvider, caplog: pytest.LogCaptureFixture
) -> None:
    made = await add(client, access_key=OTHER)
    agent = await make_agent(client, model="mine/gpt-4o")
    assert await say(client, agent["id"]) == "from first"
    path = f"/v1/providers/{made['id']}"
    provider.accounts.clear()  # the provider repeats the key when it refuses it
    refused = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "again"})
    checked = await client.post(f"{path}/check")
    other = await client.post("/v1/providers/check", json={"provider_type": "openai", "api_key": KEY, "base_url": URL})
    assert checked.status_code == other.status_code == 401, checked.text
    assert "Incorrect API key provided: ***" in checked.text
    step = (await client.get("/v1/steps/")).json()[0]["id"]
    shown_texts = [refused.text, checked.text, other.text]
    for each in (
        path,
        "/v1/providers/",
        "/v1/models/",
        "/v1/kelpie/models",
        f"/v1/agents/{agent['id']}",
        f"/v1/agents/{agent['id']}/export",
        f"/v1/steps/{step}/trace",
        f"/v1/steps/{step}",
        "/v1/runs/",
    ):
        shown_texts.append((await client.get(each)).text)
    for text in (*shown_texts, caplog.text):
        assert KEY not in text and OTHER not in text
    assert on_disk(tmp_path, KEY) == on_disk(tmp_path, OTHER) == []


async def test_a_mask_keeps_the_stored_key(client: httpx.AsyncClient, provider: KeyedProvider) -> None:
    made = await add(client)
    path = f"/v1/providers/{made['id']}"
    answer = await client.patch(path, json={"api_key": MASK, "base_url": f"{URL}/other"})
    assert answer.json()["base_url"] == f"{URL}/other"
    provider.asked.clear()
    assert (await client.post(f"{path}/check")).status_code == 200
    assert [(each.key, each.path) for each in provider.asked] == [(KEY, "/v1/other/models")]


@pytest.mark.parametrize(
    "moved", ["https://thief.example/v1", "http://models.example/v1", "https://models.example:1/v1"]
)
async def test_a_stored_key_is_not_sent_to_another_host(
    client: httpx.AsyncClient, provider: KeyedProvider, moved: str
) -> None:
    path = f"/v1/providers/{(await add(client))['id']}"
    for body in ({"base_url": moved}, {"base_url": moved, "api_key": MASK}):
        answer = await client.patch(path, json=body)
        assert answer.status_code == 400 and "a stored key is not sent to another host" in answer.text
    assert (await client.get(path)).json()["base_url"] == URL
    assert (await client.patch(path, json={"base_url": moved, "api_key": KEY})).status_code == 200
    provider.asked.clear()
    assert (await client.post(f"{path}/check")).status_code == 200
    assert {each.key for each in provider.asked} == {KEY}


async def test_reading_keys_see_no_secret_and_only_writing_ones_manage(tmp_path: Path, provider: KeyedProvider) -> None:
    async with opened(tmp_path, provider, password="open sesame") as locked:
        async with shown(locked, "open sesame") as operator:
            path = f"/v1/providers/{(await add(operator))['id']}"
            agent = await make_agent(operator)
        keys = {scope: (await make_key(locked, scopes=[scope]))["key"] for scope in ("read", "write")}
        bound = (await make_key(locked, scopes=["write"], agent_ids=[agent["id"]]))["key"]
        page = {
            "hostname": "https://app.example",
            "policy": [{"type": "agent", "id": agent["id"], "access": ["write_agent"]}],
        }
        async with shown(locked, keys["write"]) as writer:
            token = (await writer.post("/v1/client-side-access-tokens", json=page)).json()["token"]
            assert (await writer.patch(path, json={"api_key": OTHER})).status_code == 200
            assert (await writer.get(path)).json()["api_key_enc"] == MASK
        body = {"name": "more", "provider_type": "openai", "api_key": KEY, "base_url": URL}
        writes = [("POST", "/v1/providers/", body), ("PATCH", path, {"api_key": KEY}), ("DELETE", path, None)]
        writes += [("POST", "/v1/providers/check", body), ("PATCH", f"{path}/refresh", None)]
        async with client_of(locked) as client:
            read = await client.get(path, headers=bearer(keys["read"]))
            assert read.status_code == 200 and read.json()["api_key_enc"] == MASK and KEY not in read.text
            for secret in (keys["read"], bound, token):
                for method, at, sent in writes:
                    answer = await client.request(method, at, json=sent, headers=bearer(secret))
                    assert answer.status_code == 403, f"{method} {at}: {answer.text}"
            for secret in (bound, token):
                assert (await client.get(path, headers=bearer(secret))).status_code == 403
                assert (await client.get("/v1/providers/", headers=bearer(secret))).status_code == 403


async def test_a_key_that_cannot_be_decrypted_hides_no_other_provider(tmp_path: Path, provider: KeyedProvider) -> None:
    async with opened(tmp_path, provider) as kelpie, client_of(kelpie) as client:
        lost = await add(client, "lost")
        await add(client, "kept")
        agent = await make_agent(client, model="lost/gpt-4o")
        database = kelpie.world.database
        text = "UPDATE providers SET api_key = '1:0000000000000000:AAAA', revision = 2 WHERE name = 'lost'"
        await database.transact(lambda tx: tx.execute(sa_text(text)))
        shown_one = (await client.get(f"/v1/providers/{lost['id']}")).json()
        assert shown_one["api_key_enc"] == MASK and "kelpie_error" in shown_one
        handles = [each["handle"] for each in (await client.get("/v1/models/?provider_category=byok")).json()]
        assert handles == ["kept/gpt-4o", "kept/gpt-4o-mini"]
        failed = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hello"})
        assert "The provider lost cannot be used" in failed.text
        dropped = await client.patch(f"/v1/providers/{lost['id']}", json={"region": "x"})
        assert dropped.status_code == 409 and "set it in this request" in dropped.text
        changed = await client.patch(f"/v1/providers/{lost['id']}", json={"api_key": OTHER})
        assert changed.status_code == 200 and "kelpie_error" not in changed.json()
        assert await say(client, agent["id"]) == "from other"


# --- use --------------------------------------------------------------------------------------------------------------


async def test_models_are_listed_with_their_category_and_used_at_once(
    client: httpx.AsyncClient, provider: KeyedProvider
) -> None:
    assert (await client.get("/v1/models/", params={"provider_category": "byok"})).json() == []
    await add(client)
    listed = (await client.get("/v1/models/", params={"provider_category": "byok"})).json()
    assert [each["handle"] for each in listed] == ["mine/gpt-4o", "mine/gpt-4o-mini"]
    first = Model.model_validate(listed[0])
    assert (first.provider_name, first.provider_type, first.provider_category) == ("mine", "openai", "byok")
    assert first.max_context_window == 128_000 and listed[0]["model_endpoint"] == URL
    base = (await client.get("/v1/models/", params={"provider_category": "base"})).json()
    assert [each["handle"] for each in base] == ["fake/model"]
    named = (await client.get("/v1/models/", params={"provider_name": "mine"})).json()
    assert [each["handle"] for each in named] == ["mine/gpt-4o", "mine/gpt-4o-mini"]
    embeddings = [each["handle"] for each in (await client.get("/v1/models/embedding")).json()]
    assert "mine/text-embedding-3-small" in embeddings
    report = (await client.get("/v1/kelpie/models")).json()["providers"]
    assert {each["name"]: each["category"] for each in report} == {"fake": "base", "mine": "byok"}
    agent = await make_agent(client, model="mine/gpt-4o", embedding="mine/text-embedding-3-small")
    assert agent["model"] == "mine/gpt-4o" and agent["llm_config"]["model_endpoint_type"] == "openai"
    assert agent["llm_config"]["provider_category"] == "byok"
    assert await say(client, agent["id"]) == "from first"
    step = (await client.get("/v1/steps/")).json()[0]
    assert (step["provider_name"], step["provider_category"], step["model_handle"]) == ("mine", "byok", "mine/gpt-4o")
    assert [(each.host, each.key, each.body["model"]) for each in provider.calls] == [("models.example", KEY, "gpt-4o")]


async def test_a_change_and_a_deletion_count_for_the_next_call(
    client: httpx.AsyncClient, provider: KeyedProvider
) -> None:
    made = await add(client)
    path = f"/v1/providers/{made['id']}"
    agent = await make_agent(client, model="mine/gpt-4o")
    assert await say(client, agent["id"]) == "from first"
    await client.patch(path, json={"api_key": OTHER})
    assert await say(client, agent["id"]) == "from other"
    await client.delete(path)
    assert (await client.get("/v1/models/", params={"provider_category": "byok"})).json() == []
    asked = len(provider.asked)
    failed = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hello"})
    assert failed.status_code >= 400 and "There is no provider 'mine'" in failed.text, failed.text
    assert len(provider.asked) == asked
    await client.patch(f"/v1/agents/{agent['id']}", json={"model": "fake/model"})
    assert await say(client, agent["id"]) == "ok"
    await add(client, api_key=OTHER)
    await client.patch(f"/v1/agents/{agent['id']}", json={"model": "mine/gpt-4o"})
    assert await say(client, agent["id"]) == "from other"


async def test_a_call_that_is_under_way_ends_as_it_began(client: httpx.AsyncClient, provider: KeyedProvider) -> None:
    made = await add(client)
    agent = await make_agent(client, model="mine/gpt-4o")
    underway, go_on = asyncio.Event(), asyncio.Event()

    async def pause() -> None:
        underway.set()
        await go_on.wait()

    provider.before_answer = pause
    sent = asyncio.create_task(say(client, agent["id"]))
    async with asyncio.timeout(20):
        await underway.wait()
        assert (await client.delete(f"/v1/providers/{made['id']}")).status_code == 200
        assert (await client.get("/v1/models/", params={"provider_category": "byok"})).json() == []
        go_on.set()
        assert await sent == "from first"


async def test_another_organization_sees_and_uses_none_of_it(
    client: httpx.AsyncClient, provider: KeyedProvider
) -> None:
    organization = (await client.post("/v1/admin/orgs/", json={"name": "other"})).json()
    user = (await client.post("/v1/admin/users/", json={"name": "x", "organization_id": organization["id"]})).json()
    them = {"user_id": user["id"]}
    ours = await add(client)
    path = f"/v1/providers/{ours['id']}"
    assert (await client.get("/v1/providers/", headers=them)).json() == []
    for method, at, body in [
        ("GET", path, None),
        ("PATCH", path, {"api_key": OTHER}),
        ("DELETE", path, None),
        ("POST", f"{path}/check", None),
        ("PATCH", f"{path}/refresh", None),
    ]:
        assert (await client.request(method, at, json=body, headers=them)).status_code == 404
    assert (await client.get("/v1/models/", params={"provider_category": "byok"}, headers=them)).json() == []
    stolen = await client.post("/v1/agents/", json={"model": "mine/gpt-4o"}, headers=them)
    assert stolen.status_code == 404 and "mine/gpt-4o not found" in stolen.text
    body = {"name": "mine", "provider_type": "openai", "api_key": OTHER, "base_url": "https://theirs.example/v1"}
    assert (await client.post("/v1/providers/", json=body, headers=them)).status_code == 200
    theirs = (await client.post("/v1/agents/", json={"model": "mine/gpt-4o"}, headers=them)).json()
    agent = await make_agent(client, model="mine/gpt-4o")
    assert await say(client, agent["id"]) == "from first"
    assert await say(client, theirs["id"], **them) == "from other"
    assert [(each.host, each.key) for each in provider.calls] == [("models.example", KEY), ("theirs.example", OTHER)]


async def test_vectors_come_from_the_organizations_own_provider(
    client: httpx.AsyncClient, provider: KeyedProvider
) -> None:
    made = await add(client)
    archive = (
        await client.post("/v1/archives/", json={"name": "a", "embedding": "mine/text-embedding-3-small"})
    ).json()
    passages = f"/v1/archives/{archive['id']}/passages"
    assert (await client.post(passages, json={"text": "one"})).status_code == 200
    assert [each.key for each in provider.asked if each.path.endswith("/embeddings")] == [KEY]
    await client.delete(f"/v1/providers/{made['id']}")
    stored = await client.post(passages, json={"text": "two"})
    assert stored.status_code == 200, "a text is stored without a vector"
    found = await client.post("/v1/passages/search", json={"archive_id": archive["id"], "query": "two"})
    assert [each["passage"]["text"] for each in found.json()] == ["two"]


async def test_fallbacks_budgets_and_prices_as_for_the_settings_providers(
    tmp_path: Path, provider: KeyedProvider
) -> None:
    prices = ("priced/*=1000/1000",)
    async with opened(tmp_path, provider, model_prices=prices) as kelpie, client_of(kelpie) as client:
        await add(client, "priced")
        await add(client, "unpriced")
        provider.accounts["sk-unknown-key"] = "broken"
        await add(client, "broken", api_key="sk-unknown-key")
        settings = {"provider_type": "openai", "fallbacks": ["unpriced/gpt-4o"]}
        falling = await make_agent(client, model="broken/gpt-4o-mini", model_settings=settings)
        del provider.accounts["sk-unknown-key"]
        assert await say(client, falling["id"]) == "from first"
        budget = {"usd": 1.0, "period": "day"}
        spender = await make_agent(client, name="two", model="priced/gpt-4o", kelpie_budget=budget)
        assert await say(client, spender["id"]) == "from first"
        used_up = await client.post(f"/v1/agents/{spender['id']}/messages", json={"input": "more"})
        assert "budget" in used_up.text and len(provider.calls) == 3, used_up.text
        body = {"model": "unpriced/gpt-4o", "kelpie_budget": budget}
        unknown = await client.post("/v1/agents/", json=body)
        assert unknown.status_code == 400 and "the price of unpriced/gpt-4o is unknown" in unknown.text


async def test_the_operators_limits_hold_for_each_and_outlast_a_new_key(
    tmp_path: Path, provider: KeyedProvider
) -> None:
    limits = {"provider_limits": ("byok: requests=1",), "provider_wait_s": 0.01}
    async with opened(tmp_path, provider, **limits) as kelpie, client_of(kelpie) as client:
        one, _ = await add(client, "one"), await add(client, "two")
        first = await make_agent(client, model="one/gpt-4o")
        second = await make_agent(client, name="two", model="two/gpt-4o")
        assert await say(client, first["id"]) == await say(client, second["id"]) == "from first"
        await client.patch(f"/v1/providers/{one['id']}", json={"api_key": OTHER})
        for agent, name in ((first, "one"), (second, "two")):
            over = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "more"})
            assert f"The limit of {name} is reached: 1 requests a minute" in over.text
        assert len(provider.calls) == 2


async def test_limits_on_money_outlast_a_restart(tmp_path: Path, provider: KeyedProvider) -> None:
    limits = {"provider_limits": ("byok: dollars=1",), "model_prices": ("mine/*=1000/1000",)}
    async with opened(tmp_path, provider, **limits) as kelpie, client_of(kelpie) as client:
        await add(client)
        agent = await make_agent(client, model="mine/gpt-4o")
        assert await say(client, agent["id"]) == "from first"
    async with opened(tmp_path, provider, **limits) as kelpie, client_of(kelpie) as client:
        over = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "more"})
        assert "The limit of mine is reached: 1 dollars a day" in over.text and len(provider.calls) == 1


async def test_an_address_of_this_machine_needs_the_setting(tmp_path: Path, provider: KeyedProvider) -> None:
    async with opened(tmp_path, provider, provider_private=True) as kelpie, client_of(kelpie) as client:
        made = await add(client, base_url="http://127.0.0.1:9/v1")
        agent = await make_agent(client, model="mine/gpt-4o")
        assert await say(client, agent["id"]) == "from first"
    async with opened(tmp_path, provider) as kelpie, client_of(kelpie) as client:
        asked = len(provider.asked)
        failed = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hello"})
        assert "KELPIE_PROVIDER_PRIVATE" in failed.text and len(provider.asked) == asked
        assert (await client.post(f"/v1/providers/{made['id']}/check")).status_code == 400


async def test_the_transport_is_told_to_reach_public_addresses_only(tmp_path: Path, provider: KeyedProvider) -> None:
    told: list[bool] = []

    class Telling(TransportHttp):
        def transport(self, *, public: bool = False) -> httpx.AsyncBaseTransport:
            told.append(public)
            return super().transport(public=public)

    http = Telling(httpx.MockTransport(lambda request: httpx.Response(200, json={"data": [{"id": "m"}]})))
    async with open_rig(tmp_path, http=http) as (kelpie, _), client_of(kelpie) as client:
        for kind in sorted(PROVIDER_TYPES):
            await add(client, f"my-{kind}", provider_type=kind)
    assert told and all(told)


@pytest.mark.parametrize("kind", sorted(PROVIDER_TYPES))
async def test_every_type_is_called_with_its_key_at_its_address(kind: str, tmp_path: Path) -> None:
    provider = KeyedProvider({KEY: "it"}, models=("models/gemini-2.5-flash",) if kind == "google_ai" else ("m",))
    about = PROVIDER_TYPES[kind]
    async with opened(tmp_path, provider) as kelpie, client_of(kelpie) as client:
        url = None if about.url else "https://models.example"
        body = {"provider_type": kind, "api_key": KEY, "base_url": url}
        checked = await client.post("/v1/providers/check", json=body)
        if about.protocol in ("local", "azure"):  # which ask in ways of their own
            assert {each.key for each in provider.asked} <= {KEY}
            return
        assert checked.json() == {"message": f"Valid api key for provider_type={kind}"}, checked.text
        await add(client, provider_type=kind, base_url=url)
        listed = (await client.get("/v1/models/", params={"provider_name": "mine"})).json()
        assert [each["name"] for each in listed] == ["gemini-2.5-flash" if kind == "google_ai" else "m"]
        assert {each.key for each in provider.asked} == {KEY}
        assert {each.host for each in provider.asked} == {httpx.URL(about.url or "https://models.example").host}


async def test_an_agent_without_a_model_gets_one_of_the_organizations_own(
    tmp_path: Path, provider: KeyedProvider
) -> None:
    async with opened(tmp_path, provider) as kelpie:
        kelpie.runtime.models._settings = replace(kelpie.settings, default_model=None)
        async with client_of(kelpie) as client:
            await add(client)
            agent = await make_agent(client)
            assert agent["model"] == "mine/gpt-4o-mini"
            assert json.loads((await client.get(f"/v1/agents/{agent['id']}/export")).text)["agents"]


async def test_missing_vectors_come_from_the_provider_of_their_own_organization(
    kelpie: Kelpie, client: httpx.AsyncClient, provider: KeyedProvider
) -> None:
    """Both organizations have given their providers the same name."""
    organization = (await client.post("/v1/admin/orgs/", json={"name": "other"})).json()
    user = (await client.post("/v1/admin/users/", json={"name": "x", "organization_id": organization["id"]})).json()
    texts = {KEY: "ours", OTHER: "theirs"}
    accounts = dict(provider.accounts)
    for key, headers in ((KEY, {}), (OTHER, {"user_id": user["id"]})):
        body = {"name": "mine", "provider_type": "openai", "api_key": key, "base_url": URL}
        assert (await client.post("/v1/providers/", json=body, headers=headers)).status_code == 200
        chosen = {"name": "a", "embedding": "mine/text-embedding-3-small"}
        archive = (await client.post("/v1/archives/", json=chosen, headers=headers)).json()["id"]
        provider.accounts.clear()  # nothing can be embedded now
        stored = await client.post(f"/v1/archives/{archive}/passages", json={"text": texts[key]}, headers=headers)
        assert stored.status_code == 200
        provider.accounts.update(accounts)
    provider.asked.clear()
    backlog = EmbeddingBacklog(kelpie.world, kelpie.runtime.embeddings)
    while await backlog.work():
        pass
    embedded = {(each.key, *each.body["input"]) for each in provider.asked if each.path.endswith("/embeddings")}
    assert embedded == {(KEY, "ours"), (OTHER, "theirs")}


async def test_list_prices_hold_at_the_makers_own_address(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    await add(client, "at-openai", base_url=None)
    await add(client, "elsewhere")
    await add(client, "at-home", provider_type="vllm")
    prices = kelpie.api().models.prices
    assert prices.of("at-openai/gpt-4o") == prices.of("openai/gpt-4o") is not None
    assert prices.of("elsewhere/gpt-4o") is None
    free = prices.of("at-home/anything")
    assert free is not None and free.input == free.output == 0


async def test_an_organization_has_a_bounded_number_of_providers(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_rows, "PROVIDERS_MAX", 2)
    made = [await add(client, name) for name in ("a", "b")]
    body = {"name": "c", "provider_type": "openai", "api_key": KEY, "base_url": URL}
    full = await client.post("/v1/providers/", json=body)
    assert full.status_code == 409 and "has 2 providers, and may have no more" in full.text
    await client.delete(f"/v1/providers/{made[0]['id']}")
    assert (await client.post("/v1/providers/", json=body)).status_code == 200


async def test_tool_code_may_not_see_or_manage_providers(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    made, agent = await add(client), await make_agent(client)
    caller = kelpie.api().caller
    passport = Passport(AgentId(agent["id"]), caller.organization_id, caller.user_id, 2**62)
    for method, path in (("GET", "/v1/providers/"), ("DELETE", f"/v1/providers/{made['id']}")):
        with pytest.raises(Forbidden, match="Tool code may only use routes under"):
            check_passport(passport, method, path)
