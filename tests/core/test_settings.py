"""The table of settings: each name reaches its field, and each wrong value is refused with its place and the remedy."""

from dataclasses import fields
from typing import Any

import pytest

from kelpie.core.errors import ConfigurationError
from kelpie.core.settings.settings import KEYS, SENT_TO, SETTINGS, VARIABLES, Settings, resolve
from kelpie.core.settings.sources.precedence import SettingSource, Source

KINDS = {name: spec.kind for name, spec in SETTINGS.items()}
# A text that is a valid value of a setting and not its default, and the value it stands for.
SPECIAL: dict[str, tuple[str, Any]] = {
    "sandbox_isolation": ("none", "none"),
    "embedding_precision": ("float32", "float32"),
    "port": ("9000", 9000),
    "log_level": ("debug", "debug"),
    "context_window": ("4000", 4000),
    "log_bytes_max": ("2048", 2048),
    "provider_limits": ("openai: calls=8, ollama: calls=1", ("openai: calls=8", "ollama: calls=1")),
    "model_prices": ("openai/gpt-4o=2.5/10", ("openai/gpt-4o=2.5/10",)),
    "context_window_unknown": ("4000", 4000),
    "openai_responses": ("always", "always"),
    "tools_allow": ("memory_*, kind:custom", ("memory_*", "kind:custom")),
    "organization_share": ("0.5", 0.5),
    "tool_egress": ("example.com, *.example.org", ("example.com", "*.example.org")),
    "tool_return_chars": ("60000", 60_000),
    "tools_deny": ("shell, capability:network", ("shell", "capability:network")),
    "allowed_origins": ("https://a.example, http://b.example:81", ("https://a.example", "http://b.example:81")),
    "web_search_provider": ("exa", "exa"),
    "trusted_proxies": ("10.0.0.5, 10.1.0.0/24", ("10.0.0.5", "10.1.0.0/24")),
}
BY_KIND: dict[type, tuple[str, Any]] = {
    str: ("other/value", "other/value"),
    int: ("7", 7),
    float: ("2.5", 2.5),
    bool: ("true", True),
    tuple: ("a/b, c/d", ("a/b", "c/d")),
}
WHOLE = sorted(name for name, kind in KINDS.items() if kind is int)
SECONDS = sorted(name for name, spec in SETTINGS.items() if spec.seconds)
BOUNDED = sorted(name for name, spec in SETTINGS.items() if spec.low is not None)


ADDRESS = ("http://other:81/v1", "http://other:81/v1")


def sample(name: str) -> tuple[str, Any]:
    by_kind = ADDRESS if name.endswith("_base_url") else BY_KIND[KINDS[name]]
    return SPECIAL.get(name) or by_kind


def variable(name: str) -> str:
    return SETTINGS[name].env[0]


