"""Which providers the settings bring up, under which limits, and what to set for those that are not there."""

from dataclasses import fields
from typing import Any

import pytest

from kelpie.core.errors import ConfigurationError, InvalidInput, ModelError, ModelFault, NotFound
from kelpie.core.ids import DEFAULT_ORGANIZATION
from kelpie.core.settings.provider_settings import ProviderSettings
from kelpie.core.settings.settings import Settings
from kelpie.llm.routing.models import Models
from kelpie.llm.routing.providers import ALL_OFFERS, LOCAL_OFFERS, how_to_have
from tests.llm.fakes import answer, asking, chunk, completion, events, fake, silence, world
from tests.llm.local_fakes import MovedPorts, local_fake, ndjson, ollama, shown
from tests.llm.shapes import load

ENVIRONMENT = {
    "OPENAI_API_KEY": "k",
    "ANTHROPIC_API_KEY": "k",
    "AZURE_API_KEY": "k",
    "AZURE_BASE_URL": "https://me.openai.azure.com",
    "GROQ_API_KEY": "k",
    "TOGETHER_API_KEY": "k",
    "DEEPSEEK_API_KEY": "k",
    "XAI_API_KEY": "k",
    "OPENROUTER_API_KEY": "k",
    "OLLAMA_BASE_URL": "http://localhost:11434",
    "LMSTUDIO_BASE_URL": "http://localhost:1234",
    "VLLM_API_BASE": "http://localhost:8000",
    "LLAMACPP_BASE_URL": "http://localhost:8080",
    "LOCALAI_BASE_URL": "http://localhost:8080",
}


def models(**settings: Any) -> Models:
    return Models(world(), Settings(**settings))


@pytest.mark.parametrize("offer", ALL_OFFERS, ids=lambda offer: offer.name)
def test_each_provider_comes_up_with_the_names_that_letta_users_have_set(offer: Any):
    needed = (offer.variable, "AZURE_BASE_URL") if offer.name == "azure" else (offer.variable,)
    settings = Settings.from_environment({name: ENVIRONMENT[name] for name in needed})
    made = Models(world(), settings)
    known = made.known(f"{offer.name}/some-model")
    assert known is not None and known.handle == f"{offer.name}/some-model"
    assert known.provider_type == offer.name
    assert made.absent().keys() == {each.name for each in ALL_OFFERS} - {offer.name}
    assert models().known(f"{offer.name}/some-model") is None
    assert all(variable in how_to_have(offer.name) for variable in needed)


def test_everything_at_once_and_an_address_without_its_key():
    made = Models(world(), Settings.from_environment(ENVIRONMENT))
    assert made.absent() == {}
    assert "azure" in models(azure_base_url="https://x").absent()
    assert "openai" not in models(openai_base_url="http://localhost:1/v1").absent()


@pytest.mark.parametrize("offer", ALL_OFFERS, ids=lambda offer: offer.name)
async def test_a_handle_of_a_provider_that_is_not_set_up_tells_what_to_set(offer: Any):
    with pytest.raises(NotFound, match=f"Set {offer.variable}"):
        await models(discover_models=False).resolve(f"{offer.name}/some-model")


@pytest.mark.parametrize("offer", LOCAL_OFFERS, ids=lambda offer: offer.name)
async def test_a_local_server_that_is_not_found_is_unreachable_until_it_is(offer: Any):
    ports = MovedPorts({})
    searching = Models(world(ports), Settings(model_listing_retry_s=60.0))
    for _ in range(2):
        with pytest.raises(ModelError, match=f"No {offer.name} server answers") as caught:
            await searching.resolve(f"{offer.name}/some-model")
        assert caught.value.kind is ModelFault.connection and f"Set {offer.variable}" in (caught.value.hint or "")
    assert sorted(ports.asked) == [1234, 8000, 8080, 11434], "the second answer comes from the first search"


@pytest.mark.parametrize("name", [field.name for field in fields(ProviderSettings) if field.name.endswith("_base_url")])
def test_a_wrong_address_stops_the_start_and_names_its_variable(name: str):
    variable = {"vllm_base_url": "VLLM_API_BASE"}.get(name, name.upper())
    keys = {"anthropic_api_key": "k", "azure_api_key": "k"}
    with pytest.raises(ConfigurationError, match=variable):
        models(**{**keys, name: "localhost:1234"})


# --- settings of calls -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "path"),
    [("auto", "/v1/chat/completions"), ("never", "/v1/chat/completions"), ("always", "/v1/responses")],
)
async def test_the_operator_says_whether_a_compatible_server_speaks_responses(setting: str, path: str):
    async with fake() as made:
        whole = load("responses")["whole"]["text"] if setting == "always" else completion({"content": "hi"})
        made.will(answer(whole))
        asked = models(openai_base_url=made.url, openai_responses=setting)
        for model in ("gpt-5-mini", "gpt-4o"):  # only reasoning models go that way
            speaker, name = asked.provider(f"openai/{model}")
            if model == "gpt-4o":
                made.will(answer(completion({"content": "hi"})))
            assert [event async for event in speaker.stream(asking(model=name))]
        await asked.close()
        assert [heard.path for heard in made.heard] == [path, "/v1/chat/completions"]


