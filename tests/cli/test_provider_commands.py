"""`kelpie providers` against a real server and a real provider: the key is piped in and never shown."""

import os
from collections.abc import Iterator

import pytest

from tests.cli.live import Live, live
from tests.provider_server import KEY, keyed_provider


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with keyed_provider() as url:
        yield url


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("providers") / "data", {"KELPIE_PROVIDER_PRIVATE": "true"}) as place:
        place.serve()
        yield place


def test_a_provider_is_added_used_changed_and_removed(place: Live, provider: str) -> None:
    wrong = place.kelpie("providers", "add", "mine", "--type", "openai", "--base-url", provider, stdin="sk-wrong-key\n")
    assert wrong.returncode == 1 and "refused the key" in wrong.stderr, "it is tried before it is stored"
    assert place.json("providers", "list") == []
    added = place.kelpie("providers", "add", "mine", "--type", "openai", "--base-url", provider, stdin=f"{KEY}\n")
    assert added.returncode == 0 and "Added provider mine" in added.stdout, added.stderr
    listed = place.kelpie("providers", "list")
    assert "mine" in listed.stdout and provider in listed.stdout
    handles = [model["handle"] for model in place.json("models", "list", "--provider", "mine")]
    assert handles == ["mine/gpt-4o"]
    assert "ready" in place.kelpie("models", "check", "mine/gpt-4o").stdout
    assert "mine/gpt-4o" in place.kelpie("doctor", "--verbose").stdout
    assert "accepts the key" in place.kelpie("providers", "check", "mine").stdout
    assert place.kelpie("providers", "refresh", "mine").returncode == 0
    changed = place.kelpie("providers", "update", "mine", stdin="sk-wrong-key")
    assert changed.returncode == 0, changed.stderr
    refused = place.kelpie("providers", "check", "mine")
    assert refused.returncode == 1 and "refused the key" in refused.stderr
    removed = place.kelpie("providers", "remove", "mine", "--yes")
    assert removed.returncode == 0 and place.json("providers", "list") == []
    shown = [wrong, added, listed, changed, refused, removed]
    assert all(KEY not in each.stdout + each.stderr for each in shown)
    stored = [file for file in place.data_dir.rglob("*") if file.is_file() and KEY.encode() in file.read_bytes()]
    assert stored == []


def test_mistakes_are_said_with_the_remedy(place: Live, provider: str) -> None:
    empty = place.kelpie("providers", "add", "x", "--type", "openai", "--base-url", provider, stdin="")
    assert empty.returncode != 0 and "KEY: is empty" in empty.stderr
    unknown = place.kelpie("providers", "add", "x", "--type", "zork", stdin=KEY)
    assert unknown.returncode != 0 and "zork" in unknown.stderr and "mistral" in unknown.stderr
    missing = place.kelpie("providers", "check", "nobody")
    assert missing.returncode != 0 and "kelpie providers list" in missing.stderr
    kept = place.kelpie("providers", "update", "nobody", "--keep-key")
    assert kept.returncode != 0
    unsure = place.kelpie("providers", "add", "x", "--type", "vllm", "--base-url", provider, "--no-key", "--no-check")
    assert unsure.returncode == 0, unsure.stderr
    asked = place.kelpie("providers", "remove", "x", env=dict(os.environ))
    assert asked.returncode == 2 and "--yes" in asked.stderr
    assert place.kelpie("providers", "remove", "x", "--yes").returncode == 0
