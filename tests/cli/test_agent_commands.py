"""`kelpie agents` and `kelpie runs` against a real server: what is made is shown, what is removed is gone."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from kelpie.world.http.cli_client import Client
from tests.cli.live import Live


def one_line(text: str) -> str:
    assert len(text.strip().splitlines()) == 1, text
    return text


def test_an_agent_is_made_listed_shown_and_removed(running: Live) -> None:
    made = running.json(
        "agents", "create", "ada", "--model", "kelpie/demo", "--description", "Counts.",
        "--block", "human=Name: Bob=x", "--block", "notes=", "--tag", "team", "--tool", "archival_memory_search",
    )  # fmt: skip
    assert made["name"] == "ada"
    [listed] = running.json("agents", "list", "--name", "ada")
    assert (listed["id"], listed["model"], listed["tags"]) == (made["id"], "kelpie/demo", ["team"])
    assert [each["id"] for each in running.json("agents", "list", "--tag", "team")] == [made["id"]]
    assert running.json("agents", "list", "--tag", "other") == []
    for who in ("ada", made["id"]):
        shown = running.json("agents", "show", who)
        assert shown["id"] == made["id"] and shown["description"] == "Counts."
        assert {block["label"]: block["value"] for block in shown["blocks"]} == {"human": "Name: Bob=x", "notes": ""}
        assert "archival_memory_search" in [tool["name"] for tool in shown["tools"]]
    plain = running.kelpie("agents", "show", "ada").stdout
    assert "Name: Bob=x" in plain and made["id"] in plain
    asked = running.kelpie("agents", "delete", "ada")
    assert asked.returncode == 2 and "--yes" in one_line(asked.stderr)
    assert running.json("agents", "list", "--name", "ada"), "nothing is removed without a yes"
    assert running.kelpie("agents", "delete", "ada", "--yes").returncode == 0
    assert running.json("agents", "list", "--name", "ada") == []
    gone = running.kelpie("agents", "show", "ada")
    assert gone.returncode == 4 and "'ada'" in one_line(gone.stderr)


def test_an_agent_without_blocks_gets_the_usual_two_and_the_default_model(running: Live) -> None:
    made = running.json("agents", "create", "plain")
    assert sorted(block["label"] for block in made["blocks"]) == ["human", "persona"]
    assert made["model"] == "kelpie/demo"


def test_stop_start_and_restart_change_the_state(running: Live) -> None:
    running.kelpie("agents", "create", "switched")
    assert running.json("agents", "stop", "switched")["state"] == "stopped"
    refused = running.kelpie("chat", "switched", "-m", "hi")
    assert refused.returncode == 1 and "stopped" in refused.stderr
    assert "stopped" in running.kelpie("agents", "list").stdout
    assert running.json("agents", "start", "switched")["state"] != "stopped"
    assert running.kelpie("chat", "switched", "-m", "hi").returncode == 0
    assert running.json("agents", "restart", "switched")["name"] == "switched"
    assert running.kelpie("agents", "restart", "switched").stdout.startswith("switched: ")


def test_what_an_agent_does_is_cancelled_and_told(running: Live) -> None:
    made = running.json("agents", "create", "busy", "--model", "kelpie/demo")
    assert running.kelpie("agents", "cancel", "busy").returncode == 1, "it has done nothing yet"
    running.kelpie("chat", "busy", "-m", "Hello!")
    [run] = running.json("runs", "list", "--agent", "busy")
    refused = running.kelpie("agents", "cancel", "busy")
    assert refused.returncode == 1 and "No active runs to cancel" in refused.stderr
    assert running.json("runs", "cancel", run["id"]) == {run["id"]: "cancelled"}
    assert "ended" in running.kelpie("runs", "cancel", run["id"]).stdout
    assert running.json("runs", "show", run["id"])["status"] == "completed", "what was over stays as it was"
    assert running.json("agents", "show", made["id"])["paused_until"] is None


def test_a_spoilt_history_is_mended_and_told_once(running: Live) -> None:
    spoilt = running.json("agents", "create", "spoilt", "--model", "kelpie/demo")["id"]
    running.json("agents", "create", "sound", "--model", "kelpie/demo")
    calls = json.dumps([{"id": "call_lost", "name": "memory_insert", "arguments": "{}"}])
    with closing(sqlite3.connect(running.data_dir / "kelpie.db")) as database, database:
        database.execute(
            "INSERT INTO messages (id, agent_id, seq, role, content, tool_calls, tool_returns, is_err, created_at) "
            "SELECT 'message-lost', ?, max(seq) + 1, 'assistant', '[]', ?, '[]', 0, 1 FROM messages WHERE agent_id = ?",
            (spoilt, calls, spoilt),
        )
        database.execute(
            "INSERT INTO context (agent_id, conversation_id, position, message_id) "
            "SELECT agent_id, '', seq, id FROM messages WHERE id = 'message-lost'"
        )
    assert running.json("agents", "repair", "sound")[0]["done"] == [], "nobody else's history is looked at"
    told = running.kelpie("agents", "repair", "spoilt")
    assert told.returncode == 0 and one_line(told.stdout).startswith(
        f"{spoilt}: message-lost: added a placeholder result to 1 call(s) without a result"
    )
    assert one_line(running.kelpie("agents", "repair").stdout) == "Nothing to repair.\n"
    assert {"agent_id": spoilt, "done": []} in running.json("agents", "repair")
    assert running.kelpie("chat", "spoilt", "-m", "Hello!").returncode == 0


def test_what_cannot_be_made_is_told_in_one_line(running: Live) -> None:
    unknown = running.kelpie("agents", "create", "bad", "--model", "kelpie/none")
    assert unknown.returncode == 4 and "kelpie/none" in one_line(unknown.stderr)
    block = running.kelpie("agents", "create", "bad", "--block", "no value")
    assert block.returncode == 1 and "LABEL=VALUE" in one_line(block.stderr)
    kind = running.kelpie("agents", "create", "bad", "--type", "nonsense")
    assert kind.returncode == 1 and "agent type" in one_line(kind.stderr)
    assert running.json("agents", "list", "--name", "bad") == []


def test_a_run_is_listed_and_shown_with_its_steps_and_messages(running: Live) -> None:
    running.kelpie("agents", "create", "runner", "--block", "human=Nothing yet.")
    assert running.kelpie("chat", "runner", "-m", "my name is Ada").returncode == 0
    [run] = running.json("runs", "list", "--agent", "runner")
    shown = running.json("runs", "show", run["id"])
    assert {name: shown[name] for name in run} == run
    assert (shown["status"], shown["stop_reason"]) == ("completed", "end_turn")
    assert [step["status"] for step in shown["steps"]] == ["success", "success"]
    assert shown["usage"]["total_tokens"] == sum(step["total_tokens"] for step in shown["steps"])
    kinds = [message["message_type"] for message in shown["messages"]]
    assert kinds == ["user_message", "tool_call_message", "tool_return_message", "assistant_message"]
    plain = running.kelpie("runs", "show", run["id"]).stdout
    assert "my name is Ada" in plain and "end_turn" in plain
    assert run["id"] in running.kelpie("runs", "list").stdout
    assert running.json("runs", "list", "--agent", "runner", "--active") == []


def test_a_run_that_is_not_there_is_told(running: Live) -> None:
    absent = running.kelpie("runs", "show", "run-11111111-1111-4111-8111-111111111111")
    assert absent.returncode == 4 and "not found" in one_line(absent.stderr)
    wrong = running.kelpie("runs", "show", "run-1")
    assert wrong.returncode == 4 and "not the id of a run" in one_line(wrong.stderr)


def test_in_a_pipe_a_listing_is_plain_text_in_columns(running: Live) -> None:
    running.kelpie("agents", "create", "columns")
    out = running.kelpie("agents", "list").stdout
    assert "\x1b" not in out and "│" not in out
    heading, *rows = out.splitlines()
    place = heading.index("ID")
    assert all(row[place:].startswith("agent-") for row in rows)


def test_empty_listings_are_empty_output_and_a_hint_beside_it(running: Live) -> None:
    done = running.kelpie("agents", "list", "--name", "nobody")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.strip()
    assert json.loads(running.kelpie("agents", "list", "--name", "nobody", "--json").stdout) == []


def test_a_hidden_escape_in_a_description_does_not_reach_the_output(running: Live) -> None:
    made: Any = running.json("agents", "create", "escape", "--description", "a\x1b[2Jb")
    assert made["name"] == "escape"
    assert "\x1b" not in running.kelpie("agents", "show", "escape").stdout


def test_without_a_server_every_listing_ends_with_its_own_code(running: Live) -> None:
    nowhere = "http://127.0.0.1:1"
    for arguments in (("agents", "list"), ("runs", "list"), ("models", "list"), ("agents", "show", "x"), ("demo",)):
        done = running.kelpie(*arguments, "--url", nowhere)
        assert done.returncode == 3, arguments
        assert nowhere in one_line(done.stderr)


def test_a_memory_goes_into_a_file_and_back(running: Live, tmp_path: Path) -> None:
    made = running.json("agents", "create", "eve", "--block", "human=Likes tea ☕")
    file = tmp_path / "eve.json"
    taken = running.kelpie("agents", "checkpoint", "eve", str(file))
    assert taken.returncode == 0 and "1 blocks" in one_line(taken.stdout)
    assert file.stat().st_mode & 0o777 == 0o600
    [block] = running.json("blocks", "list", "--agent", "eve")
    Client(running.url).patch(f"/v1/blocks/{block['id']}", {"value": "wrecked"})
    asked = running.kelpie("agents", "restore", "eve", str(file))
    assert asked.returncode == 2 and "--yes" in one_line(asked.stderr)
    done = running.json("agents", "restore", "eve", str(file), "--yes")
    assert (done["blocks"], done["left"]) == (1, [])
    assert [each["value"] for each in running.json("agents", "show", made["id"])["blocks"]] == ["Likes tea ☕"]
    file.write_text("{")
    broken = running.kelpie("agents", "restore", "eve", str(file), "--yes")
    assert broken.returncode != 0 and "is not valid JSON" in one_line(broken.stderr)
    nowhere = running.kelpie("agents", "checkpoint", "eve", str(tmp_path / "none" / "x.json"))
    assert nowhere.returncode != 0 and "cannot be written" in one_line(nowhere.stderr)
