"""Refusals of OpenAI's API: the exceptions that the SDK raises, and what they say."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from kelpie.app import Kelpie
from kelpie.core.errors import ModelError, ModelFault
from tests.server.rig import Puppet, client_of, make_agent, open_rig

URL = "http://127.0.0.1:8283/openai/v1"
HI: Any = [{"role": "user", "content": "hi"}]


def sdk_of(http: Any, key: str = "none", url: str = URL) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key=key, base_url=url, http_client=http, max_retries=0)


@pytest.fixture
async def sdk(kelpie: Kelpie) -> AsyncIterator[openai.AsyncOpenAI]:
    async with client_of(kelpie, {}) as http:
        yield sdk_of(http)


async def test_an_unknown_model_is_not_found(sdk: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        await sdk.chat.completions.create(model="nobody", messages=HI)
    assert raised.value.code == "model_not_found" and "nobody" in raised.value.message
    assert "GET /v1/models lists them" in raised.value.message
    assert raised.value.type == "not_found_error"


async def test_two_agents_of_one_name_are_ambiguous(sdk: openai.AsyncOpenAI, client: httpx.AsyncClient) -> None:
    for _ in range(2):
        await make_agent(client, name="twin")
    with pytest.raises(openai.BadRequestError, match="several agents") as raised:
        await sdk.chat.completions.create(model="twin", messages=HI)
    assert raised.value.param == "model" and raised.value.type == "invalid_request_error"


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"tool_choice": "required", "tools": []}, "tool_choice"),
        ({"modalities": ["text", "audio"]}, "modalities"),
    ],
)
async def test_what_an_agent_cannot_do_is_refused_by_name(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, given: dict[str, Any], param: str
) -> None:
    agent = await make_agent(client)
    with pytest.raises(openai.BadRequestError) as raised:
        await sdk.chat.completions.create(model=agent["id"], messages=HI, extra_body=given)
    assert (raised.value.param, raised.value.code) == (param, "unsupported_parameter")


async def test_what_only_tunes_a_model_is_ignored_and_named(sdk: openai.AsyncOpenAI, client: httpx.AsyncClient) -> None:
    agent = await make_agent(client)
    made = await sdk.chat.completions.with_raw_response.create(
        model=agent["id"], messages=HI, temperature=0.1, max_completion_tokens=10
    )
    named = made.headers["x-kelpie-ignored-fields"]
    assert "temperature" in named and "max_completion_tokens" in named


async def test_an_invalid_body_is_a_bad_request(sdk: openai.AsyncOpenAI, client: httpx.AsyncClient) -> None:
    agent = await make_agent(client)
    with pytest.raises(openai.BadRequestError) as raised:
        await sdk.chat.completions.create(model=agent["id"], messages="hi")  # type: ignore[arg-type]
    assert raised.value.type == "invalid_request_error" and raised.value.code == "validation_failed"
    with pytest.raises(openai.BadRequestError, match="last message"):
        await sdk.chat.completions.create(model=agent["id"], messages=[*HI, {"role": "assistant", "content": "x"}])


async def test_failures_of_the_provider_have_its_status(
    sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, puppet: Puppet
) -> None:
    agent = await make_agent(client)
    failure = ModelError(ModelFault.rate_limit, "slow down", retry_after_s=7)
    puppet.script += [failure] * 8
    with pytest.raises(openai.RateLimitError) as raised:
        await sdk.chat.completions.create(model=agent["id"], messages=HI)
    assert raised.value.code == "rate_limit_exceeded" and raised.value.response.headers["retry-after"] == "7"
    puppet.script.clear()
    puppet.script += [failure] * 8
    assert (await client.get("/v1/conversations/", params={"agent_id": agent["id"]})).json() == []
    stream = await sdk.chat.completions.create(model=agent["id"], messages=HI, stream=True)
    with pytest.raises(openai.APIError, match="slow down"):
        async for _ in stream:
            pass
    left = (await client.get("/v1/conversations/", params={"agent_id": agent["id"]})).json()
    assert left == [], "nothing was said, so nothing is left"


async def test_unknown_paths_have_the_shape_too(sdk: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        await sdk.images.generate(prompt="a cat", model="x")
    assert raised.value.type == "not_found_error"


async def test_keys_are_asked_for_and_count(tmp_path: Path) -> None:
    async with (
        open_rig(tmp_path, password="secret") as (kelpie, _),
        client_of(kelpie, {}) as http,
    ):
        with pytest.raises(openai.AuthenticationError) as refused:
            await sdk_of(http, "wrong").chat.completions.create(model="one", messages=HI)
        assert refused.value.code == "invalid_api_key"
        http.headers["authorization"] = "Bearer secret"
        mine, other = [await make_agent(http, name=name) for name in ("mine", "other")]
        made = {}
        for name, body in {
            "read": {"scopes": ["read"]},
            "write": {"scopes": ["read", "write"]},
            "bound": {"scopes": ["read", "write"], "agent_ids": [mine["id"]]},
        }.items():
            answer = await http.post("/v1/kelpie/keys", json={"name": name, **body})
            assert answer.status_code in (200, 201), answer.text
            made[name] = answer.json()["key"]
        del http.headers["authorization"]
        with pytest.raises(openai.PermissionDeniedError):
            await sdk_of(http, made["read"]).chat.completions.create(model="mine", messages=HI)
        assert (await sdk_of(http, made["write"]).chat.completions.create(model="mine", messages=HI)).choices
        bound = sdk_of(http, made["bound"])
        tool: Any = {"type": "function", "function": {"name": "f"}}
        assert (await bound.chat.completions.create(model="mine", messages=HI, tools=[tool])).choices
        with pytest.raises(openai.PermissionDeniedError):
            await bound.chat.completions.create(model=other["id"], messages=HI)
        with pytest.raises(openai.NotFoundError):
            await bound.chat.completions.create(model="other", messages=HI)


@pytest.mark.parametrize(
    ("quota", "kind", "code"),
    [
        ({"requests_per_minute": 3}, "rate_limit_error", "rate_limit_exceeded"),
        ({"messages": 3}, "insufficient_quota", "insufficient_quota"),
    ],
)
async def test_quotas_are_rate_limits(tmp_path: Path, quota: dict[str, int], kind: str, code: str) -> None:
    async with open_rig(tmp_path, password="secret") as (kelpie, _), client_of(kelpie, {}) as http:
        http.headers["authorization"] = "Bearer secret"
        organization = (await http.post("/v1/admin/orgs/", json={"name": "tenant"})).json()["id"]
        person = {"name": "owner", "organization_id": organization}
        owner = (await http.post("/v1/admin/users/", json=person)).json()["id"]
        given = {"name": "key", "user_id": owner, "scopes": ["write"]}
        key = (await http.post("/v1/kelpie/keys", json=given)).json()["key"]
        http.headers["authorization"] = f"Bearer {key}"
        agent = await make_agent(http)
        http.headers["authorization"] = "Bearer secret"
        assert (await http.put(f"/v1/kelpie/quotas/{organization}", json=quota)).status_code == 200
        del http.headers["authorization"]
        sdk = sdk_of(http, key)

        async def insist() -> None:
            for _ in range(5):
                await sdk.chat.completions.create(model=agent["id"], messages=HI)

        with pytest.raises(openai.RateLimitError) as raised:
            await insist()
        assert (raised.value.type, raised.value.code) == (kind, code)
        headers = raised.value.response.headers
        assert headers.get("x-should-retry") == "false" or int(headers["retry-after"]) >= 1
