"""Commands that change agents, blocks, tools and settings: what is written is read back, what is wrong is said in a
line and changes nothing."""

import json
from pathlib import Path

import pytest

from kelpie.core.errors import ConfigurationError
from kelpie.core.settings.settings import SETTINGS
from kelpie.core.settings.sources.toml_edit import check, template, with_value, without_value
from tests.cli.fake_server import fake_server
from tests.cli.live import Live
from tests.cli.pseudo_terminal import at_terminal

DICE = '''def total(rolls: list[int], bonus: int = 0) -> int:
    """
    Add up dice.

    Args:
        rolls (list[int]): What the dice show.
        bonus (int): A number to add.
    """
    print("adding")
    return sum(rolls) + bonus
'''
EDITOR = """#!/bin/sh
sed -i 's/tea/coffee/' "$1"
"""


def one_line(text: str) -> str:
    assert len(text.strip().splitlines()) == 1, text
    return text


def editor(directory: Path, script: str = EDITOR) -> dict[str, str]:
    path = directory / "editor"
    path.write_text(script)
    path.chmod(0o700)
    return {"EDITOR": str(path), "VISUAL": ""}


def test_an_agent_is_changed_and_keeps_the_rest(running: Live) -> None:
    made = running.json("agents", "create", "una", "--tag", "old", "--tag", "kept", "--description", "First.")
    done = running.kelpie(
        "agents", "update", "una", "--name", "uma", "--system", "-", "--tag", "new", "--remove-tag", "old",
        stdin="Be brief.\n",
    )  # fmt: skip
    assert done.returncode == 0 and made["id"] in one_line(done.stdout)
    shown = running.json("agents", "show", "uma")
    assert (shown["id"], shown["system"], shown["description"]) == (made["id"], "Be brief.", "First.")
    assert sorted(shown["tags"]) == ["kept", "new"]
    for options, words in (
        ((), "nothing to change"),
        (("--name", " "), "must not be empty"),
        (("--remove-tag", "absent"), "no tag absent"),
        (("--model", "kelpie/none"), "kelpie/none"),
    ):
        refused = running.kelpie("agents", "update", "uma", *options)
        assert refused.returncode != 0 and words in one_line(refused.stderr)
    assert running.json("agents", "show", "uma")["model"] == "kelpie/demo"


def test_a_name_is_never_empty_and_given_twice_only_on_purpose(running: Live) -> None:
    for name in ("", "  "):
        empty = running.kelpie("agents", "create", name)
        assert empty.returncode == 1 and "must not be empty" in one_line(empty.stderr)
    first = running.json("agents", "create", "twin")
    with at_terminal(("agents", "create", "twin"), running.env) as terminal:
        assert first["id"] in terminal.until("[y/N]")
        terminal.type("n\n", "Aborted")
        assert terminal.ends()[0] == 1
    assert [each["id"] for each in running.json("agents", "list", "--name", "twin")] == [first["id"]]
    script = running.kelpie("agents", "create", "twin", "--json")
    assert script.returncode == 0 and f"already named twin ({first['id']})" in script.stderr
    assert json.loads(script.stdout)["id"] != first["id"], "scripts that use ids go on working"
    assert "already named" not in running.kelpie("agents", "create", "twin", "--yes").stderr


def test_the_default_model_is_explained(running: Live) -> None:
    made = running.kelpie("agents", "create", "plainly")
    assert "(the default model of the server)" in made.stdout and "kelpie/demo is a script" in made.stderr
    assert running.kelpie("agents", "create", "chosen", "--model", "kelpie/demo").stderr == ""
    kind = running.kelpie("agents", "create", "bad", "--type", "foo")
    assert kind.returncode == 1 and "memgpt_v2_agent" in one_line(kind.stderr)


