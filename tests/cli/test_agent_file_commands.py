"""`kelpie agents export` and `import` against a real server: an agent comes back from its file; what cannot be read or
written is said in one sentence."""

import gzip
import json
from pathlib import Path

import httpx

from tests.cli.live import Live


def test_an_agent_comes_back_from_its_file(running: Live, tmp_path: Path) -> None:
    made = running.json("agents", "create", "fia", "--block", "human=Name: Bob.")
    running.kelpie("chat", "fia", stdin="where is the tea?\n")
    file = tmp_path / "fia.af"
    assert running.kelpie("agents", "export", "fia", str(file)).stdout.startswith(
        f"Exported fia to {file}: 1 agent(s), "
    )
    assert file.stat().st_mode & 0o777 == 0o600
    told = running.json("agents", "export", "fia", str(file))
    document = json.loads(file.read_text())
    assert (told["agent_id"], told["messages"]) == (made["id"], len(document["agents"][0]["messages"]))
    assert json.loads(running.kelpie("agents", "export", "fia").stdout)["blocks"] == document["blocks"]

    packed = tmp_path / "fia.af.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert running.kelpie("agents", "import", str(packed), "--name", "gus").stdout.startswith("Imported gus (agent-")
    assert "Name: Bob." in [block["value"] for block in running.json("blocks", "list", "--agent", "gus")]
    assert "where is the tea?" in running.kelpie("messages", "list", "gus").stdout
    bare = running.json("agents", "export", "fia", str(tmp_path / "bare.af"), "--no-messages")
    assert bare["messages"] == 0
    running.json("agents", "import", str(file), "--name", "hal", "--no-messages")
    assert "where is the tea?" not in running.kelpie("messages", "list", "hal").stdout


def test_a_conversation_is_exported_by_itself(running: Live, tmp_path: Path) -> None:
    made = running.json("agents", "create", "ida")
    with httpx.Client(base_url=running.url, trust_env=False) as client:
        thread = client.post("/v1/conversations/", params={"agent_id": made["id"]}, json={}).json()["id"]
        said = {"messages": [{"role": "user", "content": "only here"}], "streaming": False}
        assert client.post(f"/v1/conversations/{thread}/messages", json=said).status_code == 200
    file = tmp_path / "thread.af"
    running.kelpie("agents", "export", "ida", str(file), "--conversation", thread)
    assert "only here" in file.read_text()
    assert "only here" not in running.kelpie("agents", "export", "ida").stdout


def test_what_cannot_be_read_or_written_is_said(running: Live, tmp_path: Path) -> None:
    running.json("agents", "create", "jo")
    file, cut = tmp_path / "jo.af", tmp_path / "cut.af"
    running.kelpie("agents", "export", "jo", str(file))
    cut.write_bytes(file.read_bytes()[:-50])
    for arguments, words in (
        (("export", "jo", str(tmp_path)), "Is a directory"),
        (("export", "jo", "/"), "Is a directory"),
        (("export", "jo", str(tmp_path / "nowhere" / "x.af")), "No such file"),
        (("import", str(tmp_path / "nothing.af")), "No such file"),
        (("import", str(cut)), "cut off"),
        (("import", str(file), "--model", "nobody/x"), "nobody/x"),
    ):
        told = running.kelpie("agents", *arguments)
        assert told.returncode != 0 and told.stdout == ""
        assert words in told.stderr and told.stderr.count("\n") == 1, told.stderr
    assert not (tmp_path / "nowhere").exists()
