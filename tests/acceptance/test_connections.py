"""A flood of connections against a server with few open files: nobody needs a credential for it, and it must not lock
the others out.
"""

import json
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.acceptance.served import Served, served

SOFT, HARD = 128, 512  # files that the server may open, before and after it raises its limit
FLOOD = 700
HEAD_S = 2.0
WITHIN_S = 60.0
STARTS = (b"", b"GET /v1/heal", b"GET /v1/health/ HTTP/1.1\r\nHost: x\r\nX-")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    settings = {"KELPIE_HEAD_SECONDS": str(HEAD_S), "KELPIE_LOG_LEVEL": "info"}
    with served(tmp_path_factory.mktemp("data"), open_files=(SOFT, HARD), **settings) as running:
        yield running


def connected(server: Served, source: str, start: bytes) -> socket.socket:
    url = httpx.URL(server.url)
    made = socket.create_connection((url.host, url.port), timeout=WITHIN_S, source_address=(source, 0))
    made.sendall(start)
    return made


def logged(server: Served) -> list[dict[str, object]]:
    lines = (server.data_dir / "stderr.txt").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_a_flood_of_silent_connections_locks_nobody_out(server: Served) -> None:
    with ExitStack() as opened:
        flood: list[socket.socket] = []
        for number in range(FLOOD):
            source, start = f"127.0.1.{1 + number % 8}", STARTS[number % len(STARTS)]
            flood.append(opened.enter_context(connected(server, source, start)))
            if number % 100 == 99:
                with httpx.Client(base_url=server.url, trust_env=False, timeout=WITHIN_S) as client:
                    assert client.get("/v1/health/").json()["status"] == "ok"
                    made = client.post("/v1/agents/", json={"name": f"during-{number}"}).json()
                    answer = client.post(f"/v1/agents/{made['id']}/messages", json={"input": "hello"})
                    assert answer.status_code == 200 and answer.json()["messages"]
        assert all(ended(one) for one in flood), "none is kept beyond the deadline"
    lines = logged(server)
    codes = [line["code"] for line in lines]
    assert {"idle_connections_closed", "request_head_late", "open_files_limit_low"} <= set(codes)
    assert [line["limit"] for line in lines if line["code"] == "open_files_limit_low"] == [HARD], "it was raised"
    assert codes.count("idle_connections_closed") <= FLOOD // 100, "a flood does not fill the log"
    assert not any("Too many open files" in json.dumps(line) for line in lines)


def ended(connection: socket.socket) -> bool:
    """Waits until the server has ended the connection, with or without an answer."""
    try:
        while connection.recv(1000):
            continue
    except ConnectionResetError:
        pass
    return True


def test_a_server_without_a_file_left_is_not_ready_until_it_has_some(server: Served) -> None:
    soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    with httpx.Client(base_url=server.url, trust_env=False, timeout=WITHIN_S) as client:
        assert client.get("/v1/ready/").json()["status"] == "ok"
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (0, hard))  # what is open stays; no number is free
        try:
            answer = client.get("/v1/ready/")
            assert answer.status_code == 503 and answer.json()["status"] == "unavailable", answer.text
            assert "cannot open further files" in answer.json()["detail"]
            assert client.get("/v1/health/").status_code == 200, "it lives"
        finally:
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (soft, hard))
        assert client.get("/v1/ready/").json()["status"] == "ok"
