"""`kelpie logs`: the last lines, a level, JSON, and following until Ctrl-C."""

import json
import signal
import subprocess
from pathlib import Path

from tests.cli.live import BIN, Live, live


def test_logs_are_shown_as_text_or_as_json(running: Live) -> None:
    for _ in range(3):
        running.kelpie("agents", "list")
    shown = running.kelpie("logs", "-n", "2")
    assert shown.returncode == 0
    assert (
        len(shown.stdout.splitlines()) == 2
        and shown.stdout.count("[http_request]") == 2
        and "/v1/agents/" in shown.stdout
    )
    events = [json.loads(line) for line in running.kelpie("logs", "-n", "1000", "--json").stdout.splitlines()]
    assert [event["code"] for event in events].count("server_started") == 1
    grave = running.kelpie("logs", "-n", "1000", "--level", "error")
    assert (grave.returncode, grave.stdout) == (0, "")
    assert running.kelpie("logs", "--level", "loud").returncode == 2


def test_logs_can_be_followed(running: Live) -> None:
    command = [str(BIN / "kelpie"), "logs", "-n", "1", "--follow", "--json"]
    # Whoever runs the tests in the background has SIGINT ignored, and a child would inherit that.
    process = subprocess.Popen(
        command,
        env=running.env,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())
        running.kelpie("agents", "show", "nobody-of-this-name")
        seen = next(line for line in process.stdout if "nobody" in line or "/v1/agents/" in line)
        assert json.loads(seen)["code"] == "http_request"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def test_without_a_log_it_says_where_one_would_be(tmp_path: Path) -> None:
    with live(tmp_path / "data") as place:
        done = place.kelpie("logs")
    assert (done.returncode, done.stdout) == (0, "")
    assert str(tmp_path / "data" / "kelpie.log") in done.stderr


def test_logs_of_one_agent_run_or_request(running: Live) -> None:
    made = [running.json("agents", "create", name, "--model", "kelpie/demo") for name in ("logged", "silent")]
    for name in ("logged", "silent"):
        running.kelpie("chat", name, "-m", "hi")
    lines = [json.loads(line) for line in running.kelpie("logs", "--agent", "logged", "--json").stdout.splitlines()]
    assert lines and all(made[0]["id"] in json.dumps(line) for line in lines)
    request = lines[0]["request_id"]
    [same] = running.kelpie("logs", "--request", request[:8], "-n", "1", "--json").stdout.splitlines()
    assert json.loads(same)["request_id"] == request
    none = running.kelpie("logs", "--run", "run-ffffffff")
    assert (none.returncode, none.stdout) == (0, "") and "No such lines" in none.stderr


def test_a_reader_that_has_enough_is_no_error(running: Live) -> None:
    running.kelpie("agents", "list")
    script = "kelpie logs -n 1000 --json | head -1; echo ${PIPESTATUS[0]}"
    done = subprocess.run(["bash", "-c", script], env=running.env, capture_output=True, text=True, timeout=60)
    first, code = done.stdout.splitlines()
    assert json.loads(first)["code"] and (code, done.stderr) == ("0", "")
