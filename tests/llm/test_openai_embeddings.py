"""Embeddings over OpenAI's wire: every text gets its own vector, and whatever goes wrong is told."""

import asyncio
import base64
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.openai import embeddings
from kelpie.llm.provider.interface import EmbeddingInfo
from tests.llm.fakes import EAGER, Behaviour, Fake, answer, fake, provider, silence

INFO = EmbeddingInfo("openai/small", "small", "openai", "openai", 3, "x")
ONE = [[1.0, 0.0, 0.5]]


def reply(vectors: Sequence[Sequence[float]], *, as_base64: bool = True, backwards: bool = False) -> Behaviour:
    def shown(vector: Sequence[float]) -> Any:
        packed = struct.pack(f"<{len(vector)}f", *vector)
        return base64.b64encode(packed).decode() if as_base64 else list(vector)

    data = [{"index": at, "embedding": shown(vector)} for at, vector in enumerate(vectors)]
    return answer({"data": data[::-1] if backwards else data})


async def embedded(made: Fake, *texts: str, **limits: float) -> list[list[float]]:
    async with asyncio.timeout(30), provider(made, replace(EAGER, **limits)) as chat:
        return [list(struct.unpack("<3f", each)) for each in await chat.embed(INFO, texts)]


async def failure(made: Fake, *texts: str, **limits: float) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await embedded(made, *texts, **limits)
    assert "sk-test" not in f"{caught.value} {caught.value.detail} {caught.value.hint}"
    return caught.value


@pytest.mark.parametrize("as_base64", [True, False])
async def test_each_text_gets_the_vector_of_its_number(as_base64: bool) -> None:
    vectors = [[float(at), 1.0, 0.0] for at in range(3)]
    async with fake() as made:
        made.will(reply(vectors, as_base64=as_base64, backwards=True))
        assert await embedded(made, "a", "b", "") == vectors
    (asked,) = made.heard
    assert asked.path == "/v1/embeddings" and asked.headers["authorization"] == "Bearer sk-test"
    assert asked.body["model"] == "small" and asked.body["input"] == ["a", "b", " "]


async def test_many_texts_go_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "TEXTS_MAX", 2)
    vectors = [[float(at), 1.0, 0.0] for at in range(5)]
    async with fake() as made:
        made.will(reply(vectors[:2]), reply(vectors[2:4]), reply(vectors[4:]))
        assert await embedded(made, *"abcde") == vectors
    assert [asked.body["input"] for asked in made.heard] == [["a", "b"], ["c", "d"], ["e"]]


async def test_a_text_too_long_for_the_models_is_cut() -> None:
    async with fake() as made:
        made.will(reply(ONE))
        await embedded(made, "x" * (embeddings.TEXT_CHARS_MAX + 1))
    assert len(made.heard[0].body["input"][0]) == embeddings.TEXT_CHARS_MAX


async def test_a_text_that_the_model_refuses_keeps_nothing_from_the_others() -> None:
    too_long = answer({"error": {"message": "input is longer than 512 tokens"}}, 400)
    async with fake() as made:
        made.will(too_long, reply(ONE), too_long, too_long, reply([[0.0, 1.0, 0.0]]), reply(ONE))
        assert await embedded(made, "a", "長" * 12_000, "b") == [*ONE, [0.0, 1.0, 0.0], *ONE]
    assert [len(asked.body["input"][0]) for asked in made.heard] == [1, 1, 12_000, 3000, 750, 1]


async def test_what_is_refused_whatever_its_length_is_told() -> None:
    async with fake() as made:
        made.will(*[answer({"error": {"message": "no such parameter"}}, 400)] * 9)
        assert (await failure(made, "x" * 1000, "y" * 1000)).kind is ModelFault.bad_request
    assert len(made.heard) == 3, "all, the first, and its beginning"


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_what_passes_is_tried_again(status: int) -> None:
    async with fake() as made:
        made.will(answer({"error": {"message": "later"}}, status), reply(ONE))
        assert await embedded(made, "a") == ONE
    assert len(made.heard) == 2


async def test_a_wrong_key_is_told_and_not_tried_again() -> None:
    async with fake() as made:
        made.will(answer({"error": {"message": "Incorrect API key"}}, 401))
        error = await failure(made, "a")
    assert error.kind is ModelFault.authentication and len(made.heard) == 1


async def test_a_server_that_stays_silent_is_given_up() -> None:
    async with fake() as made:
        made.will(silence)
        error = await failure(made, "a", attempts=1, total_s=0.05)
    assert error.kind is ModelFault.timeout


@pytest.mark.parametrize(
    ("vectors", "told"),
    [
        ([[1.0, 2.0]], "has 2 numbers, but the model has 3 dimensions"),
        ([], "does not contain 1 vectors"),
        (ONE * 2, "1 vectors"),
    ],
)
async def test_other_dimensions_and_other_numbers_of_vectors_are_refused(vectors: Any, told: str) -> None:
    async with fake() as made:
        made.will(reply(vectors))
        error = await failure(made, "a", attempts=1)
    assert told in f"{error} {error.detail}"


@pytest.mark.parametrize("given", [None, "not base64!", ["a"], {"x": 1}, 7])
async def test_what_is_no_vector_is_refused(given: Any) -> None:
    async with fake() as made:
        made.will(answer({"data": [{"index": 0, "embedding": given}]}))
        assert (await failure(made, "a", attempts=1)).kind is ModelFault.malformed
