"""The archive of a package that Kelpie chooses is the one whose hash is pinned, or the set is not used."""

import json
from pathlib import Path
from typing import Any

import pytest

from kelpie.core.errors import ToolError
from kelpie.core.tools.package_requirements import Index, RequiredPackages
from kelpie.tools.custom.environments import TYPE_STRIPPER
from kelpie.world.packages import integrity

PLATFORM = "Linux-x86_64"
PINNED = RequiredPackages(Index.npm, (TYPE_STRIPPER.line,), ((TYPE_STRIPPER.line, TYPE_STRIPPER.integrity),))
RIGHT = {"version": TYPE_STRIPPER.version, "integrity": TYPE_STRIPPER.integrity}


def recorded(place: Path, name: str, told: Any) -> Path:
    """A set as npm leaves it."""
    record = place / "node_modules/.package-lock.json"
    record.parent.mkdir()
    record.write_text(json.dumps({"lockfileVersion": 3, "packages": {f"node_modules/{name}": told}}))
    return place


def test_the_pinned_archive_is_used(tmp_path: Path) -> None:
    integrity.check(PINNED, recorded(tmp_path, TYPE_STRIPPER.name, RIGHT))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (TYPE_STRIPPER.name, RIGHT | {"integrity": "sha512-" + "A" * 86 + "=="}),
        (TYPE_STRIPPER.name, RIGHT | {"integrity": None}),
        (TYPE_STRIPPER.name, RIGHT | {"version": "1.2.2"}),
        (TYPE_STRIPPER.name, {"version": TYPE_STRIPPER.version}),
        ("another", RIGHT),
    ],
)
def test_another_archive_is_refused_with_the_remedy(tmp_path: Path, name: str, told: Any) -> None:
    with pytest.raises(ToolError, match=f"{TYPE_STRIPPER.line} was not installed.*Check the package index"):
        integrity.check(PINNED, recorded(tmp_path, name, told))


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"packages": []}'])
def test_without_a_record_nothing_is_taken_on_trust(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "node_modules").mkdir()
        (tmp_path / "node_modules/.package-lock.json").write_text(text)
    with pytest.raises(ToolError, match="was not installed"):
        integrity.check(PINNED, tmp_path)
    integrity.check(RequiredPackages(Index.npm, ("left-pad@1",)), tmp_path)  # the tool's author chose it


def test_a_set_that_was_installed_without_the_pin_is_not_used_for_it() -> None:
    unpinned = RequiredPackages(Index.npm, (TYPE_STRIPPER.line,))
    assert unpinned.key(PLATFORM) != PINNED.key(PLATFORM)
