"""A running server and commands with other settings: they are named, `restart` applies them, and a wrong kelpie.toml
takes away neither `status`, `logs`, `doctor` nor `stop`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kelpie import __version__
from kelpie.core.settings.server_record import differences, recorded
from kelpie.core.settings.settings import resolve
from kelpie.core.settings.sources.unknown_variables import described_all
from kelpie.world.files import server_record
from kelpie.world.files.data_dir import DataDir
from kelpie.world.files.server_record import ServerRecord
from kelpie.world.network_addresses import network_addresses
from tests.cli.live import Live, live

SECRET = "sk-of-the-test"
WRONG = "this is no TOML\n"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "data") as place:
        yield place


def pid_of(place: Live) -> int:
    holder = DataDir.holder(str(place.data_dir))
    assert holder is not None
    return holder.pid


def test_other_settings_are_named_and_a_restart_applies_them(place: Live) -> None:
    assert place.kelpie("server", "start").returncode == 0
    first = pid_of(place)
    same = place.kelpie("server", "start")
    assert (same.returncode, same.stderr) == (0, "") and "already running" in same.stdout
    changed = {"OPENAI_API_KEY": SECRET}
    again = place.kelpie("server", "start", "--set", "agents.block_limit=77", env=changed)
    assert again.returncode == 0 and "already running" in again.stdout and pid_of(place) == first
    assert "agents.block_limit (--set agents.block_limit): 100000 in the running server, 77 now" in again.stderr
    assert "providers.openai.api_key (OPENAI_API_KEY): not set in the running server, set now" in again.stderr
    assert "kelpie server restart" in again.stderr

    password = {"KELPIE_SERVER_PASSWORD": "pw-of-the-test"}
    done = place.kelpie(
        "server", "restart", "--host", "0.0.0.0", "--set", "agents.block_limit=77", env=changed | password
    )
    assert done.returncode == 0, done.stderr
    assert "agents.block_limit" in done.stdout and pid_of(place) != first
    urls = json.loads(place.kelpie("server", "status", "--json").stdout)["network_urls"]
    assert urls == [f"http://{address}:{place.port}" for address in network_addresses("0.0.0.0")]
    assert all(url in done.stdout for url in urls)
    key = {"KELPIE_API_KEY": "pw-of-the-test"}
    made = place.kelpie("agents", "create", "a", "--model", "kelpie/demo", "--json", env=key)
    assert {block["limit"] for block in json.loads(made.stdout)["blocks"]} == {77}
    told = again.stdout + again.stderr + done.stdout + done.stderr + (place.data_dir / server_record.NAME).read_text()
    assert SECRET not in told and "pw-of-the-test" not in told

    (place.data_dir / "kelpie.toml").write_text(WRONG)
    refused = place.kelpie("server", "restart")
    assert refused.returncode == 1 and "line 1" in refused.stderr
    assert place.kelpie("server", "status").returncode == 0, "a restart with wrong settings leaves the server alone"
    for command in (("server", "status"), ("logs", "-n", "1"), ("server", "stop")):
        survived = place.kelpie(*command)
        assert survived.returncode == 0 and survived.stdout, command
        told = f"kelpie: warning: {place.data_dir / 'kelpie.toml'} line 1: this is not TOML"
        assert survived.stderr.startswith(told)
    assert DataDir.holder(str(place.data_dir)) is None


def test_a_server_in_the_foreground_is_not_restarted_from_elsewhere(place: Live, tmp_path: Path) -> None:
    home = DataDir.open(str(place.data_dir))
    home.lock()
    home.announce("http://127.0.0.1:9")
    server_record.write(home.path, ServerRecord(pid_of(place), "0", False, "salt", {}))
    done = place.kelpie("server", "restart")
    home.close()
    assert done.returncode == 1 and "foreground" in done.stderr and "restart it there" in done.stderr


def test_the_doctor_reports_wrong_settings_first_and_looks_on(running: Live, tmp_path: Path) -> None:
    (tmp_path / "kelpie.toml").write_text("[server]\nport = 99999\n")
    env = {"KELPIE_PORT": "", "KELPIE_PROT": "1"}
    done = running.kelpie("doctor", cwd=tmp_path, env=env)
    problem, warning, *rest = done.stdout.splitlines()
    assert done.returncode == 1
    assert problem == f"problem  settings: {tmp_path / 'kelpie.toml'} line 2, server.port: 99999 is out of range; " + (
        "use 0 to 65535"
    )
    assert warning.startswith("warning  settings: KELPIE_PROT is not a setting") and "KELPIE_PORT" in warning
    assert f"ok       server: Kelpie {__version__} at {running.url}" in rest
    assert rest[-1].startswith("1 problem, 1 warning.")


def test_a_wrong_line_about_the_data_directory_stops_no_other_server(running: Live, tmp_path: Path) -> None:
    (tmp_path / "kelpie.toml").write_text('[server\ndata_dir = "elsewhere"\n')
    doubtful = running.kelpie("server", "stop", cwd=tmp_path, env={"KELPIE_DATA_DIR": ""})
    assert doubtful.returncode == 1 and "--data-dir" in doubtful.stderr
    (tmp_path / "kelpie.toml").write_text(f'[server]\ndata_dir = "{running.data_dir}"\nport = "x"\n')
    found = running.kelpie("server", "status", cwd=tmp_path, env={"KELPIE_DATA_DIR": ""})
    assert found.returncode == 0 and running.url in found.stdout


def test_a_chosen_data_directory_means_its_own_server(running: Live, tmp_path: Path) -> None:
    for arguments in (("agents", "list"), ("demo",), ("chat", "demo", "-m", "hi")):
        done = running.kelpie("--data-dir", str(tmp_path / "staging"), *arguments)
        assert done.returncode == 3 and "--url" in done.stderr
        assert f"`kelpie --data-dir {tmp_path / 'staging'} server start`" in done.stderr, (
            "of this directory, not of another"
        )
    named = running.kelpie("--data-dir", str(tmp_path / "staging"), "--url", running.url, "agents", "list")
    assert named.returncode == 0, named.stderr


def test_a_variable_that_is_no_setting_is_told_with_the_closest_one(running: Live) -> None:
    env = {"KELPIE_PROT": "1", "KELPIE_SERVICE_HOST": "10.0.0.1", "KELPIE_TEST_X": "1"}
    for arguments in (("server", "status"), ("models", "list"), ("server", "start")):
        done = running.kelpie(*arguments, env=env)
        assert done.returncode == 0
        first, *rest = done.stderr.splitlines()
        assert first.endswith("KELPIE_PROT is not a setting and has no effect; did you mean KELPIE_PORT?")
        assert not rest
    assert described_all(["KELPIE_ZZZZZZZZZZ"]) == ["KELPIE_ZZZZZZZZZZ is not a setting and has no effect"]


def test_of_a_changed_secret_only_the_change_is_seen() -> None:
    old = resolve({}, {"OPENAI_API_KEY": SECRET, "ANTHROPIC_API_KEY": "same"})
    new = resolve({}, {"OPENAI_API_KEY": "two", "ANTHROPIC_API_KEY": "same", "KELPIE_API_KEY": "of commands only"})
    record = json.loads(json.dumps(recorded(old.settings, "salt")))
    assert SECRET not in str(record) and "client.api_key" not in record
    [found] = differences(record, "salt", new)
    assert (
        str(found) == "providers.openai.api_key (OPENAI_API_KEY): another value in the running server, a new value now"
    )
    assert differences(record, "salt", old) == []
