"""Local servers are recognised by what they answer, list their models as they really are, and misbehave politely."""

from dataclasses import replace
from typing import Any

import pytest

from kelpie.core.errors import InvalidInput, ModelError, ModelFault
from kelpie.llm.local.probing import Progress
from kelpie.llm.provider.interface import ModelInfo, Reply
from tests.llm.fakes import EAGER, answer, asking, completion, silence
from tests.llm.local_fakes import LocalFake, embedding, local_fake, local_server, ollama, shown


def lmstudio(fake: LocalFake) -> None:
    base = {"object": "model", "publisher": "x", "arch": "qwen3", "state": "not-loaded", "max_context_length": 32768}
    fake.at("GET /", {"error": "Unexpected endpoint or method. (GET /)"})
    fake.at(
        "GET /api/v0/models",
        {
            "data": [
                {**base, "id": "qwen3-8b", "type": "llm", "capabilities": ["tool_use"]},
                {**base, "id": "gemma-3", "type": "vlm", "state": "loaded", "loaded_context_length": 8192},
                {**base, "id": "old-one", "type": "llm", "capabilities": []},
                {**base, "id": "nomic-embed", "type": "embeddings"},
            ]
        },
    )


def llamacpp(fake: LocalFake) -> None:
    fake.at(
        "GET /props",
        {
            "default_generation_settings": {"n_ctx": 16384},
            "chat_template": "{% if tools %}...{% endif %}<think>",
            "modalities": {"vision": True, "audio": False},
        },
    )
    fake.at("GET /v1/models", {"data": [{"id": "/models/model.gguf", "meta": {"n_ctx_train": 131072}}]})


def vllm(fake: LocalFake) -> None:
    fake.at(
        "GET /v1/models",
        {
            "data": [
                {"id": "Qwen/Qwen3-8B", "owned_by": "vllm", "max_model_len": 20000},
                {"id": "adapter", "owned_by": "vllm", "parent": "Qwen/Qwen3-8B", "max_model_len": None},
                {"id": "bge-embed", "owned_by": "vllm", "max_model_len": 512},
            ]
        },
    )


def localai(fake: LocalFake) -> None:
    fake.at("GET /system", {"backends": ["llama-cpp"], "loaded_models": []})
    fake.at("GET /v1/models", {"data": [{"id": "phi-4"}, {"id": "minilm"}, {"id": "whisper-1"}]})
    fake.at("GET /api/models/config-json/phi-4", {"name": "phi-4", "context_size": 9000, "mmproj": "p.gguf"})
    fake.at("GET /api/models/config-json/minilm", {"name": "minilm", "embeddings": True})


def anything(fake: LocalFake) -> None:
    fake.at("GET /v1/models", {"data": [{"id": "mystery", "context_length": 5000}]})


def told(models: Any) -> dict[str, tuple[int, bool, bool, bool]]:
    return {model.name: (model.context_window, model.tools, model.vision, model.reasoning) for model in models}


EXPECTED = {
    "lmstudio": {
        "gemma-3": (8192, True, True, False),
        "old-one": (32768, False, False, False),
        "qwen3-8b": (32768, True, False, True),  # its name is known
    },
    "llamacpp": {"model": (16384, True, True, True)},
    "vllm": {"Qwen/Qwen3-8B": (20000, True, False, True), "adapter": (20000, True, False, False)},
    "localai": {"phi-4": (9000, True, True, False)},
    "openai": {"mystery": (5000, True, False, False)},
}
HIDDEN = {
    "lmstudio": {"nomic-embed": "is an embedding model"},
    "llamacpp": {},
    "vllm": {"bge-embed": "is an embedding model"},
    "localai": {"minilm": "is an embedding model", "whisper-1": "name"},
    "openai": {},
}
SERVERS = {"lmstudio": lmstudio, "llamacpp": llamacpp, "vllm": vllm, "localai": localai, "openai": anything}


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("expected", ["ollama", "lmstudio", "vllm", "llamacpp", "localai"])
async def test_which_server_it_is_its_answers_tell_not_the_setting(kind: str, expected: str):
    async with local_fake() as fake, local_server(fake.url, expected) as server:
        SERVERS[kind](fake)
        found = await server.models()
        assert server.server == kind
        assert {name: facts[0] for name, facts in told(found).items()} == {
            name: facts[0] for name, facts in EXPECTED[kind].items()
        }
        assert all(model.handle == f"{expected}/{model.name}" and model.endpoint == fake.url for model in found)


