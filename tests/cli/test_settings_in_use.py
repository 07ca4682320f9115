"""Settings of the server that can be seen from outside, through the real command and a real server."""

import json
import socket
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.cli.live import Live, live

DEADLINE_S = 60


def ask(place: Live, path: str, body: Any) -> Any:
    connection = HTTPConnection("127.0.0.1", place.port, timeout=DEADLINE_S)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse().read()
    connection.close()
    return answer


def test_time_zone_pings_logs_and_idle_connections_follow_their_settings(tmp_path: Path) -> None:
    chosen = {
        "KELPIE_DEFAULT_TIMEZONE": "Europe/Oslo", "KELPIE_PING_SECONDS": "0.05", "KELPIE_KEEP_ALIVE_SECONDS": "1",
        "KELPIE_LOG_BYTES_MAX": "1024", "KELPIE_LOG_FILES_MAX": "2",
    }  # fmt: skip
    with live(tmp_path / "data", chosen) as place:
        place.serve()
        agent = place.json("agents", "create", "ada")
        assert agent["timezone"] == "Europe/Oslo"
        slow = '!script [{"text": "done", "wait_s": 0.5}]'
        sent = {"messages": [{"role": "user", "content": slow}], "streaming": True, "include_pings": True}
        stream = ask(place, f"/v1/agents/{agent['id']}/messages/stream", sent)
        assert stream.count(b'"message_type":"ping"') > 2
        with socket.create_connection(("127.0.0.1", place.port), DEADLINE_S) as idle:
            idle.sendall(b"GET /v1/health/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            while idle.recv(65_536):
                pass  # until the server closes it, under the deadline of the socket
        for _ in range(12):
            place.kelpie("agents", "list")
        files = sorted(path.name for path in place.data_dir.glob("kelpie.log*"))
        assert files == ["kelpie.log", "kelpie.log.1"]
        assert all((place.data_dir / name).stat().st_size <= 1024 for name in files)


def test_a_server_that_does_not_answer_in_time_is_given_up(tmp_path: Path) -> None:
    with live(tmp_path / "data", {"KELPIE_START_SECONDS": "0.001"}) as place:
        done = place.kelpie("server", "start")
        assert done.returncode == 1 and "did not answer within" in done.stderr


def test_a_time_zone_that_is_none_stops_the_start_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "kelpie.toml"
    path.write_text('[agents]\ndefault_timezone = "Mars/Olympus"\n')
    with live(tmp_path / "data") as place:
        done = place.kelpie("server", "start", cwd=tmp_path)
        assert done.returncode == 1
        wanted = f"kelpie: {path} line 2, agents.default_timezone: 'Mars/Olympus' is not a known time zone"
        assert wanted in done.stderr


@pytest.mark.parametrize("name", ["KELPIE_PING_SECONDS", "KELPIE_STALL_SECONDS", "KELPIE_KEEP_ALIVE_SECONDS"])
def test_they_have_bounds(name: str, tmp_path: Path) -> None:
    with live(tmp_path / "data", {name: "0"}) as place:
        done = place.kelpie("config", "show")
        assert done.returncode == 1 and name in done.stderr