def refusal(variable: str, value: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as refused:
        Settings.from_environment({variable: value})
    return refused.value


def test_every_field_is_a_row_of_the_table_with_names_of_its_own() -> None:
    assert list(SETTINGS) == [field.name for field in fields(Settings)]
    keys = [spec.key for spec in SETTINGS.values()]
    variables = [name for spec in SETTINGS.values() for name in spec.env]
    assert len(set(keys)) == len(keys) == len(KEYS)
    assert len(set(variables)) == len(variables) == len(VARIABLES)
    assert all(spec.env and spec.help.endswith(".") and "." in spec.key for spec in SETTINGS.values())


def test_groups_of_settings_do_not_inherit_from_each_other() -> None:
    assert [group.__bases__ for group in Settings.__bases__] == [(object,)] * len(Settings.__bases__)
    declared = [field.name for group in reversed(Settings.__bases__) for field in fields(group)]
    assert declared == list(SETTINGS) and not Settings.__annotations__


def test_every_number_has_bounds() -> None:
    numbers = [spec for spec in SETTINGS.values() if spec.kind in (int, float)]
    assert all(spec.seconds or (spec.low is not None and spec.high is not None) for spec in numbers)


def test_every_key_and_the_password_are_secrets() -> None:
    assert {name for name, spec in SETTINGS.items() if spec.secret} == {
        name for name in SETTINGS if name.endswith(("api_key", "password", "encryption_key"))
    }


@pytest.mark.parametrize(
    ("given", "protected"),
    [
        ({}, False),
        ({"host": "localhost"}, False),
        ({"host": "127.1.2.3"}, False),
        ({"host": "::1"}, False),
        ({"password": "x"}, True),
        ({"secure": True}, True),
        ({"host": "0.0.0.0"}, True),
        ({"host": "::"}, True),
        ({"host": ""}, True),
        ({"host": "192.168.1.2"}, True),
        ({"host": "127.0.0.1.example.org"}, True),
        ({"host": "example.org"}, True),
    ],
)
def test_only_a_server_that_nobody_else_can_reach_may_be_open(given: dict[str, Any], protected: bool) -> None:
    assert Settings(**given).protected is protected


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_environment({}) == Settings()


def test_the_defaults_are_safe_and_within_their_own_bounds() -> None:
    settings = Settings()
    assert settings.host == "127.0.0.1", "nobody else may reach a server that nobody configured"
    assert not [name for name, spec in SETTINGS.items() if spec.secret and getattr(settings, name)]
    assert settings.default_model is None, "works without any key"
    for name, spec in SETTINGS.items():
        default = getattr(settings, name)
        if default is not None and spec.kind is not tuple:
            assert spec.from_toml("default", default) == default


@pytest.mark.parametrize("name", sorted(VARIABLES))
def test_a_variable_sets_its_field_and_no_other(name: str) -> None:
    field = VARIABLES[name]
    text, value = sample(field)
    found = resolve({}, {name: text})
    assert getattr(found.settings, field) == value and type(getattr(found.settings, field)) is type(value)
    assert found.origins[field].source is Source.environment and str(found.origins[field]) == name
    others = [other for other in SETTINGS if other != field]
    assert all(getattr(found.settings, other) == getattr(Settings(), other) for other in others)
    assert all(str(found.origins[other]) == "default" for other in others)


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_flag_goes_before_variable_before_file_before_default(name: str) -> None:
    spec, (text, value) = SETTINGS[name], sample(name)
    default = getattr(Settings(), name)
    in_file = {spec.key: SettingSource(list(value) if spec.kind is tuple else value, "kelpie.toml line 3")}
    shown = ", ".join(default) if spec.kind is tuple else str(default)
    below = {spec.env[0]: shown} if default not in (None, ()) else {}
    assert getattr(resolve({}, {}, in_file).settings, name) == value
    assert str(resolve({}, {}, in_file).origins[name]) == "kelpie.toml line 3"
    if below:
        assert getattr(resolve({}, below, in_file).settings, name) == default, "the variable is heard before the file"
    flagged = resolve({name: ("--set", text)}, below)
    assert (getattr(flagged.settings, name), flagged.origins[name].source) == (value, Source.flag)


@pytest.mark.parametrize("name", sorted(VARIABLES))
def test_an_empty_variable_counts_as_not_set(name: str) -> None:
    assert Settings.from_environment({name: ""}) == Settings()


def test_of_two_names_the_first_counts() -> None:
    both = {"OPENAI_API_BASE": "http://old", "OPENAI_BASE_URL": "http://new"}
    assert Settings.from_environment(both).openai_base_url == "http://new"
    ours = {"LETTA_DEFAULT_LLM_HANDLE": "openai/old", "KELPIE_DEFAULT_MODEL": "openai/new"}
    assert Settings.from_environment(ours).default_model == "openai/new"


def test_foreign_variables_are_left_alone() -> None:
    assert Settings.from_environment({"PATH": "/bin", "PORT": "x", "KELPIE_UNKNOWN": "x"}) == Settings()


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("text", ["many", "1.5", "0x10", "1 2", "1e3", "-", "nan"])
def test_what_is_not_a_whole_number_is_refused(name: str, text: str) -> None:
    error = refusal(variable(name), text)
    assert error.setting == variable(name)
    assert f"'{text}' is not a whole number" in str(error)


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize("text", ["long", "1,5", "5s", "-"])
def test_what_is_not_a_number_is_refused(name: str, text: str) -> None:
    error = refusal(variable(name), text)
    assert error.setting == variable(name)
    assert f"'{text}' is not a number" in str(error)


@pytest.mark.parametrize("name", BOUNDED)
def test_a_number_beyond_its_bounds_is_refused_with_the_bounds(name: str) -> None:
    spec = SETTINGS[name]
    assert spec.low is not None and spec.high is not None
    for value in (spec.low - 1, spec.high + 1):
        error = refusal(variable(name), f"{value:.16g}")
        assert error.setting == variable(name)
        assert f"{spec.low:.16g} to {spec.high:.16g}" in error.remedy
    for value in (spec.low, spec.high):
        assert getattr(Settings.from_environment({variable(name): f"{value:.16g}"}), name) == value


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize("text", ["0", "-0.1", "-inf", "inf", "nan", "1e9"])
def test_a_time_that_is_not_positive_or_never_ends_is_refused(name: str, text: str) -> None:
    error = refusal(variable(name), text)
    assert error.setting == variable(name)
    assert "more than 0 seconds" in error.remedy


@pytest.mark.parametrize("text", ["verbose", "INFO", "trace", "1"])
def test_an_unknown_log_level_is_refused(text: str) -> None:
    error = refusal("KELPIE_LOG_LEVEL", text)
    assert error.setting == "KELPIE_LOG_LEVEL"
    assert "debug, info, warning or error" in error.remedy


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("server.port", "9000", "'9000' is not a whole number"),
        ("server.port", True, "true is not a whole number"),
        ("server.port", 80.5, "80.5 is not a whole number"),
        ("server.port", 70_000, "0 to 65535"),
        ("server.host", 1, "1 is not text; write it in quotes"),
        ("agents.idle_seconds", "10", "'10' is not a number"),
        ("agents.idle_seconds", 0, "more than 0 seconds"),
        ("models.fallbacks", ["a", 1], "is not a list of texts"),
        ("models.fallbacks", "a", "is not a list of texts"),
        ("models.pull_missing", "yes", "is not a switch; use true or false"),
    ],
)
def test_a_wrong_value_of_a_file_is_refused_with_its_place(key: str, value: Any, told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        resolve({}, {}, {key: SettingSource(value, "kelpie.toml line 7")})
    assert refused.value.setting == "kelpie.toml line 7"
    assert told in refused.value.remedy


ADDRESSES = sorted(name for name in SETTINGS if name.endswith("_base_url"))


@pytest.mark.parametrize("name", ADDRESSES)
@pytest.mark.parametrize(
    "text", ["localhost:11434", "ftp://host", "http://", "http://host:port", "http://h:99999", "x"]
)
def test_what_is_no_address_is_refused(name: str, text: str) -> None:
    error = refusal(variable(name), text)
    assert error.setting == variable(name) and "use a form such as http://" in error.remedy


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("models.limits", ["openai calls=8"], "has no provider"),
        ("models.prices", ["openai/gpt-4o"], "is not a price"),
        ("models.fallbacks", ["ollama/qwen3:8b", "gpt-4o"], "'gpt-4o' is not a handle"),
        ("agents.default_model", "gpt-4o", "'gpt-4o' is not a handle"),
        ("agents.default_embedding", "small", "'small' is not a handle"),
        ("providers.ollama.base_url", "localhost:11434", "'localhost:11434' is not a URL"),
    ],
)
def test_a_text_of_the_wrong_form_is_refused_with_its_place(key: str, value: Any, told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        resolve({}, {}, {key: SettingSource(value, "kelpie.toml line 7")})
    assert refused.value.setting == "kelpie.toml line 7" and told in refused.value.remedy
    text = ", ".join(value) if isinstance(value, list) else value
    field = KEYS[key]
    assert told in refusal(variable(field), text).remedy


def test_a_secret_of_the_wrong_kind_is_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as refused:
        resolve({}, {}, {"providers.openai.api_key": SettingSource(["sk-secret"], "kelpie.toml line 7")})
    assert "sk-secret" not in str(refused.value)


def test_a_whole_number_is_good_enough_for_a_time() -> None:
    found = resolve({}, {}, {"agents.idle_seconds": SettingSource(30, "kelpie.toml line 1")}).settings.idle_s
    assert (found, type(found)) == (30.0, float)


def test_a_later_error_names_the_place_of_the_value_and_not_the_variable_it_could_come_from() -> None:
    error = ConfigurationError("KELPIE_HOST", "no passwords")
    placed = resolve({}, {}, {"server.host": SettingSource("0.0.0.0", "kelpie.toml line 2")}).located(error)
    assert str(placed) == "kelpie.toml line 2: no passwords"
    assert str(resolve({"host": ("--host", "0.0.0.0")}, {}).located(error)) == "--host: no passwords"
    assert str(resolve({}, {}).located(error)) == "KELPIE_HOST: no passwords"
    other = ConfigurationError("something else", "wrong")
    assert resolve({}, {}).located(other) is other


# --- a file cannot take a key of the environment to an address of its own -------------------------------------------


def test_every_key_with_an_address_of_its_own_is_looked_after() -> None:
    assert {
        name: name.removesuffix("api_key") + "base_url"
        for name, spec in SETTINGS.items()
        if spec.secret and name.removesuffix("api_key") + "base_url" in SETTINGS
    } == SENT_TO
    assert {"openai_api_key", "anthropic_api_key", "azure_api_key"} <= set(SENT_TO)


@pytest.mark.parametrize("key", sorted(SENT_TO))
def test_a_key_from_elsewhere_is_not_sent_to_an_address_that_only_the_file_names(key: str) -> None:
    address = SENT_TO[key]
    in_file = {SETTINGS[address].key: SettingSource("https://thief.example", "kelpie.toml line 4")}
    for flags, env, named in (
        ({}, {variable(key): "sk-mine"}, variable(key)),
        ({key: ("--set key", "sk-mine")}, {}, "--set key"),
    ):
        with pytest.raises(ConfigurationError) as refused:
            resolve(flags, env, in_file)
        told = str(refused.value)
        assert told.startswith("kelpie.toml line 4: ") and named in told and variable(address) in told
        assert "sk-mine" not in told


@pytest.mark.parametrize("key", sorted(SENT_TO))
def test_a_key_goes_where_whoever_gave_it_says(key: str) -> None:
    address = SENT_TO[key]
    mine, theirs = "https://mine.example", SettingSource("https://file.example", "kelpie.toml line 4")
    in_file = {SETTINGS[address].key: theirs}
    overruled = resolve({}, {variable(key): "sk", variable(address): mine}, in_file).settings
    assert getattr(overruled, address) == mine, "the variable is heard before the file"
    flagged = resolve({address: ("--set", mine)}, {variable(key): "sk"}, in_file).settings
    assert getattr(flagged, address) == mine
    both = in_file | {SETTINGS[key].key: SettingSource("sk-file", "kelpie.toml line 5")}
    assert getattr(resolve({}, {}, both).settings, address) == theirs.value, "key and address stand in one file"
    assert getattr(resolve({}, {}, in_file).settings, address) == theirs.value, "there is no key to send"
    with pytest.raises(ConfigurationError):
        resolve({}, {variable(key): "sk"}, both)
