"""Starting, watching and stopping a real server through the `kelpie` command."""

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from kelpie.world.files.data_dir import DataDir
from kelpie.world.processes.server_process import alive, wait_until
from tests.cli.live import BIN, Live, live
from tests.forks import REAL_START

DEADLINE_S = 60


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "data") as place:
        yield place


def ask(place: Live, method: str, path: str, body: Any = None) -> Any:
    connection = HTTPConnection("127.0.0.1", place.port, timeout=DEADLINE_S)
    data = json.dumps(body) if body is not None else None
    connection.request(method, path, data, {"Content-Type": "application/json"})
    answer = connection.getresponse().read()
    connection.close()
    return json.loads(answer)


def pid_of(place: Live) -> int:
    holder = DataDir.holder(str(place.data_dir))
    assert holder is not None
    return holder.pid


def test_start_status_start_again_stop(place: Live) -> None:
    assert place.kelpie("server", "status").returncode == 3
    started = place.kelpie("server", "start", env={REAL_START: "yes"})
    assert (started.returncode, started.stderr) == (0, "")
    assert place.url in started.stdout
    assert ask(place, "GET", "/v1/health/")["status"] == "ok"
    status = place.kelpie("server", "status")
    assert status.returncode == 0 and place.url in status.stdout
    pid = pid_of(place)
    again = place.kelpie("server", "start")
    assert again.returncode == 0 and "already running" in again.stdout
    assert pid_of(place) == pid
    assert place.kelpie("server", "stop").returncode == 0
    assert not alive(pid)
    assert place.kelpie("server", "status").returncode == 3
    assert place.kelpie("server", "stop").returncode == 0, "what is stopped already is no error"


def test_status_and_stop_find_a_server_that_took_a_free_port(place: Live) -> None:
    started = place.kelpie("server", "start", env={"KELPIE_PORT": "0"})
    assert started.returncode == 0
    status = place.kelpie("server", "status")
    assert status.returncode == 0
    assert ":0" not in status.stdout and place.url not in status.stdout