def test_a_block_is_created_shown_set_edited_and_shared(running: Live, tmp_path: Path) -> None:
    running.json("agents", "create", "bo", "--block", "human=Likes tea.")
    running.json("agents", "create", "cy", "--block", "persona=Kind.")
    assert running.kelpie("blocks", "show", "bo/human").stdout == "Likes tea.\n"
    made = running.kelpie("blocks", "create", "notes", "-", "--agent", "bo", "--limit", "90", stdin="One\ntea\n")
    assert made.returncode == 0, made.stderr
    assert made.stdout.endswith("Attached it to agent bo.\n")
    block = running.json("blocks", "show", "bo/notes")
    assert (block["value"], block["limit"]) == ("One\ntea", 90)
    assert running.kelpie("blocks", "edit", "bo/notes", env=editor(tmp_path)).stdout.startswith("Updated block notes")
    assert running.json("blocks", "show", block["id"][:-1])["value"] == "One\ncoffee", "the start of an id will do"
    assert "Nothing changed" in running.kelpie("blocks", "edit", "bo/notes", env=editor(tmp_path)).stdout
    absent = running.kelpie("blocks", "detach", "bo/notes", "cy")
    assert absent.returncode == 4 and "agent cy does not have block notes" in one_line(absent.stderr)
    assert running.kelpie("blocks", "attach", "bo/notes", "cy").stdout.startswith("Attached block notes (block-")
    assert running.kelpie("blocks", "set", "cy/notes", "Two", "--read-only").returncode == 0
    shared = running.json("blocks", "show", "bo/notes")
    assert (shared["value"], shared["read_only"]) == ("Two", True)
    assert running.kelpie("blocks", "detach", block["id"], "bo").returncode == 0
    absent = running.kelpie("blocks", "history", "bo/notes")
    assert absent.returncode == 4
    assert one_line(absent.stderr) == "kelpie: agent bo has no block 'notes'; its blocks are human\n"
    running.json("agents", "create", "team/bo", "--block", "human=Slashes.", "--block", "notes/tea=Green.")
    assert running.kelpie("blocks", "show", "team/bo/human").stdout == "Slashes.\n", "a name may have a slash"
    # Somebody else changes the block while the editor is open.
    meanwhile = editor(tmp_path, '#!/bin/sh\nkelpie blocks set cy/notes Three >&2\necho mine > "$1"\n')
    refused = running.kelpie("blocks", "edit", "cy/notes", env=meanwhile)
    assert refused.returncode == 1 and "changed by somebody else" in refused.stderr
    assert running.json("blocks", "show", "cy/notes")["value"] == "Three"
    kept = Path(next(line for line in refused.stderr.splitlines() if "not stored" in line).rpartition(" in ")[2])
    assert kept.read_text() == "mine\n", "what was typed is not lost"
    kept.unlink()
    failing = running.kelpie("blocks", "edit", "cy/notes", env=editor(tmp_path, "#!/bin/sh\nexit 3\n"))
    assert failing.returncode == 1 and "ended with the code 3" in one_line(failing.stderr)


@pytest.mark.needs("sandbox")
def test_a_tool_is_added_shown_run_attached_and_deleted(running: Live, tmp_path: Path) -> None:
    running.json("agents", "create", "di")
    file = tmp_path / "dice.py"
    file.write_text(DICE)
    added = running.kelpie("tools", "add", str(file), "--tag", "games", "--agent", "di")
    assert added.returncode == 0 and added.stdout.startswith("Added tool total"), added.stderr
    shown = running.kelpie("tools", "show", "total").stdout
    assert "rolls: array, bonus: integer (optional)" in shown and 'print("adding")' in shown
    done = running.kelpie("tools", "run", "total", "--args", '{"rolls": [1, 2]}')
    assert (done.returncode, done.stdout) == (0, "3\n") and "adding" in done.stderr
    file.write_text(DICE.replace("sum(rolls)", "1 / 0"))
    assert running.kelpie("tools", "add", str(file)).stdout.startswith("Updated tool total")
    failed = running.kelpie("tools", "run", "total", "--agent", "di", "--args", "-", stdin='{"rolls": []}')
    assert failed.returncode == 1 and (failed.stdout + failed.stderr).count("ZeroDivisionError: ") == 1, failed.stderr
    tool = running.json("tools", "show", "total")
    assert "total" in [each["name"] for each in running.json("agents", "show", "di")["tools"]]
    assert "Detached tool total from agent di." in running.kelpie("tools", "detach", "total", "di").stdout
    assert "total" not in [each["name"] for each in running.json("agents", "show", "di")["tools"]]
    assert running.kelpie("tools", "attach", tool["id"][:13], "di").returncode == 0
    assert running.kelpie("tools", "add", str(file), "--approval", "--agent", "di").returncode == 0
    rules = running.json("agents", "show", "di")["tool_rules"]
    assert ("requires_approval", "total") in [(rule["type"], rule["tool_name"]) for rule in rules]
    asked = running.kelpie("tools", "delete", "total")
    assert asked.returncode == 2 and "--yes" in one_line(asked.stderr)
    assert running.kelpie("tools", "delete", "total", "--yes").returncode == 0
    for arguments, words in (
        (("show", "totals"), "no tool named 'totals'"),
        (("run", "conversation_search"), "built-in"),
        (("add", "x.txt"), ".py"),
        (("run", "conversation_search", "--args", "[]"), "JSON object"),
    ):
        refused = running.kelpie("tools", *arguments)
        assert refused.returncode in (1, 4) and words in one_line(refused.stderr)


