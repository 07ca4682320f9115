"""Limits and chains as operators write them."""

import pytest

from kelpie.core.errors import ConfigurationError
from kelpie.core.models.provider_limits import ProviderLimits, parse_handles, parse_limits


def test_limits():
    found = parse_limits("X", ["openai: calls=8 requests=500 tokens=200000 dollars=2.5", " ollama:calls=1 "])
    assert found == {"openai": ProviderLimits(8, 500, 200_000, 2.5), "ollama": ProviderLimits(calls=1)}


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("nonsense", "has no provider or no limit"),
        ("openai:", "has no provider or no limit"),
        (": calls=1", "has no provider or no limit"),
        ("openai: call=1", "'call' is not a limit; use calls, requests, tokens, dollars"),
        ("openai: calls=0", "calls must be a number above 0, not '0'"),
        ("openai: calls=-1", "calls must be a number above 0"),
        ("openai: tokens=many", "tokens must be a number above 0, not 'many'"),
        ("openai: dollars=nan", "dollars must be a number above 0"),
        ("openai: requests=1.5", "requests must be a whole number, not 1.5"),
    ],
)
def test_wrong_limits_name_the_setting_and_the_remedy(entry: str, told: str):
    with pytest.raises(ConfigurationError) as caught:
        parse_limits("KELPIE_PROVIDER_LIMITS", [entry])
    assert caught.value.setting == "KELPIE_PROVIDER_LIMITS" and told in caught.value.remedy


def test_handles():
    assert parse_handles("X", [" a/b ", "c/d/e"]) == ("a/b", "c/d/e")
    for wrong in ("a", "/b", "a/", ""):
        with pytest.raises(ConfigurationError, match="is not a handle"):
            parse_handles("X", [wrong])
