"""`kelpie open`: the address of the dashboard, and the chat of an agent; no browser is there in a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.live import Live, live

NO_WINDOWS = {"DISPLAY": "", "WAYLAND_DISPLAY": ""}


def test_the_address_of_the_dashboard_and_of_a_chat(running: Live) -> None:
    opened = running.kelpie("open", env=NO_WINDOWS)
    assert (opened.returncode, opened.stdout) == (0, f"{running.url}/\n")
    assert running.kelpie("agents", "create", "opened", "--model", "kelpie/demo").returncode == 0
    chat = running.kelpie("open", "opened", env=NO_WINDOWS)
    assert chat.stdout.startswith(f"{running.url}/#/chat/agent-")
    assert running.kelpie("open", "nobody-at-all", env=NO_WINDOWS).returncode != 0


@pytest.fixture
def without_dashboard(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "data", {"KELPIE_DASHBOARD": "false"}) as made:
        made.serve()
        yield made


def test_a_server_without_the_dashboard_says_so(without_dashboard: Live) -> None:
    opened = without_dashboard.kelpie("open", env=NO_WINDOWS)
    assert opened.returncode == 1 and opened.stdout == "" and "server.dashboard" in opened.stderr
