"""Tables at a real terminal and in a pipe, and ids by their first characters."""

import pytest

from kelpie.cli import agent_lookup
from kelpie.cli.id_lookup import UnknownId
from kelpie.world.http.cli_client import Client
from tests.cli.fake_server import fake_server
from tests.cli.live import Live
from tests.cli.pseudo_terminal import at_terminal


def test_runs_fit_the_terminal_with_names_ages_and_short_ids(running: Live) -> None:
    name = "an agent with a rather long name"
    running.kelpie("agents", "create", name)
    running.kelpie("chat", name, "-m", "hello")
    run = running.json("runs", "list", "--agent", name)[0]
    for columns in (80, 60):
        with at_terminal(["runs", "list", "--agent", name], running.env, columns=columns) as terminal:
            code, shown = terminal.ends()
        heading, line = shown.splitlines()[:2]
        assert code == 0 and max(len(each) for each in (heading, line)) <= columns
        assert line.startswith(run["id"][: len("run-") + 8] + "  an agent w") and run["id"] not in shown
        assert " ago" in line or "just now" in line
    assert "Not shown: cost" in shown
    piped = running.kelpie("runs", "list", "--agent", name).stdout.splitlines()
    assert piped[1].startswith(run["id"]) and name in piped[1] and run["created_at"] in piped[1]


def test_the_first_characters_of_an_id_are_enough(running: Live) -> None:
    running.kelpie("agents", "create", "short")
    running.kelpie("chat", "short", "-m", "hello")
    agent = running.json("agents", "show", "short")
    run = running.json("runs", "list", "--agent", "short")[0]
    assert running.json("runs", "show", run["id"][:14])["id"] == run["id"]
    assert running.json("runs", "show", run["id"].removeprefix("run-")[:10])["id"] == run["id"]
    for typed in (agent["id"][:16], agent["id"].removeprefix("agent-")[:12]):
        assert running.json("agents", "show", typed)["id"] == agent["id"]
    for typed in ("run-ffffffffffff", "run-1", "nonsense"):
        absent = running.kelpie("runs", "show", typed)
        assert absent.returncode == 4 and "`kelpie runs list`" in absent.stderr


def test_characters_of_several_ids_list_them_with_their_names() -> None:
    ids = [f"agent-abcd1111-1111-4111-8111-11111111111{place}" for place in range(2)]
    answers = {
        "GET /v1/agents/abcd": (404, {"detail": "no"}),
        "GET /v1/agents/?name=abcd&limit=20": (200, []),
        "GET /v1/kelpie/ids?prefix=agent-abcd&limit=11": (
            200,
            [{"id": ids[0], "name": "ada"}, {"id": ids[1], "name": "bea"}],
        ),
    }
    with fake_server(answers) as server, pytest.raises(UnknownId) as refused:
        agent_lookup.find(Client(server.url), "abcd")
    assert "type more" in str(refused.value)
    assert all(f"{each}  {name}" in str(refused.value) for each, name in zip(ids, ("ada", "bea"), strict=True))