@pytest.mark.parametrize("kind", SERVERS)
async def test_models_with_their_real_windows_and_abilities_and_why_others_are_hidden(kind: str):
    async with local_fake() as fake, local_server(fake.url + "/v1/", "vllm") as server:  # with /v1 or without it
        SERVERS[kind](fake)
        found = await server.models()
        assert told(found) == EXPECTED[kind]
        reasons = {hidden.name: hidden.reason for hidden in server.hidden}
    assert reasons.keys() == HIDDEN[kind].keys()
    assert all(HIDDEN[kind][name] in reason for name, reason in reasons.items())


async def test_ollama_with_real_windows_abilities_and_embedding_sizes():
    async with local_fake() as fake, local_server(fake.url) as server:
        facts = {"general.architecture": "bert", "bert.embedding_length": 768, "bert.context_length": 512}
        ollama(
            fake,
            qwen3__8b=shown(capabilities=["completion", "tools", "thinking"]),
            llava=shown("llama", 4096, capabilities=["completion", "vision"]),
            short=shown("llama", 131072, parameters="stop x\nnum_ctx                        16384\n"),
            embed=shown(model_info=facts, capabilities=["embedding"]),
            odd=shown(model_info={}, capabilities=["completion"]),
        )
        found = await server.models()
        embeddings = await server.embeddings()
        hidden = {each.name: each.reason for each in server.hidden}
    assert told(found) == {
        "llava": (4096, False, True, False),
        "odd": (4096, False, False, False),
        "qwen3:8b": (40960, True, False, True),
        "short": (16384, True, False, False),
    }
    assert all(model.structured_output and model.streaming and model.provider_type == "ollama" for model in found)
    assert [(each.handle, each.dimensions) for each in embeddings] == [("ollama/embed", 768)]
    assert hidden == {"embed": "it is an embedding model"}


async def test_an_older_ollama_tells_its_abilities_by_its_template():
    async with local_fake() as fake, local_server(fake.url) as server:
        old = shown("llama", 8192, template="{{ if .Tools }}", projector_info={"general.type": "projector"})
        del old["capabilities"]
        bare = shown("llama", 8192)
        del bare["capabilities"]
        ollama(fake, old=old, bare=bare)
        found = await server.models()
    assert told(found) == {"bare": (8192, False, False, False), "old": (8192, True, True, False)}


async def test_a_model_whose_details_cannot_be_read_is_hidden_alone():
    async with local_fake() as fake, local_server(fake.url) as server:
        ollama(fake, good=shown(), broken=shown(), gone=shown())
        fake.at("POST /api/show broken", answer({"error": "unexpected EOF"}, 500))
        fake.at("POST /api/show gone", answer(b'{"parameters": ', 200))
        found = await server.models()
        assert [model.name for model in found] == ["good"]
        assert {each.name for each in server.hidden} == {"broken", "gone"}


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (answer(b"<html>hello</html>", 200, "text/html"), ModelFault.malformed),
        (answer(b"{broken", 200), ModelFault.malformed),
        (answer({"error": "no"}, 500), ModelFault.malformed),
        (answer({"detail": "Unauthorized"}, 401), ModelFault.authentication),
        (answer({"data": "?"}), ModelFault.malformed),
    ],
)
async def test_what_is_no_model_server_is_told_by_its_address(behaviour: Any, kind: ModelFault):
    async with local_fake() as fake, local_server(fake.url, "vllm") as server:
        for path in ("/", "/api/v0/models", "/props", "/system", "/v1/models"):
            fake.at(f"GET {path}", behaviour)
        with pytest.raises(ModelError) as caught:
            await server.models()
    assert caught.value.kind is kind
    assert "VLLM_BASE_URL" in (caught.value.hint or "")


async def test_the_size_of_an_embedding_model_is_measured_once():
    async with local_fake() as fake, local_server(fake.url, "lmstudio") as server:
        lmstudio(fake)
        embedding(fake, {"": [0.5, 0.5, 0.5]})
        for _ in range(3):
            assert [(each.name, each.dimensions) for each in await server.embeddings()] == [("nomic-embed", 3)]
        await server.models()
        assert [each.dimensions for each in await server.embeddings()] == [3]
        assert len(fake.asked("POST /v1/embeddings")) == 1


