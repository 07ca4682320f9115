"""OLLAMA_HOST in every form that Ollama accepts."""

import pytest

from kelpie.core.errors import ConfigurationError
from kelpie.core.models.ollama_host import base_url
from kelpie.core.settings.settings import Settings


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:11434"),
        ("gpu-box", "http://gpu-box:11434"),
        ("gpu-box:9999", "http://gpu-box:9999"),
        (":5000", "http://127.0.0.1:5000"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8000", "http://127.0.0.1:8000"),
        ("http://0.0.0.0:8000", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:11434"),
        ("[::]:8000", "http://[::1]:8000"),
        ("fe80::1", "http://[fe80::1]:11434"),
        ("[fe80::1]:8000", "http://[fe80::1]:8000"),
        ("http://gpu-box", "http://gpu-box:80"),
        ("https://models.example.com", "https://models.example.com:443"),
        ("https://example.com/ollama/", "https://example.com:443/ollama"),
        (' "gpu-box:1234" ', "http://gpu-box:1234"),
        ("gpu-box:none", "http://gpu-box:11434"),
        ("gpu-box:70000", "http://gpu-box:11434"),
    ],
)
def test_forms(text: str, url: str) -> None:
    assert base_url(text) == url


@pytest.mark.parametrize("text", ["ftp://gpu-box", "http://", "gpu box"])
def test_a_text_that_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"OLLAMA_HOST.*127\.0\.0\.1:11434"):
        Settings.from_environment({"OLLAMA_HOST": text})
