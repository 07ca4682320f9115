"""Flags, environment and kelpie.toml through the real command, and a server that starts with them."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from kelpie.core.settings.settings import SETTINGS
from tests.cli.live import Live, live


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "data") as place:
        yield place


def shown(place: Live, cwd: Path, *arguments: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    done = place.kelpie("config", "show", "--json", *arguments, cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr
    return {row["key"]: row for row in json.loads(done.stdout)["settings"]}


def test_every_setting_is_shown_with_its_origin(place: Live, tmp_path: Path) -> None:
    (tmp_path / "kelpie.toml").write_text("# mine\n[agents]\nblock_limit = 500\nmailbox_size = 3\n")
    found = shown(
        place,
        tmp_path,
        "--set",
        "agents.hot_max=9",
        env={"KELPIE_MAILBOX_SIZE": "4", "LETTA_DEFAULT_LLM_HANDLE": "a/b"},
    )
    assert list(found) == [spec.key for spec in SETTINGS.values()]
    origins = {key: (row["value"], row["origin"]) for key, row in found.items() if row["source"] != "default"}
    assert origins == {
        "server.port": (place.port, "KELPIE_PORT"),
        "server.data_dir": (str(place.data_dir), "KELPIE_DATA_DIR"),
        "models.discover": (False, "KELPIE_DISCOVER_MODELS"),
        "agents.default_model": ("a/b", "LETTA_DEFAULT_LLM_HANDLE"),
        "agents.block_limit": (500, f"{tmp_path / 'kelpie.toml'} line 3, agents.block_limit"),
        "agents.mailbox_size": (4, "KELPIE_MAILBOX_SIZE"),
        "agents.hot_max": (9, "--set agents.hot_max"),
    }
    plain = place.kelpie("config", "show", "--all", cwd=tmp_path).stdout
    assert all(spec.key in plain for spec in SETTINGS.values())
    assert "kelpie.toml line 3" in plain
    short = place.kelpie("config", "show", cwd=tmp_path)
    heading, *rows = short.stdout.splitlines()
    assert heading.startswith("SETTING") and len(rows) == 5 and "--all" in short.stderr


def test_a_secret_is_never_shown(place: Live, tmp_path: Path) -> None:
    (tmp_path / "kelpie.toml").write_text('[providers.anthropic]\napi_key = "sk-from-file"\n')
    env = {"OPENAI_API_KEY": "sk-from-environment"}
    found = shown(place, tmp_path, env=env)
    assert found["providers.openai.api_key"]["value"] == found["providers.anthropic.api_key"]["value"] == "(set)"
    assert found["providers.groq.api_key"]["value"] is None
    for arguments in (("config", "show"), ("config", "show", "--json"), ("doctor", "-v"), ("doctor", "--json")):
        done = place.kelpie(*arguments, cwd=tmp_path, env=env)
        assert "sk-from" not in done.stdout + done.stderr
        assert "(set)" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "env", "told"),
    [
        (("--set", "server.port=x"), {}, "--set server.port: 'x' is not a whole number"),
        (("--set", "server.prot=1"), {}, "--set: there is no setting 'server.prot'"),
        (("--set", "server.port"), {}, "--set: expected KEY=VALUE"),
        (("--config", "missing.toml"), {}, "--config: "),
        ((), {"KELPIE_CONFIG": "missing.toml"}, "KELPIE_CONFIG: "),
        ((), {"KELPIE_IDLE_SECONDS": "0"}, "KELPIE_IDLE_SECONDS: use more than 0 seconds"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_its_place(
    place: Live, tmp_path: Path, arguments: tuple[str, ...], env: dict[str, str], told: str
) -> None:
    done = place.kelpie("config", "show", *arguments, cwd=tmp_path, env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"kelpie: {told}") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [("config", "show"), ("server", "start"), ("agents", "list"), ("server", "start", "--foreground")]
)
def test_a_wrong_file_stops_most_commands_with_file_line_and_remedy(
    place: Live, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    path = tmp_path / "kelpie.toml"
    path.write_text("[server]\n\nport = 99999\n")
    done = place.kelpie(*arguments, cwd=tmp_path, env={"KELPIE_PORT": ""})
    assert done.returncode == 1
    assert done.stderr == f"kelpie: {path} line 3, server.port: 99999 is out of range; use 0 to 65535\n"


@pytest.mark.parametrize("arguments", [("server", "start"), ("server", "start", "--foreground"), ("config", "show")])
def test_a_file_in_the_current_directory_cannot_take_a_key_elsewhere(
    place: Live, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    path = tmp_path / "kelpie.toml"
    path.write_text('[providers.openai]\nbase_url = "http://127.0.0.1:9"\n')
    done = place.kelpie(*arguments, cwd=tmp_path, env={"OPENAI_API_KEY": "sk-of-the-user"})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"kelpie: {path} line 2, providers.openai.base_url: the key of OPENAI_API_KEY would")
    assert done.stderr.count("\n") == 1 and "set OPENAI_BASE_URL" in done.stderr and "sk-of" not in done.stderr
    assert not place.data_dir.exists(), "nothing was started"


def test_what_only_the_start_can_see_is_told_with_its_place_too(place: Live, tmp_path: Path) -> None:
    path = tmp_path / "kelpie.toml"
    path.write_text('[server]\nhost = "203.0.113.1"\n')
    quiet = {"KELPIE_LOG_LEVEL": "error", "KELPIE_CONFIG": str(path)}
    for arguments in (("server", "start", "--foreground"), ("server", "start")):
        done = place.kelpie(*arguments, cwd=tmp_path, env=quiet)
        assert done.returncode == 1
        assert f"kelpie: {path} line 2, server.host: cannot listen on 203.0.113.1" in done.stderr
    done = place.kelpie("server", "start", "--host", "203.0.113.1", "--foreground", cwd=tmp_path)
    assert "kelpie: --host: cannot listen on 203.0.113.1" in done.stderr


def test_a_file_that_nobody_named_does_not_open_the_server_to_others(place: Live, tmp_path: Path) -> None:
    path = tmp_path / "kelpie.toml"
    path.write_text('[server]\nhost = "0.0.0.0"\npassword = "known to whoever wrote this"\n')
    for arguments in (("server", "start", "--foreground"), ("server", "start")):
        done = place.kelpie(*arguments, cwd=tmp_path)
        assert done.returncode == 1
        assert f"kelpie: {path} line 2, server.host: '0.0.0.0'" in done.stderr and "--config" in done.stderr
    assert place.kelpie("server", "status").returncode == 3


def test_a_server_starts_with_its_file_and_keeps_it(place: Live, tmp_path: Path) -> None:
    (tmp_path / "kelpie.toml").write_text(
        '[agents]\nblock_limit = 1234\ncontext_window = 5000\nmax_steps = 1\n[server]\ndata_dir = "store"\n'
    )
    env = {"KELPIE_DATA_DIR": ""}
    try:
        started = place.kelpie("server", "start", cwd=tmp_path, env=env)
        assert started.returncode == 0, started.stderr
        assert "kelpie.toml" in started.stderr, "which file counts is said"
        assert (tmp_path / "store" / "kelpie.db").exists()
        made = json.loads(place.kelpie("agents", "create", "a", "--json", cwd=tmp_path, env=env).stdout)
        assert {block["limit"] for block in made["blocks"]} == {1234}
        assert made["llm_config"]["context_window"] == 5000
        block = ask(place, "POST", "/v1/blocks/", {"label": "free", "value": ""})
        assert block["limit"] == 1234
        answer = ask(place, "POST", f"/v1/agents/{made['id']}/messages", {"input": "my name is Ada"})
        assert answer["stop_reason"]["stop_reason"] == "max_steps"
        more = {"input": "my name is Eve", "max_steps": 9}
        answer = ask(place, "POST", f"/v1/agents/{made['id']}/messages", more)
        assert answer["stop_reason"]["stop_reason"] == "end_turn", "what a request asks for goes before the setting"
    finally:
        place.kelpie("server", "stop", cwd=tmp_path, env=env)


def test_options_of_the_start_reach_the_background(place: Live) -> None:
    started = place.kelpie("server", "start", "--set", "agents.block_limit=77")
    assert started.returncode == 0, started.stderr
    made = place.json("agents", "create", "a")
    assert {block["limit"] for block in made["blocks"]} == {77}


def test_options_before_the_command_say_whose_server_is_meant(place: Live, tmp_path: Path) -> None:
    place.serve()
    env = {"KELPIE_DATA_DIR": str(tmp_path / "other"), "KELPIE_PORT": "1"}
    assert place.kelpie("agents", "list", env=env).returncode == 3
    assert place.kelpie("--data-dir", str(place.data_dir), "agents", "list", env=env).returncode == 0
    config = tmp_path / "where.toml"
    config.write_text(f'[server]\ndata_dir = "{place.data_dir}"\n')
    done = place.kelpie("--config", str(config), "agents", "list", env={"KELPIE_DATA_DIR": "", "KELPIE_PORT": ""})
    assert done.returncode == 0, done.stderr


def ask(place: Live, method: str, path: str, body: Any) -> Any:
    connection = HTTPConnection("127.0.0.1", place.port, timeout=60)
    connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse().read()
    connection.close()
    return json.loads(answer)
