"""`kelpie doctor`: what it tried on this machine, and custom tools that stand in the way of built-in ones."""

import json
import sqlite3
import sys
from pathlib import Path

import pytest

from tests.cli.live import live

ROTTEN = "UPDATE blocks SET value = 'Somebody else.' WHERE label = 'human'"
SHADOW = (
    "UPDATE tools SET tool_type = 'custom', source_code = 'def rethink_memory(): ...' WHERE name = 'rethink_memory'"
)


def test_a_custom_tool_in_the_place_of_a_built_in_one_is_told(tmp_path: Path) -> None:
    with live(tmp_path / "data") as place:
        place.serve()
        assert place.json("doctor")["server"]["shadowed_tools"] == []
        place.kelpie("server", "stop")
        with sqlite3.connect(place.data_dir / "kelpie.db") as database:  # as an older Kelpie left it
            assert database.execute(SHADOW).rowcount == 1
        database.close()
        place.serve()
        [told] = place.json("doctor")["server"]["shadowed_tools"]
        assert told["name"] == "rethink_memory" and "rename or delete it" in told["remedy"]
        plain = place.kelpie("doctor").stdout
        assert told["id"] in plain and told["remedy"] in plain
        assert "[builtin_tool_shadowed]" in place.kelpie("logs", "--level", "warning").stdout


def test_damaged_data_is_told_with_what_to_do(tmp_path: Path) -> None:
    with live(tmp_path / "data") as place:
        place.serve()
        place.kelpie("agents", "create", "keeper", "--block", "human=Likes tea.")
        assert place.json("doctor")["data"]["sound"] and "ok       data: no damage" in place.kelpie("doctor").stdout
        with sqlite3.connect(place.data_dir / "kelpie.db") as database:
            assert database.execute(ROTTEN).rowcount == 1
        database.close()
        told = place.kelpie("doctor")
        assert told.returncode == 1 and "kelpie blocks rollback" in told.stdout and "Somebody else" not in told.stdout
        place.kelpie("blocks", "rollback", "keeper/human", "1")
        assert place.json("doctor")["data"]["sound"]


@pytest.mark.skipif(sys.platform != "linux", reason="the means are parts of Linux")
def test_each_means_of_isolation_is_one_line_with_what_was_seen_and_the_remedy(tmp_path: Path) -> None:
    with live(tmp_path / "data") as place:
        place.serve()
        tried = place.json("doctor")["isolation"]["machine"]
        lines = place.kelpie("doctor", "-v").stdout.splitlines()
    assert len(tried) == 8
    for each in tried:
        [line] = [line for line in lines if line.startswith(f"{each['name']}  ")]
        assert ("yes" if each["works"] else "no") in line.split() and each["seen"] in line
        assert (each["remedy"] or "-") in line and bool(each["remedy"]) is not each["works"]


def test_the_sandbox_alone_is_attacked_without_a_server(tmp_path: Path) -> None:
    with live(tmp_path / "data") as place:
        done = place.kelpie("doctor", "--isolation", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == (0 if told["sandbox"] == "process" else 1)
    assert told["checks"][0]["name"] == "the sandbox starts" and told["checks"][0]["works"] is (
        told["sandbox"] is not None
    )
    assert all(each["remedy"] for each in told["checks"] if not each["works"])
