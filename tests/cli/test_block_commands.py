"""`kelpie blocks` against a real server: what changed is shown, and what was can be brought back."""

from tests.cli.live import Live


def value_of(place: Live, agent: str) -> str:
    return place.json("agents", "show", agent)["blocks"][0]["value"]


def test_the_history_of_a_block_and_the_way_back(running: Live) -> None:
    made = running.json("agents", "create", "nora", "--block", "human=Likes tea.\nLives in Ulm.")
    (block,) = running.json("blocks", "list", "--agent", "nora")
    assert (block["label"], block["id"]) == ("human", made["blocks"][0]["id"])
    assert block["id"] in [each["id"] for each in running.json("blocks", "list")]
    assert "human" in running.kelpie("blocks", "list", "--agent", "nora").stdout
    running.kelpie("chat", "nora", "--message", "My name is Nora.")
    first, *_ = running.json("blocks", "history", block["id"])[::-1]
    assert (first["version"], first["author"]["type"]) == (1, "user")

    back = running.json("blocks", "rollback", "nora/human", "1")
    assert back["value"] == "Likes tea.\nLives in Ulm." == value_of(running, "nora")
    listed = running.json("blocks", "history", "nora/human")
    assert [each["version"] for each in listed] == list(range(len(listed), 0, -1))
    assert running.json("blocks", "history", "nora/human", "--limit", "1") == listed[:1]
    shown = running.kelpie("blocks", "history", "nora/human").stdout
    assert "VERSION" in shown and "created" in shown


def test_what_changed_is_shown_as_a_diff(running: Live) -> None:
    running.json("agents", "create", "vera", "--block", "human=one")
    (block,) = running.json("blocks", "list", "--agent", "vera")
    running.kelpie("chat", "vera", "--message", "My name is Vera.")
    newest = running.json("blocks", "history", "vera/human")[0]
    assert newest["version"] > 1 and newest["author"]["type"] == "agent" and newest["tool"]
    plain = running.kelpie("blocks", "diff", "vera/human").stdout
    assert plain.startswith(f"--- {block['id']} version {newest['version'] - 1}\n") and "\n+" in plain
    assert running.json("blocks", "diff", block["id"], "1", "1")["hunks"] == []
    assert "Versions 1 and 1 have the same value." in running.kelpie("blocks", "diff", "vera/human", "1", "1").stdout
    told = running.kelpie("blocks", "rollback", "vera/human", "1", "--expect", str(newest["version"])).stdout
    assert told == f"Restored version 1 of block human; this is now version {newest['version'] + 1}.\n"
    assert "restored version 1" in running.kelpie("blocks", "history", "vera/human").stdout
    assert value_of(running, "vera") == "one"


def test_what_is_wrong_is_said_in_a_line(running: Live) -> None:
    running.json("agents", "create", "ina", "--block", "human=one")
    for arguments, code, words in (
        (("rollback", "ina/human", "9"), 4, "has no version 9"),
        (("rollback", "ina/human", "1", "--expect", "7"), 1, "version 1, but you expected 7"),
        (("history", "ina"), 1, "AGENT/LABEL"),
        (("history", "nobody/human"), 4, "nobody"),
        (("diff", "ina/none"), 4, "none"),
    ):
        done = running.kelpie("blocks", *arguments)
        assert done.returncode == code and words in done.stderr, (arguments, done.returncode, done.stderr)
        assert len(done.stderr.strip().splitlines()) == 1
    assert value_of(running, "ina") == "one"
