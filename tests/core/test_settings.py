"""What the environment sets: each variable reaches its setting, and each wrong value is refused by name."""

from dataclasses import fields
from typing import Any

import pytest

from kelpie.core.errors import ConfigurationError
from kelpie.core.settings import Settings

GOOD: list[tuple[str, str, str, Any]] = [
    ("KELPIE_HOST", "0.0.0.0", "host", "0.0.0.0"),
    ("KELPIE_PORT", "9000", "port", 9000),
    ("KELPIE_PORT", "0", "port", 0),
    ("KELPIE_PORT", "65535", "port", 65535),
    ("KELPIE_DATA_DIR", "/srv/kelpie", "data_dir", "/srv/kelpie"),
    ("KELPIE_DATABASE_URL", "postgresql://db/kelpie", "database_url", "postgresql://db/kelpie"),
    ("KELPIE_LOG_LEVEL", "debug", "log_level", "debug"),
    ("KELPIE_DEFAULT_MODEL", "openai/gpt-4o", "default_model", "openai/gpt-4o"),
    ("OPENAI_API_KEY", "sk-test", "openai_api_key", "sk-test"),
    ("OPENAI_BASE_URL", "http://localhost:1234/v1", "openai_base_url", "http://localhost:1234/v1"),
    ("OPENAI_API_BASE", "http://localhost:1234/v1", "openai_base_url", "http://localhost:1234/v1"),
    ("KELPIE_MAILBOX_SIZE", "1", "mailbox_size", 1),
    ("KELPIE_HOT_AGENTS_MAX", "10", "hot_agents_max", 10),
    ("KELPIE_IDLE_SECONDS", "0.5", "idle_s", 0.5),
    ("KELPIE_DRAIN_SECONDS", "5", "drain_s", 5.0),
    ("KELPIE_BODY_BYTES_MAX", "1024", "body_bytes_max", 1024),
    ("KELPIE_MODEL_TIMEOUT_SECONDS", "30", "model_timeout_s", 30.0),
    ("KELPIE_MODEL_ATTEMPTS", "1", "model_attempts", 1),
]
WHOLE = (
    "KELPIE_PORT",
    "KELPIE_MAILBOX_SIZE",
    "KELPIE_HOT_AGENTS_MAX",
    "KELPIE_BODY_BYTES_MAX",
    "KELPIE_MODEL_ATTEMPTS",
)
SECONDS = ("KELPIE_IDLE_SECONDS", "KELPIE_DRAIN_SECONDS", "KELPIE_MODEL_TIMEOUT_SECONDS")


def refusal(variable: str, value: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as refused:
        Settings.from_environment({variable: value})
    return refused.value


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_environment({}) == Settings()


def test_the_defaults_are_safe() -> None:
    settings = Settings()
    assert settings.host == "127.0.0.1", "nobody else may reach a server that nobody configured"
    assert settings.openai_api_key is None
    assert settings.default_model == "kelpie/demo", "works without any key"


@pytest.mark.parametrize(("variable", "text", "field", "value"), GOOD)
def test_a_variable_sets_its_field_and_no_other(variable: str, text: str, field: str, value: Any) -> None:
    settings = Settings.from_environment({variable: text})
    assert getattr(settings, field) == value
    assert type(getattr(settings, field)) is type(value)
    others = [other.name for other in fields(Settings) if other.name != field]
    assert all(getattr(settings, other) == getattr(Settings(), other) for other in others)


def test_every_setting_can_be_set_and_is_tested_here() -> None:
    assert {field for _, _, field, _ in GOOD} == {field.name for field in fields(Settings)}


@pytest.mark.parametrize("variable", sorted({variable for variable, _, _, _ in GOOD}))
def test_an_empty_variable_counts_as_not_set(variable: str) -> None:
    assert Settings.from_environment({variable: ""}) == Settings()


def test_the_newer_name_of_the_openai_address_wins() -> None:
    both = {"OPENAI_API_BASE": "http://old", "OPENAI_BASE_URL": "http://new"}
    assert Settings.from_environment(both).openai_base_url == "http://new"


def test_foreign_variables_are_left_alone() -> None:
    assert Settings.from_environment({"PATH": "/bin", "PORT": "x", "KELPIE_UNKNOWN": "x"}) == Settings()


@pytest.mark.parametrize("variable", WHOLE)
@pytest.mark.parametrize("text", ["many", "1.5", "0x10", "1 2", "1e3", "-", "nan"])
def test_what_is_not_a_whole_number_is_refused(variable: str, text: str) -> None:
    error = refusal(variable, text)
    assert error.setting == variable
    assert f"'{text}' is not a whole number" in str(error)


@pytest.mark.parametrize("variable", SECONDS)
@pytest.mark.parametrize("text", ["long", "1,5", "5s", "-"])
def test_what_is_not_a_number_is_refused(variable: str, text: str) -> None:
    error = refusal(variable, text)
    assert error.setting == variable
    assert f"'{text}' is not a number" in str(error)


@pytest.mark.parametrize("text", ["-1", "65536", "99999999"])
def test_a_port_that_is_none_is_refused(text: str) -> None:
    error = refusal("KELPIE_PORT", text)
    assert error.setting == "KELPIE_PORT"
    assert text in error.remedy and "0 to 65535" in error.remedy


@pytest.mark.parametrize("variable", [name for name in WHOLE if name != "KELPIE_PORT"])
@pytest.mark.parametrize("text", ["0", "-1"])
def test_a_bound_below_one_is_refused(variable: str, text: str) -> None:
    error = refusal(variable, text)
    assert error.setting == variable
    assert "at least 1" in error.remedy


@pytest.mark.parametrize("variable", SECONDS)
@pytest.mark.parametrize("text", ["0", "-0.1", "-inf"])
def test_a_time_that_is_not_positive_is_refused(variable: str, text: str) -> None:
    error = refusal(variable, text)
    assert error.setting == variable
    assert "more than 0 seconds" in error.remedy


@pytest.mark.parametrize("variable", SECONDS)
def test_a_time_that_is_not_a_number_is_refused(variable: str) -> None:
    assert refusal(variable, "nan").setting == variable


@pytest.mark.parametrize("text", ["verbose", "INFO", "trace", "1"])
def test_an_unknown_log_level_is_refused(text: str) -> None:
    error = refusal("KELPIE_LOG_LEVEL", text)
    assert error.setting == "KELPIE_LOG_LEVEL"
    assert "debug, info, warning or error" in error.remedy
