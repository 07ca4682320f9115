"""What `kelpie demo` prints to try."""

import pytest

from kelpie.cli.commands.demo import command, what_to_try

AGENT = {"id": "agent-1", "name": "demo"}
URL = "http://127.0.0.1:9000"


def test_the_commands_to_copy_keep_the_port_that_was_given_for_this_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KELPIE_PORT", raising=False)
    assert "  kelpie server restart\n" in what_to_try(URL, AGENT, "kelpie")
    monkeypatch.setenv("KELPIE_PORT", "9000")  # as `make run PORT=9000` does
    assert "  kelpie server restart --port 9000\n" in what_to_try(URL, AGENT, "kelpie")


def test_the_commands_to_copy_reach_the_same_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/opt/kelpie", "--data-dir", "/srv/my data", "demo"])
    monkeypatch.setenv("PATH", "/opt:/usr/bin")
    given = {"config": None, "data_dir": "/srv/my data", "url": None, "show_version": None}
    assert command(given) == "kelpie --data-dir '/srv/my data'"
    assert command({**given, "data_dir": None, "url": URL}) == f"kelpie --url {URL}"
