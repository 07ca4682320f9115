"""The archive of a package that Kelpie chooses is the one whose hash is pinned, or npm does not install it."""

import json
from pathlib import Path
from typing import Any

import pytest

from kelpie.core.tools.package_requirements import Index, RequiredPackages
from kelpie.tools.custom.environments import TYPE_STRIPPER
from kelpie.world.cell_programs import package_installer

PLATFORM = "Linux-x86_64"
PINNED = [(TYPE_STRIPPER.line, TYPE_STRIPPER.integrity)]
RIGHT = {"version": TYPE_STRIPPER.version, "integrity": TYPE_STRIPPER.integrity}


def resolved(place: Path, name: str, told: Any) -> Path:
    """A lock file as npm writes it before it fetches any archive."""
    lock = place / "package-lock.json"
    lock.write_text(json.dumps({"lockfileVersion": 3, "packages": {"": {}, f"node_modules/{name}": told}}))
    return lock


def test_the_pinned_archive_is_installed(tmp_path: Path) -> None:
    package_installer._check_lock(resolved(tmp_path, TYPE_STRIPPER.name, RIGHT), PINNED)


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
    lock = resolved(tmp_path, name, told)
    with pytest.raises(SystemExit, match=f"{TYPE_STRIPPER.line} was not installed.*check the package index"):
        package_installer._check_lock(lock, PINNED)
    package_installer._check_lock(lock, [])  # the tool's author chose it


def test_a_set_that_was_installed_without_the_pin_is_not_used_for_it() -> None:
    unpinned = RequiredPackages(Index.npm, (TYPE_STRIPPER.line,))
    pinned = RequiredPackages(Index.npm, (TYPE_STRIPPER.line,), tuple(PINNED))
    assert unpinned.key(PLATFORM) != pinned.key(PLATFORM)
