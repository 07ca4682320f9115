"""`kelpie templates` against a real server: a template of an agent is made, shown, used and deleted."""

from tests.cli.live import Live


def test_a_template_is_made_shown_used_and_deleted(running: Live) -> None:
    running.json("agents", "create", "tilda", "--block", "human=Name: {{name}}.")
    made = running.json("templates", "create", "desk", "tilda")
    assert made["latest_version"] == "1"
    assert "desk" in running.kelpie("templates", "list").stdout
    assert [each["name"] for each in running.json("templates", "list") if each["id"] == made["id"]] == ["desk"]
    shown = running.kelpie("templates", "show", "desk").stdout
    assert "name" in shown and "VERSION" in shown
    told = running.kelpie("templates", "deploy", "desk:1", "--name", "una", "--set", "name=Una")
    assert told.stdout.startswith("Created agent una (agent-")
    blocks = running.json("blocks", "list", "--agent", "una")
    assert "Name: Una." in [block["value"] for block in blocks]
    assert "they are empty" in running.kelpie("templates", "deploy", "desk").stderr
    assert "VARIABLE=VALUE" in running.kelpie("templates", "deploy", "desk", "--set", "x").stderr
    assert running.kelpie("templates", "delete", "desk", "--yes").stdout == "Deleted template desk.\n"
    assert "desk" not in running.kelpie("templates", "list").stdout
    gone = running.kelpie("templates", "deploy", "desk")
    assert gone.returncode == 4 and "Give the name of one that exists" in gone.stderr