async def test_an_embedding_model_that_cannot_be_measured_says_why_and_is_tried_again_with_the_next_list():
    async with local_fake() as fake, local_server(fake.url, "lmstudio") as server:
        lmstudio(fake)
        fake.at("POST /v1/embeddings", answer({"error": {"message": "the model crashed"}}, status=400))
        assert [await server.embeddings() for _ in range(3)] == [[], [], []]
        assert len(fake.asked("POST /v1/embeddings")) == 1, "asked once"
        (reason,) = [each.reason for each in server.hidden if each.name == "nomic-embed"]
        assert "is an embedding model, but it could not be used" in reason and "the model crashed" in reason
        embedding(fake, {"": [0.5, 0.5]})
        await server.models()
        assert [each.dimensions for each in await server.embeddings()] == [2]
        assert not any("could not be used" in each.reason for each in server.hidden)


async def test_a_server_that_is_not_running_is_told_with_the_setting():
    async with local_fake() as fake:
        url = fake.url
    async with local_server(url) as server:
        for ask in (server.models(), anext(server.stream(asking())), server.embeddings()):
            with pytest.raises(ModelError) as caught:
                await ask
            assert caught.value.kind is ModelFault.connection
            assert "OLLAMA_BASE_URL" in (caught.value.hint or "")


@pytest.mark.parametrize("kind", SERVERS)
async def test_all_but_ollama_are_spoken_to_in_openai_words(kind: str):
    async with local_fake() as fake, local_server(fake.url, "vllm") as server:
        SERVERS[kind](fake)
        fake.at("POST /v1/chat/completions", completion({"content": "hello"}))
        events = [event async for event in server.stream(asking(model="m"))]
        [heard] = fake.asked("POST /v1/chat/completions")
    assert isinstance(events[-1], Reply) and events[-1].content[0].text == "hello"
    assert heard.body["model"] == "m"


async def test_what_is_known_of_a_model_without_asking():
    async with local_fake() as fake, local_server(fake.url) as server:
        assert server.describe("qwen3:8b").handle == "ollama/qwen3:8b"
        ollama(fake, qwen3__8b=shown())
        await server.models()
        known = server.describe("qwen3:8b")
    assert isinstance(known, ModelInfo) and known.context_window == 40960


@pytest.mark.parametrize(
    ("kind", "word"), [("vllm", "started with"), ("lmstudio", "lms get"), ("openai", "cannot download or remove")]
)
async def test_servers_that_care_for_their_models_themselves(kind: str, word: str):
    async with local_fake() as fake, local_server(fake.url, "vllm") as server:
        SERVERS[kind](fake)
        with pytest.raises(InvalidInput, match=word):
            await anext(server.pull("x"))
        with pytest.raises(InvalidInput, match=word):
            await server.remove("x")
        assert server.command("x") is None


async def test_localai_installs_from_its_gallery_and_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kelpie.llm.local.server.JOB_EVERY_S", 0.0)
    async with local_fake() as fake, local_server(fake.url, "localai") as server:
        localai(fake)
        fake.at("POST /models/apply", {"uuid": "job 1", "status": "..."})
        fake.at(
            "GET /models/jobs/job%201",
            {"processed": False, "message": "processing", "progress": 12.5, "error": None},
            {"processed": True, "message": "completed", "progress": 100, "error": None},
        )
        fake.at("POST /models/delete/phi-4", {"uuid": "job 2"})
        steps = [step async for step in server.pull("localai@phi-4")]
        assert fake.asked("POST /models/apply")[0].body == {"id": "localai@phi-4"}
        await server.remove("phi-4")
        assert fake.asked("POST /models/delete/phi-4")
        assert server.command("x") == "kelpie models pull localai/x"
    assert steps == [Progress("processing", 12, 100), Progress("completed", 100, 100)]


async def test_localai_tells_why_it_could_not_install():
    async with local_fake() as fake, local_server(fake.url, "localai") as server:
        localai(fake)
        fake.at("POST /models/apply", {"uuid": "j"}, {"no": "job"}, answer({"error": {"message": "no"}}, 500))
        fake.at("GET /models/jobs/j", {"processed": True, "error": "no model found with name x"})
        for word in ("no model found", "contains no job id", None):
            with pytest.raises(ModelError) as caught:
                await anext(server.pull("x"))
            assert word is None or word in f"{caught.value.message} {caught.value.detail}"


async def test_a_silent_server_is_given_up():
    async with local_fake() as fake, local_server(fake.url, limits=replace(EAGER, listing_s=0.05)) as server:
        fake.at("GET /", silence)
        with pytest.raises(ModelError) as caught:
            await server.models()
    assert caught.value.kind is ModelFault.timeout