@pytest.mark.parametrize(
    ("setting", "behaviour", "told"),
    [
        ("model_first_byte_s", silence, "KELPIE_MODEL_FIRST_BYTE_SECONDS"),
        ("model_silence_s", events(chunk({"content": None}), end="open"), "KELPIE_MODEL_SILENCE_SECONDS"),
        ("model_timeout_s", silence, "KELPIE_MODEL_TIMEOUT_SECONDS"),
    ],
)
async def test_each_wait_for_an_answer_has_its_setting(setting: str, behaviour: Any, told: str):
    async with fake() as made:
        made.will(behaviour)
        asked = models(openai_base_url=made.url, model_attempts=1, **{setting: 0.05})
        speaker, name = asked.provider("openai/gpt-4o-mini")
        with pytest.raises(ModelError) as caught:
            await anext(speaker.stream(asking(model=name, deltas=True)))
        await asked.close()
    assert caught.value.kind is ModelFault.timeout and told in (caught.value.hint or "")


async def test_a_listing_has_its_own_time_and_its_age():
    async with fake() as made:
        made.will(silence)
        asked = models(openai_base_url=made.url, model_listing_s=0.05)
        (_, slow) = await asked.report()
        await asked.close()
        assert slow.error is not None and slow.error.kind is ModelFault.timeout
        made.will(answer({"data": [{"id": "gpt-4o"}]}))
        made.heard.clear()
        for fresh_s, times in ((60.0, 1), (1e-9, 2)):
            asked = models(openai_base_url=made.url, model_listing_fresh_s=fresh_s)
            before = len(made.heard)
            assert [len(await asked.all()) for _ in range(2)] == [2, 2]
            await asked.close()
            assert len(made.heard) - before == times


async def test_a_provider_may_not_ask_for_a_longer_pause_than_the_setting():
    async with fake() as made:
        made.will(answer({}, 429, headers={"retry-after": "3600"}), answer(completion({"content": "hi"})))
        asked = models(openai_base_url=made.url, model_retry_after_s=0.01, model_backoff_s=0.01)
        speaker, name = asked.provider("openai/gpt-4o-mini")
        assert [event async for event in speaker.stream(asking(model=name))]
        await asked.close()
        assert len(made.heard) == 2


def test_what_is_assumed_of_models_is_a_setting():
    made = models(openai_base_url="http://127.0.0.1:9/v1", context_window_unknown=5000, output_tokens=100)
    plain = models(openai_base_url="http://127.0.0.1:9/v1")
    for handle, given, usual in (("openai/new", (5000, None), (32_000, None)), ("openai/gpt-4o", (128_000, 100), None)):
        known = made.known(handle)
        assert known is not None and (known.context_window, known.max_tokens) == given
        default = plain.known(handle)
        assert default is not None and (default.context_window, default.max_tokens) == (usual or (128_000, 16_384))


# --- limits --------------------------------------------------------------------------------------------------------


async def test_limits_hold_for_all_who_ask_and_name_themselves():
    async with fake() as made:
        made.will(answer(completion({"content": "hi"})))
        limited = models(openai_base_url=made.url, provider_limits=("openai: requests=2",), provider_wait_s=1.0)
        for agent in ("a", "b"):
            speaker, name = limited.provider("openai/gpt-4o-mini")
            assert [event async for event in speaker.stream(asking(model=name, user=agent))]
        speaker, name = limited.provider("openai/gpt-4o-mini")
        with pytest.raises(ModelError, match="limit of openai is reached: 2 requests a minute") as caught:
            await anext(speaker.stream(asking(model=name, user="c")))
        await limited.close()
        assert len(made.heard) == 2
    assert caught.value.kind is ModelFault.rate_limit and (caught.value.retry_after_s or 0) > 50


async def test_a_limited_provider_is_still_asked_as_often_as_it_may():
    async with fake() as made:
        made.will(answer({}, 500, headers={"retry-after": "0"}), answer(completion({"content": "hi"})))
        limited = models(openai_base_url=made.url, provider_limits=("openai: calls=1",), model_attempts=2)
        speaker, name = limited.provider("openai/gpt-4o-mini")
        assert [event async for event in speaker.stream(asking(model=name))]
        await limited.close()
        assert len(made.heard) == 2


def test_wrong_limits_stop_the_start():
    for limits, told in (
        ("opnai: calls=1", "no provider 'opnai'"),
        ("groq: dollars=5", "prices of its models are unknown"),
        ("openai", "has no provider or no limit"),
    ):
        with pytest.raises(ConfigurationError, match=told) as caught:
            models(openai_api_key="k", groq_api_key="k", provider_limits=(limits,))
        assert caught.value.setting == "KELPIE_PROVIDER_LIMITS"
    with pytest.raises(ConfigurationError, match="KELPIE_MODEL_PRICES"):
        models(model_prices=("openai/x",))


