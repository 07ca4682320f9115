"""The documentation cannot rot: what exists must be written down, and what is written down must exist."""

import re
import tomllib
from pathlib import Path

import pytest

from kelpie import __version__
from kelpie.cli import exit_codes
from kelpie.core.errors import ConfigurationError
from kelpie.core.settings.settings import SETTINGS, VARIABLES, Settings, resolve
from kelpie.core.settings.sources import toml_text
from kelpie.server.letta.compatibility import unsupported
from tests.cli.test_help import LEAVES
from tests.project.fenced import blocks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


def table(page: Path) -> list[list[str]]:
    rows = [line.strip().strip("|").split(" | ") for line in page.read_text().splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in row] for row in rows]


def default_of(name: str) -> str:
    value = getattr(Settings(), name)
    if value in (None, ()):
        return "not set"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def test_every_setting_is_documented_with_its_names_default_and_meaning() -> None:
    real = [
        [f"`{spec.key}`", ", ".join(f"`{name}`" for name in spec.env), default_of(field), spec.help]
        for field, spec in SETTINGS.items()
    ]
    assert [row for row in table(DOCS / "settings.md") if len(row) == 4] == real


def test_variables_that_pages_name_exist() -> None:
    known = {*VARIABLES, "KELPIE_CONFIG", "KELPIE_TEST_REQUIRE", "KELPIE_TEST_SCREENSHOTS"}
    for page in PAGES:
        named = set(re.findall(r"`(KELPIE_[A-Z_]+)(?:=[^`]*)?`", page.read_text()))
        assert named <= known, page.name


def test_the_settings_file_that_is_shown_is_one() -> None:
    shown = [block for block in blocks(DOCS / "settings.md") if block.language == "toml"]
    assert shown
    for block in shown:
        given = toml_text.parse(block.text, "settings.md")
        assert resolve({}, {}, given).settings != Settings()


# Any text is a valid value of these; what it names is checked when it is used.
FREE_TEXT = (str, tuple)


@pytest.mark.parametrize(
    "variable", [name for name, field in VARIABLES.items() if SETTINGS[field].kind not in FREE_TEXT]
)
def test_a_bad_value_is_answered_with_the_name_of_its_variable(variable: str) -> None:
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


def test_every_refused_field_is_documented() -> None:
    text = (DOCS / "letta-compatibility.md").read_text()
    refused = {*unsupported.AGENT_FIELDS, *unsupported.SEND_FIELDS}
    assert not [name for name in refused if f"`{name}`" not in text]


def sections(page: Path) -> dict[str, str]:
    """The text under each heading of the second level."""
    _, *parts = re.split(r"^## (.*)$", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_command_is_documented_with_its_options_and_an_example() -> None:
    # A heading is the command and its arguments in capitals.
    told = {
        re.sub(r"( [A-Z]+)+$", "", heading.removeprefix("kelpie ")): text
        for heading, text in sections(DOCS / "cli.md").items()
        if heading.startswith("kelpie ")
    }
    assert sorted(told) == sorted(LEAVES)
    for name, command in LEAVES.items():
        assert re.search(rf"^(.* \| |.*\()?kelpie {name}\b", told[name], re.MULTILINE), f"{name} has no example"
        own = [parameter.opts for parameter in command.params if parameter.name not in ("help", "url", "as_json")]
        options = [names for names in own if names[0].startswith("-")]
        assert not [names for names in options if not any(f"`{one}" in told[name] for one in names)], name


def test_every_exit_code_is_documented() -> None:
    real = sorted(value for name, value in vars(exit_codes).items() if name.isupper())
    rows = re.findall(r"^\| (\d) \| (.+) \|$", sections(DOCS / "cli.md")["Exit codes"], re.MULTILINE)
    assert [int(code) for code, meaning in rows if meaning] == real
