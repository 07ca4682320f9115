"""The source tree stays navigable: folders have a bounded size, and the map in AGENTS.md names every package."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "kelpie"
MODULES_MAX = 20
MAP = (ROOT / "AGENTS.md").read_text()
# Program files that run inside sandboxes and the revisions of the schema are data of the product, not modules of it.
NOT_PACKAGES = {"world/cell_programs", "storage/migrations", "storage/migrations/versions"}


def packages() -> list[str]:
    """Folders with Python files, as paths below the source folder."""
    folders = {path.parent for path in SOURCE.rglob("*.py")} - {SOURCE}
    return sorted({folder.relative_to(SOURCE).as_posix() for folder in folders} - NOT_PACKAGES)


def mapped_packages() -> set[str]:
    """The packages that have a line of their own in the map."""
    return {name.rstrip("/") for name in re.findall(r"^\s*- `([a-z_/]+/)`: ", MAP, re.MULTILINE)}


@pytest.mark.parametrize("folder", ["", *packages()])
def test_a_folder_holds_at_most_twenty_modules(folder: str) -> None:
    modules = [path.name for path in (SOURCE / folder).glob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= MODULES_MAX, f"{folder} has {len(modules)} modules; move some into a sub-package"


@pytest.mark.parametrize("folder", packages())
def test_a_package_says_in_one_sentence_what_it_holds(folder: str) -> None:
    text = (SOURCE / folder / "__init__.py").read_text()
    assert text.startswith('"""'), f"{folder}/__init__.py has no docstring"


def test_the_map_has_a_line_for_every_package() -> None:
    assert mapped_packages() == set(packages())


def test_every_path_in_the_map_exists() -> None:
    paths = re.findall(r"`((?:src/|tests/|docs/|bench/)?[a-z_./-]+\.(?:py|md|toml|txt))`", MAP)
    assert paths, "the map names no file"
    missing = [path for path in paths if not (ROOT / path).exists() and not (SOURCE / path).exists()]
    assert not missing
