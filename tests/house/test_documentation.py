"""The documentation cannot rot: what exists must be written down, and what is written down must exist."""

import dataclasses
import re
import tomllib
from pathlib import Path

import pytest

from kelpie import __version__
from kelpie.core import settings as settings_module
from kelpie.core.errors import ConfigurationError
from kelpie.core.settings import Settings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
_VARIABLE = re.compile(r"`((?:KELPIE|OPENAI)_[A-Z_]+)`")


def variables() -> dict[str, str]:
    """Variable -> field of Settings."""
    sources = settings_module._SOURCES  # pyright: ignore[reportPrivateUsage]
    return {name: field for field, (names, _) in sources.items() for name in names}


def table(page: Path) -> list[list[str]]:
    rows = [line.strip().strip("|").split(" | ") for line in page.read_text().splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in row] for row in rows]


def test_every_setting_is_documented_and_every_documented_setting_exists() -> None:
    text = (DOCS / "settings.md").read_text()
    assert set(_VARIABLE.findall(text)) == set(variables())
    assert {field.name for field in dataclasses.fields(Settings)} == set(variables().values())


def test_the_documented_defaults_are_the_real_ones() -> None:
    defaults = Settings()
    for variable, told, _ in table(DOCS / "settings.md"):
        real = getattr(defaults, variables()[variable.strip("`")])
        if real is not None:
            assert told.strip("`") in (str(real), str(real).removesuffix(".0")), variable


@pytest.mark.parametrize("variable", [name for name in variables() if name.startswith("KELPIE_")])
def test_a_bad_value_is_answered_with_the_name_of_its_variable(variable: str) -> None:
    if variable in ("KELPIE_HOST", "KELPIE_DATA_DIR", "KELPIE_DATABASE_URL", "KELPIE_DEFAULT_MODEL"):
        pytest.skip("any text is a valid value; what it names is checked when it is used")
    for value in ("-1", "nonsense"):
        with pytest.raises(ConfigurationError, match=variable):
            Settings.from_environment({variable: value})


def test_every_dependency_has_its_reason() -> None:
    project = PROJECT["project"]
    named = [*project["dependencies"], *project["optional-dependencies"]["test"], *PROJECT["build-system"]["requires"]]
    packages = sorted(re.split(r"[^A-Za-z0-9_-]", requirement)[0] for requirement in named)
    told = table(DOCS / "dependencies.md")
    assert sorted(package.strip("`") for package, _ in told) == packages
    assert all(reason for _, reason in told)


def test_every_dependency_is_pinned_and_no_registry_is_named() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.+]+", line) for line in lines)
    pinned = {line.split("==")[0].lower() for line in lines}
    assert {package.strip("`").lower() for package, _ in table(DOCS / "dependencies.md")} <= pinned


def test_the_version_is_the_same_everywhere() -> None:
    assert PROJECT["project"]["version"] == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not broken


def test_every_decision_is_listed() -> None:
    index = (DOCS / "decisions" / "README.md").read_text()
    decisions = sorted(path.name for path in (DOCS / "decisions").glob("0*.md"))
    assert decisions and all(f"({name})" in index for name in decisions)