def test_options_win_over_the_environment(place: Live, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    try:
        assert place.kelpie("server", "start", "--port", "0", "--data-dir", str(elsewhere)).returncode == 0
        assert DataDir.holder(str(elsewhere)) is not None
        assert place.kelpie("server", "status").returncode == 3
    finally:
        place.kelpie("server", "stop", env={"KELPIE_DATA_DIR": str(elsewhere)})


def one_line(text: str) -> str:
    assert len(text.strip().splitlines()) == 1, text
    return text


def test_a_port_in_use_is_told_in_one_line(place: Live) -> None:
    with socket.create_server(("127.0.0.1", place.port)):
        done = place.kelpie("server", "start")
        foreground = place.kelpie("server", "start", "--foreground", env={"KELPIE_LOG_LEVEL": "error"})
    assert done.returncode == foreground.returncode == 1
    assert str(place.port) in one_line(done.stderr) and "in use" in done.stderr
    assert foreground.stderr.endswith(done.stderr), "after what was logged"


def test_a_data_directory_that_cannot_be_used_is_told_in_one_line(place: Live, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for command in (("server", "start"), ("server", "start", "--foreground")):
        done = place.kelpie(*command, env={"KELPIE_DATA_DIR": str(tmp_path / "file" / "data")})
        assert done.returncode == 1
        assert "KELPIE_DATA_DIR" in one_line(done.stderr)


@pytest.mark.parametrize(
    ("command", "code"), [(("start",), 1), (("start", "--foreground"), 1), (("status",), 3), (("stop",), 0)]
)
def test_a_bad_setting_is_told_in_one_line(place: Live, command: tuple[str, ...], code: int) -> None:
    done = place.kelpie("server", *command, env={"KELPIE_PORT": "many"})
    assert done.returncode == code
    assert "KELPIE_PORT" in one_line(done.stderr)


def test_a_second_server_on_the_same_data_is_refused(running: Live) -> None:
    second = running.kelpie("server", "start", "--foreground", env={"KELPIE_PORT": "0", "KELPIE_LOG_LEVEL": "error"})
    assert second.returncode == 1
    assert f"process {pid_of(running)}" in one_line(second.stderr)


def test_usage_errors_have_their_own_code(place: Live) -> None:
    assert place.kelpie("server", "begin").returncode == 2
    assert place.kelpie("chat", "demo", "more").returncode == 2


def test_a_stopping_server_lets_the_turn_in_flight_finish(place: Live) -> None:
    place.kelpie("server", "start")
    agent = ask(place, "POST", "/v1/agents/", {"name": "slow", "model": "kelpie/demo"})
    script = '!script [{"text": "finished", "wait_s": 2}]'
    answers: list[Any] = []
    path = f"/v1/agents/{agent['id']}/messages"
    sender = threading.Thread(target=lambda: answers.append(ask(place, "POST", path, {"input": script})))
    sender.start()
    assert wait_until(lambda: bool(ask(place, "GET", f"/v1/runs/?agent_id={agent['id']}&active=true")), DEADLINE_S)
    assert place.kelpie("server", "stop").returncode == 0
    sender.join(DEADLINE_S)
    assert [message["content"] for message in answers[0]["messages"]] == ["finished"]
    place.kelpie("server", "start")
    history = ask(place, "GET", path)
    assert history[-1]["content"] == "finished"


def test_a_killed_server_is_not_running_and_starts_again_with_its_data(place: Live) -> None:
    place.kelpie("server", "start")
    agent = ask(place, "POST", "/v1/agents/", {"name": "keeper", "model": "kelpie/demo"})
    pid = pid_of(place)
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not alive(pid) and DataDir.holder(str(place.data_dir)) is None, DEADLINE_S)
    assert place.kelpie("server", "status").returncode == 3
    assert place.kelpie("server", "start").returncode == 0
    assert ask(place, "GET", f"/v1/agents/{agent['id']}")["name"] == "keeper"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_in_the_foreground_a_signal_ends_it_with_code_zero(place: Live, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [str(BIN / "kelpie"), "server", "start", "--foreground"], env=place.env, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if '"server_started"' in line)
        assert json.loads(line)["port"] == place.port
        process.send_signal(number)
        process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def test_the_background_log_is_in_the_data_directory(running: Live) -> None:
    lines = [json.loads(line) for line in (running.data_dir / "kelpie.log").read_text().splitlines()]
    started = [line for line in lines if line["code"] == "server_started"]
    assert len(started) == 1 and started[0]["time"].endswith("Z")


def test_demo_makes_one_agent_however_often_it_is_called_and_chat_talks_to_it(running: Live) -> None:
    first, second = running.kelpie("demo"), running.kelpie("demo")
    assert first.returncode == second.returncode == 0
    assert first.stdout == second.stdout
    [agent] = ask(running, "GET", "/v1/agents/?name=demo")
    assert agent["id"] in first.stdout and running.url in first.stdout
    blocks = ask(running, "GET", f"/v1/agents/{agent['id']}/core-memory/blocks")
    assert sorted(block["label"] for block in blocks) == ["human", "persona"]
    said = running.kelpie("chat", "demo", stdin="my name is Ada\n")
    assert (said.returncode, bool(said.stdout.strip())) == (0, True)
    assert "Ada" in said.stderr, "the tool call is shown"
    blocks = ask(running, "GET", f"/v1/agents/{agent['id']}/core-memory/blocks")
    assert any("Ada" in block["value"] for block in blocks)


def test_chat_with_nobody_names_who_is_there(running: Live) -> None:
    running.kelpie("demo")
    done = running.kelpie("chat", "nobody", "-m", "hi")
    assert done.returncode == 4
    assert "demo" in one_line(done.stderr)


def test_chat_without_a_server_says_so(place: Live) -> None:
    done = place.kelpie("chat", "demo", "-m", "hi")
    assert done.returncode == 3
    assert place.url in one_line(done.stderr)
