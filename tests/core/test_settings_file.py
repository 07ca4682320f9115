"""The text of kelpie.toml: every value has its line, and what is wrong is refused with its line and what was meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kelpie.core.errors import ConfigurationError
from kelpie.core.settings.settings import KEYS, resolve
from kelpie.core.settings.sources.toml_text import parse

WHOLE = """\
# A comment with a [heading] and a key = 1
agents.default_model = "a/b"

[server]
  port = 9000   # the port
"log_level" = 'debug'

[models]
fallbacks = [
  "openai/gpt-4o",  # first

  "kelpie/demo",
]
attempts = 2

[providers.openai]
api_key = \"\"\"
[agents]
block_limit = 5\"\"\"
base_url = "http://localhost:1234/v1"
"""


def refused(text: str) -> str:
    with pytest.raises(ConfigurationError) as error:
        parse(text, "kelpie.toml")
    return str(error.value)


def test_every_value_has_the_line_its_key_stands_at() -> None:
    given = parse(WHOLE, "kelpie.toml")
    lines = {key: int(each.where.split("line ")[1].split(",")[0]) for key, each in given.items()}
    assert lines == {
        "agents.default_model": 2,
        "server.port": 5,
        "server.log_level": 6,
        "models.fallbacks": 9,
        "models.attempts": 14,
        "providers.openai.api_key": 17,
        "providers.openai.base_url": 20,
    }
    settings = resolve({}, {}, given).settings
    assert (settings.port, settings.model_fallbacks) == (9000, ("openai/gpt-4o", "kelpie/demo"))
    assert settings.openai_api_key == "[agents]\nblock_limit = 5", "a text that looks like a heading is a text"


def test_a_wrong_value_names_file_line_and_key() -> None:
    with pytest.raises(ConfigurationError) as error:
        resolve({}, {}, parse("\n[server]\n# here:\nport = 70000\n", "/etc/kelpie.toml"))
    assert str(error.value) == "/etc/kelpie.toml line 4, server.port: 70000 is out of range; use 0 to 65535"


@pytest.mark.parametrize(
    ("text", "line", "meant"),
    [
        ("[server]\nprot = 1\n", 2, "server.port"),
        ("[sever]\nport = 1\n", 2, "server.port"),
        ("port = 1\n", 1, "server.port"),
        ("[agents]\n\nblock_limits = 4\n", 3, "agents.block_limit"),
        ("[server]\nblock_limit = 4\n", 2, "agents.block_limit"),
        ("[providers.openai]\nkey = 'x'\n", 2, "providers.openai.api_key"),
        ("[openai]\napi_key = 'x'\n", 2, "providers.openai.api_key"),
        ("[server]\nport = {low = 1}\n", 2, "server.port"),
        ("server = {port = 1, hots = 'x'}\n", 1, "server.host"),
        ('[server]\nhots = """\na\nb"""\n', 2, "server.host"),
    ],
)
def test_an_unknown_key_is_refused_with_its_line_and_the_nearest_name(text: str, line: int, meant: str) -> None:
    told = refused(text)
    assert told.startswith(f"kelpie.toml line {line}: there is no setting")
    assert f"did you mean '{meant}'?" in told


@pytest.mark.parametrize("text", ["[zzz]\n", "[[zzz]]\nq = 1\n", "zzz = 1\n", "[agents]\nnope = 1\n"])
def test_what_is_like_nothing_is_refused_with_where_to_look(text: str) -> None:
    assert "`kelpie config show --all` lists the settings" in refused(text)


def test_an_empty_section_that_is_known_is_fine() -> None:
    assert parse("[server]\n[providers]\n[providers.openai]\n", "kelpie.toml") == {}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[server]\nport = 1\nport = 2\nhost = 'x'\n", 3),
        ("[server]\nport = 9\nhost =\n[agents]\n", 3),
        ("[server]\n[agents]\n[server]\nport = 1\n", 3),
        ("[models]\nfallbacks = ['a',\n'b'\nattempts = 3\n", 2),
        ("port 9000\n", 1),
        ("[server]\nhost = 'x\n", 2),
        ('[server]\nhost = """x\n\n', 2),
    ],
)
def test_what_is_not_toml_is_refused_with_the_line_of_the_fault(text: str, line: int) -> None:
    told = refused(text)
    assert told.startswith(f"kelpie.toml line {line}: this is not TOML")
    assert told.count("line ") == 1, "one line is told, not two"


@given(st.lists(st.sampled_from(sorted(KEYS)), unique=True), st.lists(st.sampled_from(["", "# c", "  "]), min_size=60))
def test_lines_are_right_whatever_stands_between(keys: list[str], between: list[str]) -> None:
    text, wanted = "", {}
    for key, filling in zip(keys, between, strict=False):
        text += f"{filling}\n"
        wanted[key] = text.count("\n") + 1
        text += f"{key} = 'x'\n"
    found = parse(text, "f")
    assert {key: each.where for key, each in found.items()} == {
        key: f"f line {line}, {key}" for key, line in wanted.items()
    }
