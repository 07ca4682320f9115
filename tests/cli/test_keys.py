"""A server with a password as its operator meets it: the password is shown once, commands find keys by themselves, and
what goes wrong is said with what to set."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kelpie.cli.commands.operations.keys import end_of
from kelpie.cli.server.credential import credential
from kelpie.core.errors import InvalidInput
from kelpie.core.settings.settings import resolve
from kelpie.core.settings.sources.precedence import SettingSource
from kelpie.world.http.cli_client import Client, ErrorResponse
from tests.cli.live import Live, live

SHOWN = re.compile(r"shown only once\): ([a-z2-7]{8}(?:-[a-z2-7]{8}){3})\n")


@pytest.fixture(scope="module")
def reachable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Live, str]]:
    """A server that others can reach, and the password that was made for it."""
    with live(tmp_path_factory.mktemp("reachable") / "data", {"KELPIE_HOST": "0.0.0.0"}) as place:
        started = place.kelpie("server", "start")
        assert started.returncode == 0, started.stderr
        found = SHOWN.search(started.stdout)
        assert found, started.stdout
        yield place, found[1]


def test_the_password_is_shown_once_and_kept_as_a_hash(reachable: tuple[Live, str]) -> None:
    place, password = reachable
    assert "running at http://127.0.0.1:" in place.kelpie("server", "status").stdout
    again = place.kelpie("server", "start")
    assert "already running" in again.stdout and "shown only once" not in again.stdout + again.stderr
    for file in (each for each in place.data_dir.rglob("*") if each.is_file()):
        data = file.read_bytes()
        assert password.encode() not in data and password.replace("-", "").encode() not in data, file.name
    kept = place.data_dir / "password"
    assert kept.read_text().startswith("scrypt$") and kept.stat().st_mode & 0o777 == 0o600


def test_a_command_without_a_key_says_what_to_set(reachable: tuple[Live, str]) -> None:
    place, _ = reachable
    for arguments in (("agents", "list"), ("demo",), ("keys", "list")):
        done = place.kelpie(*arguments)
        assert done.returncode == 1
        assert "Set KELPIE_API_KEY" in done.stderr and "password" in done.stderr
    assert "Set KELPIE_API_KEY" in place.kelpie("doctor").stdout
    wrong = place.kelpie("agents", "list", env={"KELPIE_API_KEY": "wrong"})
    assert wrong.returncode == 1 and "revoked or expired" in wrong.stderr


@pytest.mark.parametrize(
    "variable", ["KELPIE_API_KEY", "LETTA_API_KEY", "KELPIE_SERVER_PASSWORD", "LETTA_SERVER_PASSWORD"]
)
def test_a_command_finds_the_password(reachable: tuple[Live, str], variable: str) -> None:
    place, password = reachable
    done = place.kelpie("agents", "list", "--json", env={variable: password})
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout), list)


def test_a_key_is_made_used_listed_and_revoked(reachable: tuple[Live, str]) -> None:
    place, password = reachable
    operator = {"KELPIE_API_KEY": password}
    made = place.kelpie("keys", "create", "laptop", "--scope", "read", "--expires", "12h", env=operator)
    assert made.returncode == 0, made.stderr
    assert "shown only once" in made.stderr
    facts = dict(line.split(None, 1) for line in made.stdout.splitlines())
    assert facts["scopes"] == "read" and facts["agents"] == "all" and facts["expires"] != "never"
    reader = {"KELPIE_API_KEY": facts["key"]}
    assert place.kelpie("agents", "list", env=reader).returncode == 0
    refused = place.kelpie("agents", "create", "x", env=reader)
    assert refused.returncode == 1 and "scope 'write'" in refused.stderr
    assert "scope 'admin'" in place.kelpie("keys", "list", env=reader).stderr
    listed = place.kelpie("keys", "list", env=operator).stdout
    assert facts["id"] in listed and f"...{facts['key'][-4:]}" in listed and facts["key"] not in listed
    gone = place.kelpie("keys", "revoke", "laptop", env=operator)
    assert gone.returncode == 0 and "Revoked key laptop" in gone.stdout
    assert place.kelpie("agents", "list", env=reader).returncode == 1
    assert place.kelpie("keys", "revoke", facts["id"], env=operator).returncode == 4


def test_what_is_no_key_is_refused_in_a_sentence(reachable: tuple[Live, str]) -> None:
    place, password = reachable
    done = place.kelpie("keys", "revoke", "nope", env={"KELPIE_API_KEY": password})
    assert done.returncode == 4
    assert done.stderr == "kelpie: there is no key with the name or id 'nope'; see `kelpie keys list`\n"
    for name in ("twin", "twin"):
        assert place.kelpie("keys", "create", name, env={"KELPIE_API_KEY": password}).returncode == 0
    twins = place.kelpie("keys", "revoke", "twin", env={"KELPIE_API_KEY": password})
    assert twins.returncode == 4 and twins.stderr.count("key-") == 2


def test_a_key_for_one_agent(reachable: tuple[Live, str]) -> None:
    place, password = reachable
    operator = {"KELPIE_API_KEY": password}
    for name in ("mine", "theirs"):
        assert place.kelpie("agents", "create", name, "--model", "kelpie/demo", env=operator).returncode == 0
    made = place.kelpie("keys", "create", "x", "--agent", "mine", env=operator)
    facts = dict(line.split(None, 1) for line in made.stdout.splitlines())
    client = Client(place.url, credential=facts["key"])
    assert client.get(f"/v1/agents/{facts['agents']}")["name"] == "mine"
    assert [agent["name"] for agent in client.get("/v1/agents/")] == ["mine"]
    assert client.get("/v1/agents/", name="theirs") == []
    with pytest.raises(ErrorResponse, match="limited to specific agents"):
        client.get("/v1/agents/count")
    holder = {"KELPIE_API_KEY": facts["key"]}
    told = place.kelpie("chat", "mine", "-m", "hello", env=holder)
    assert told.returncode == 0 and told.stdout.strip(), told.stderr
    assert place.kelpie("agents", "show", "mine", env=holder).returncode == 0
    refused = place.kelpie("agents", "show", "theirs", env=holder)
    assert refused.returncode != 0 and "theirs" in refused.stderr


def test_what_to_try_shows_where_the_key_goes(reachable: tuple[Live, str]) -> None:
    place, password = reachable
    printed = place.kelpie("demo", env={"KELPIE_API_KEY": password}).stdout
    assert '-H "Authorization: Bearer $KELPIE_API_KEY"' in printed and 'api_key=os.environ["KELPIE_API_KEY"]' in printed
    assert password not in printed


@pytest.mark.parametrize("expires", ["soon", "0d", "-1h", "1y", "1.5h", ""])
def test_a_time_that_is_none_is_refused(expires: str) -> None:
    with pytest.raises(InvalidInput, match=r"--expires.*30d"):
        end_of(expires)


def test_secure_asks_on_a_loopback_address_too(tmp_path: Path) -> None:
    with live(tmp_path / "data") as place:
        started = place.kelpie("server", "start", "--secure")
        found = SHOWN.search(started.stdout)
        assert started.returncode == 0 and found
        assert place.kelpie("agents", "list").returncode == 1
        assert place.kelpie("agents", "list", env={"KELPIE_API_KEY": found[1]}).returncode == 0
        place.kelpie("server", "stop")
        again = place.kelpie("server", "start", "--secure")
        assert "shown only once" not in again.stdout, "it is the same password"
        assert place.kelpie("agents", "list", env={"KELPIE_API_KEY": found[1]}).returncode == 0
        place.kelpie("server", "stop")
        assert place.kelpie("server", "start").returncode == 0
        assert place.kelpie("agents", "list").returncode == 0, "nobody else can reach it, and nobody asked for more"


# --- which credential is sent, and to whom ----------------------------------------------------------------------------


def test_a_key_goes_before_the_password_and_lettas_key_after_it(tmp_path: Path) -> None:
    home = {"KELPIE_DATA_DIR": str(tmp_path)}
    keys = {"KELPIE_API_KEY": "ours", "LETTA_API_KEY": "theirs", "LETTA_SERVER_PASSWORD": "pw"}
    assert credential(resolve({}, home | keys), None) == "ours"
    del keys["KELPIE_API_KEY"]
    assert credential(resolve({}, home | keys), None) == "pw"
    del keys["LETTA_SERVER_PASSWORD"]
    assert credential(resolve({}, home | keys), None) == "theirs"
    assert credential(resolve({}, home), None) is None


def test_an_address_that_only_a_file_names_gets_no_secret(tmp_path: Path) -> None:
    env = {"KELPIE_DATA_DIR": str(tmp_path), "KELPIE_API_KEY": "ours"}
    elsewhere = resolve({}, env, {"server.host": SettingSource("evil.example", "kelpie.toml line 2")}, "kelpie.toml")
    assert credential(elsewhere, None) is None
    assert credential(elsewhere, "http://named.example") == "ours"
    assert credential(resolve({}, {**env, "KELPIE_HOST": "evil.example"}), None) == "ours"
