"""`kelpie models` and `kelpie doctor` against a real server that has a demo model and a local model server."""

import os
import pty
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kelpie.cli.commands.operations.doctor_isolation import HOLDS, REFUSED
from tests.cli.fake_ollama import EMBEDS, Ollama, fake_ollama
from tests.cli.live import BIN, Live, live


@pytest.fixture(scope="module")
def ollama() -> Iterator[Ollama]:
    with fake_ollama() as ollama:
        yield ollama


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, ollama: Ollama) -> Iterator[Live]:
    """One server for all of these tests: each removes the models that it has pulled."""
    with live(tmp_path_factory.mktemp("models") / "data", {"OLLAMA_BASE_URL": ollama.url}) as place:
        place.serve()
        yield place


def handles(place: Live, *arguments: str) -> list[str]:
    return [model["handle"] for model in place.json("models", "list", *arguments)]


def test_models_are_listed_pulled_checked_and_removed(place: Live, ollama: Ollama) -> None:
    assert sorted(handles(place)) == ["kelpie/demo", "ollama/small:latest"]
    assert handles(place, "--provider", "kelpie") == ["kelpie/demo"]
    assert f"ollama/{EMBEDS}" in handles(place, "--embeddings")
    plain = place.kelpie("models", "list").stdout
    assert "8192" in plain and "tools" in plain

    pulled = place.kelpie("models", "pull", "ollama/fresh:1b")
    assert pulled.returncode == 0, pulled.stderr
    lines = pulled.stdout.splitlines()
    assert lines == ["pulling manifest", "pulling 0 %", "pulling 10 %", "pulling 50 %", "pulling 100 %", "success",
                     "Pulled ollama/fresh:1b."]  # fmt: skip
    assert "ollama/fresh:1b" in handles(place)

    checked = place.kelpie("models", "check", "ollama/fresh:1b")
    assert (checked.returncode, checked.stdout) == (0, "ollama/fresh:1b answered: ok\n")
    assert place.json("models", "check", "ollama/fresh:1b")["answer"] == "ok"

    assert place.kelpie("models", "remove", "ollama/fresh:1b").returncode == 0
    assert "fresh:1b" not in ollama.models
    assert "ollama/fresh:1b" not in handles(place)


def test_what_cannot_be_pulled_removed_or_found_is_told(place: Live) -> None:
    absent = place.kelpie("models", "pull", "ollama/absent")
    assert absent.returncode == 1 and "does not exist" in absent.stderr
    demo = place.kelpie("models", "pull", "kelpie/demo")
    assert demo.returncode == 1 and "local model server" in demo.stderr
    nobody = place.kelpie("models", "check", "nobody/model")
    assert nobody.returncode == 4 and "nobody/model" in nobody.stderr
    missing = place.kelpie("models", "check", "ollama/missing")
    assert missing.returncode == 4 and "kelpie models pull ollama/missing" in missing.stderr
    word = place.kelpie("models", "remove", "nothing")
    assert word.returncode == 1 and "provider/model" in word.stderr


def test_the_demo_model_answers_a_check(place: Live) -> None:
    assert place.json("models", "check", "kelpie/demo")["ok"] is True


def test_at_a_terminal_a_pull_has_a_bar(place: Live) -> None:
    ours, theirs = pty.openpty()
    command = [str(BIN / "kelpie"), "models", "pull", "ollama/barred"]
    env = place.env | {"TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    seen = b""
    try:
        while b"Pulled ollama/barred." not in seen:
            assert select.select([ours], [], [], 60)[0], seen
            seen += os.read(ours, 4096)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert "━".encode() in seen and b"100%" in seen
    assert place.kelpie("models", "remove", "ollama/barred").returncode == 0


def test_doctor_tells_origins_providers_hidden_models_and_is_honest_about_isolation(
    place: Live, ollama: Ollama
) -> None:
    done = place.kelpie("doctor", "-v", env={"LETTA_PG_URI": "postgresql://letta"})
    assert done.returncode == 0, done.stdout
    assert "OLLAMA_BASE_URL" in done.stdout and ollama.url in done.stdout
    assert "LETTA_PG_URI" in done.stdout, "what Letta's users have set and Kelpie does not use is named"
    assert HOLDS in done.stdout or REFUSED in done.stdout, "what was tried just now, whatever it gave"
    told = place.json("doctor")
    providers = {each["name"]: each for each in told["server"]["providers"]}
    assert [model["handle"] for model in providers["ollama"]["models"]] == ["ollama/small:latest"]
    [model] = providers["ollama"]["models"]
    abilities = ("tools", "vision", "structured_output", "reasoning", "streaming")
    assert model["context_window"] == 8192 and {model[name] for name in abilities} <= {True, False}
    assert "8192" in done.stdout and "tools" in done.stdout
    [hidden] = providers["ollama"]["hidden"]
    assert hidden["name"] == EMBEDS and "it is an embedding model" in hidden["reason"]
    assert hidden["reason"] in done.stdout
    remedies = {each["name"]: each["remedy"] for each in told["server"]["absent"]}
    assert "ANTHROPIC_API_KEY" in remedies["anthropic"] and "ollama" not in remedies
    assert (told["isolation"]["sandbox"] is None) == told["isolation"]["note"].startswith(REFUSED)
    assert {each["name"] for each in told["isolation"]["machine"]} >= {"bubblewrap", "control groups", "Landlock"}
    assert [each["index"] for each in told["packages"]] == ["pip", "npm"] and "Package installers" in done.stdout
    assert told["letta"]["note"]


def test_doctor_says_when_a_provider_or_the_server_is_down(tmp_path: Path) -> None:
    with fake_ollama() as ollama:
        url = ollama.url
    with live(tmp_path / "data", {"OLLAMA_BASE_URL": url}) as place:
        down = place.kelpie("doctor")
        assert down.returncode == 1 and f"kelpie --data-dir {place.data_dir} server start" in down.stdout
        place.serve()
        done = place.kelpie("doctor", "--json")
        assert done.returncode == 1
        assert url in done.stdout
        listed = place.kelpie("models", "list")
        assert "kelpie/demo" in listed.stdout, "the others are still there"
        assert listed.stderr.count("models of ollama are missing") == 1 and url in listed.stderr