def test_quotas_are_shown_with_their_use(running: Live) -> None:
    shown = running.kelpie("quotas").stdout
    told = running.json("quotas")
    assert told["organization_id"] in shown and "requests per minute" in shown
    assert str(told["usage"]["agents"]) in shown and ("no limit" in shown or str(told["quotas"]["agents"]) in shown)


def test_a_setting_is_written_into_the_file_and_the_rest_stays(running: Live, tmp_path: Path) -> None:
    path = tmp_path / "kelpie.toml"
    path.write_text("# mine\n[agents]  # of all\nblock_limit = 500 # small\n")
    path.chmod(0o640)
    done = running.kelpie("config", "set", "agents.default_model", "openai/gpt-4o", cwd=tmp_path)
    assert done.returncode == 0 and str(path) in done.stdout and "kelpie server restart" in done.stderr
    secret = running.kelpie("config", "set", "providers.openai.api_key", "-", cwd=tmp_path, stdin="sk-typed\n")
    assert "sk-typed" not in secret.stdout + secret.stderr
    text = path.read_text()
    assert text.startswith("# mine\n[agents]  # of all\nblock_limit = 500 # small\n") and 'api_key = "sk-typed"' in text
    assert path.stat().st_mode & 0o777 == 0o640
    assert one_line(running.kelpie("config", "path", cwd=tmp_path).stdout) == f"{path}\n"
    for arguments, words in (
        (("set", "agents.block_limit", "many"), "is not a whole number"),
        (("set", "agents.block_limits", "5"), "did you mean 'agents.block_limit'?"),
        (("set", "server.port", "99999"), "out of range"),
        (("unset", "server.port"), "does not set server.port"),
    ):
        refused = running.kelpie("config", *arguments, cwd=tmp_path)
        assert refused.returncode == 1 and words in one_line(refused.stderr)
    assert path.read_text() == text
    wrong = running.kelpie("config", "edit", cwd=tmp_path, env=editor(tmp_path, '#!/bin/sh\necho "no" >> "$1"\n'))
    assert wrong.returncode == 1 and path.read_text() == text and "line" in wrong.stderr
    Path(wrong.stderr.splitlines()[0].rpartition(" in ")[2]).unlink()
    assert running.kelpie("config", "unset", "providers.openai.api_key", cwd=tmp_path).returncode == 0
    edit = editor(tmp_path, '#!/bin/sh\nsed -i s/500/501/ "$1"\n')
    assert running.kelpie("config", "edit", cwd=tmp_path, env=edit).returncode == 0
    assert "block_limit = 501 # small" in path.read_text() and "sk-typed" not in path.read_text()
    taken = running.kelpie("config", "set", "server.port", "1", cwd=tmp_path)
    assert "KELPIE_PORT is set and takes precedence" in taken.stderr


def test_an_edited_file_is_valid_and_changes_one_setting() -> None:
    check(template(), "kelpie.toml", {})
    port, key = SETTINGS["port"], SETTINGS["openai_api_key"]
    for text in ("", "[server]\n", 'server.host = "127.0.0.1"\n', "[providers.groq]\n# none\n", "server = {}\n"):
        new = with_value(with_value(text, "x", port, 9), "x", key, "sk")
        assert without_value(without_value(new, "x", port), "x", key).count("9") == 0
    with pytest.raises(ConfigurationError, match="x line 2: this is not TOML"):
        with_value("a = 1\nb\n", "x", port, 9)


def test_another_service_is_recognized(running: Live) -> None:
    with fake_server({}) as other:
        done = running.kelpie("--url", other.url, "agents", "list")
    assert done.returncode == 4 and f"{other.url} is not a Kelpie server" in one_line(done.stderr)
