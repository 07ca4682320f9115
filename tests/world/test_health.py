"""The bare question whether a server is there."""

import socket

import pytest

from kelpie.world.http.health_probe import version_at
from tests.cli.fake_server import fake_server


def test_a_server_that_answers_tells_its_version() -> None:
    with fake_server(
        {"GET /v1/health/": (200, {"version": "0.16.8", "kelpie_version": "1.2.3", "status": "ok"})}
    ) as server:
        assert version_at(server.url) == "1.2.3"


@pytest.mark.parametrize("answer", [(500, {"version": "1"}), (200, b"<html>"), (200, {"status": "ok"}), (200, [1])])
def test_anything_else_is_no_kelpie(answer: tuple[int, object]) -> None:
    with fake_server({"GET /v1/health/": answer}) as server:
        assert version_at(server.url) is None


def test_nobody_there_and_nobody_answering() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert version_at(url) is None
        silent.listen()
        assert version_at(url, timeout_s=0.05) is None