async def test_money_spent_before_a_restart_counts():
    limited = models(
        openai_api_key="k", provider_limits=("openai: dollars=1",), model_prices=("openai/*=1/1",), provider_wait_s=1.0
    )
    now = world().clock.now()
    handles = (("openai/x", now - 10), ("nobody/x", now), ("kelpie/demo", now))
    spent = [(DEFAULT_ORGANIZATION, handle, at, 1_100_000) for handle, at in handles]
    limited.remember(spent)
    assert limited.counts_money and not models(openai_api_key="k").counts_money
    speaker, name = limited.provider("openai/x")
    with pytest.raises(ModelError, match="1 dollars a day"):
        await anext(speaker.stream(asking(model=name)))
    await limited.close()


# --- local models ----------------------------------------------------------------------------------------------------


async def test_a_missing_local_model_names_the_command_or_is_pulled():
    async with local_fake() as server:
        ollama(server, old=shown())
        told = models(ollama_base_url=server.url)
        with pytest.raises(
            NotFound, match="Type `kelpie models pull ollama/new:1b`, or set KELPIE_PULL_MISSING_MODELS"
        ):
            await told.resolve("ollama/new:1b")
        await told.close()
        pulls = models(ollama_base_url=server.url, pull_missing_models=True, provider_limits=("ollama: calls=1",))
        assert (await pulls.resolve("ollama/old")).context_window == 40960
        assert not server.asked("POST /api/pull")
        ollama(server, old=shown(), new__1b=shown(window=8192))
        server.at("POST /api/pull", ndjson({"status": "success"}))
        assert (await pulls.resolve("ollama/new:1b")).context_window == 8192
        await pulls.close()
        assert [heard.body["model"] for heard in server.asked("POST /api/pull")] == ["new:1b"]


async def test_pull_remove_check_and_the_report():
    async with local_fake() as server:
        ollama(server, old=shown(), embed=shown(capabilities=["embedding"]))
        server.at("POST /api/pull", ndjson({"status": "success"}))
        server.at("DELETE /api/delete", answer(b""))
        server.at("POST /api/chat", {"message": {"content": "ready"}, "done": True})
        made = models(ollama_base_url=server.url, vllm_base_url="http://127.0.0.1:9")
        demo, local, dead = await made.report()
        assert (demo.provider, [model.name for model in demo.models]) == ("kelpie", ["demo"])
        assert (local.provider, local.server, [model.name for model in local.models]) == ("ollama", "ollama", ["old"])
        assert [hidden.name for hidden in local.hidden] == ["embed"]
        assert dead.error is not None and dead.error.kind is ModelFault.connection and dead.models == ()
        assert [model.handle for model in await made.all()] == ["kelpie/demo", "ollama/old"]
        assert await made.check("ollama/old") == "ready"
        assert (await made.check("kelpie/demo")).strip()
        ollama(server, new=shown())
        assert [step.status async for step in made.pull("ollama/new")] == ["success"]
        assert [model.handle for model in await made.all()] == ["kelpie/demo", "ollama/new"]  # at once, not in minutes
        ollama(server)
        await made.remove("ollama/new")
        assert [model.handle for model in await made.all()] == ["kelpie/demo"]
        for care in (anext(made.pull("kelpie/demo")), made.remove("kelpie/demo")):
            with pytest.raises(InvalidInput, match="not on a local model server"):
                await care
        await made.close()


async def test_models_that_openai_lists_but_cannot_chat_are_hidden_with_a_reason():
    async with fake() as made:
        made.will(answer({"data": [{"id": "gpt-4o"}, {"id": "whisper-1"}]}))
        listed = models(openai_base_url=made.url)
        report = (await listed.report())[1]
        await listed.close()
    assert [model.name for model in report.models] == ["gpt-4o"]
    assert [(each.name, "not a chat model" in each.reason) for each in report.hidden] == [("whisper-1", True)]


async def test_a_local_server_that_does_not_answer_hides_only_its_embeddings_and_is_not_asked_each_time():
    async with local_fake() as server:
        facts = {"general.architecture": "bert", "bert.embedding_length": 768}
        ollama(server, embed=shown(model_info=facts, capabilities=["embedding"]))
        made = models(ollama_base_url=server.url, openai_api_key="k")
        assert "ollama/embed" in [info.handle for info in await made.embeddings()]
        await made.close()
        server.at("GET /", answer({}, 401))
        for path in ("/api/v0/models", "/props", "/system", "/v1/models"):
            server.at(f"GET {path}", answer({}, 401))
        made = models(ollama_base_url=server.url, openai_api_key="k")
        server.heard.clear()
        found = [info.handle for info in await made.embeddings()]
        asked = len(server.heard)
        assert found and not [handle for handle in found if handle.startswith("ollama/")]
        assert [info.handle for info in await made.embeddings()] == found
        assert len(server.heard) == asked > 0
        await made.close()
