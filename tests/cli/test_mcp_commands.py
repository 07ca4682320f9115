"""`kelpie mcp`: servers are registered, shown, called, refreshed and removed; the doctor names those that fail."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.live import Live, live
from tests.mcp.http_server import HttpServer


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    with HttpServer().in_thread() as running:
        yield running


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, server: HttpServer) -> Iterator[Live]:
    data = tmp_path_factory.mktemp("mcp")
    file = data / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"filed": {"url": "${ADDRESS}/mcp"}, "off": {"disabled": True}}}))
    extra = {"KELPIE_MCP_PRIVATE": "true", "KELPIE_MCP_FILE": str(file), "ADDRESS": server.url}
    with live(data / "data", extra) as opened:
        opened.serve()
        yield opened


def test_a_server_from_adding_to_removing(place: Live, server: HttpServer) -> None:
    added = place.kelpie("mcp", "add", "web", "--http", f"{server.url}/mcp", "--header", "X-A=1")
    assert added.returncode == 0 and "It has 12 tools: " in added.stdout, added
    tools = {each["name"].removeprefix("web__"): each["name"] for each in place.json("mcp", "tools", "web")}
    headers = [sent for _, _, sent in server.seen if "x-a" in sent]  # the servers of the file are read meanwhile
    assert "add" in tools and headers and headers[-1]["x-a"] == "1"
    for name in ("add", tools["add"]):  # on the server, and here, where the file may have one of this name
        ran = place.kelpie("mcp", "run", "web", name, "--args", "{}")
        assert (ran.returncode, ran.stdout) == (0, "add\n")
    failed = place.kelpie("mcp", "run", "web", tools["fail"])
    assert (failed.returncode, failed.stdout) == (1, "fail\n")
    assert place.kelpie("tools", "run", tools["add"]).stdout == "add\n"
    shown = place.kelpie("mcp", "show", "web").stdout
    assert "connected" in shown and "2025-11-25" in shown
    assert place.kelpie("mcp", "refresh", "web").stdout == "Nothing changed.\n"
    assert "web" in place.kelpie("mcp", "list").stdout
    unknown = place.kelpie("mcp", "show", "wep")
    assert unknown.returncode != 0 and "Did you mean web?" in unknown.stderr
    assert place.kelpie("mcp", "remove", "web", "--yes").returncode == 0
    assert "web" not in [each["server_name"] for each in place.json("mcp", "list")]


def test_the_operators_file_is_read_at_the_start_and_on_command(
    place: Live, server: HttpServer, tmp_path: Path
) -> None:
    assert [each["server_name"] for each in place.json("mcp", "list")] == ["filed"]
    file = tmp_path / "more.json"
    entry = {"type": "sse", "url": f"{server.url}/sse", "headers": {"Authorization": "Bearer ${TOKEN}"}}
    file.write_text(json.dumps({"mcpServers": {"more": entry}}))
    refused = place.kelpie("mcp", "add", "--file", str(file))
    assert refused.returncode != 0 and "TOKEN is not set" in refused.stderr
    secret = file.read_text().replace("TOKEN", "OPENAI_API_KEY")
    (tmp_path / "secret.json").write_text(secret)
    stolen = place.kelpie("mcp", "add", "--file", str(tmp_path / "secret.json"), env={"OPENAI_API_KEY": "sk-1"})
    assert stolen.returncode != 0 and "is not passed on" in stolen.stderr
    for word in ("Added", "Updated"):
        done = place.kelpie("mcp", "add", "--file", str(file), env={"TOKEN": "t"})
        assert done.returncode == 0 and f"{word} MCP server more." in done.stdout
    assert len(place.json("mcp", "tools", "more")) == 12
    place.kelpie("mcp", "remove", "more", "--yes")


def test_the_doctor_names_a_server_that_fails(place: Live) -> None:
    added = place.kelpie("mcp", "add", "gone", "--http", "http://127.0.0.1:1/mcp")
    assert added.returncode == 0 and "It has no tools yet: " in added.stdout
    assert "the MCP server gone fails: it cannot be reached" in place.kelpie("doctor").stdout
    refreshed = place.kelpie("mcp", "refresh", "gone")
    assert refreshed.stderr == "kelpie: MCP server 'gone': it cannot be reached: connection refused\n"
    place.kelpie("mcp", "remove", "gone", "--yes")


def test_a_client_of_a_login_is_given_with_its_secret_in_a_variable(place: Live, server: HttpServer) -> None:
    place.kelpie("mcp", "add", "login", "--http", f"{server.url}/mcp")
    alone = place.kelpie("mcp", "login", "login", "--client-secret-variable", "SECRET")
    assert alone.returncode != 0 and "give --client-id as well" in alone.stderr
    unset = place.kelpie("mcp", "login", "login", "--client-id", "c", "--client-secret-variable", "SECRET")
    assert unset.returncode != 0 and "SECRET is not set" in unset.stderr
    done = place.kelpie("mcp", "login", "login", "--client-id", "c", "--client-secret-variable", "S", env={"S": "s"})
    assert done.returncode == 0 and "Connected to login" in done.stdout, done
    place.kelpie("mcp", "remove", "login", "--yes")


def test_what_cannot_be_added_is_refused(place: Live) -> None:
    for arguments in (["x"], ["x", "--http", "u", "--sse", "u"], ["--http", "u"], ["x", "--env", "A", "--", "true"]):
        refused = place.kelpie("mcp", "add", *arguments)
        assert refused.returncode != 0 and refused.stderr.startswith("kelpie: "), arguments
