"""References in the documentation resolve: links to a heading, and paths of files of this repository."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PLACES = (ROOT, ROOT / "src" / "kelpie")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings as GitHub forms them: lower case, no punctuation, dashes for spaces."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_to_a_heading_finds_it(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*\.md)?#([^)]+)\)", page.read_text())
    missing = [
        (target, anchor) for target, anchor in links if anchor not in anchors(page.parent / target if target else page)
    ]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_path_of_this_repository_exists(page: Path) -> None:
    named = re.findall(
        r"`((?:src|tests|bench|docs|server|sim|storage|core|world|agent)/[\w/.-]+\.(?:py|md))`", page.read_text()
    )
    assert not [path for path in named if not any((place / path).exists() for place in PLACES)]
