"""Which hosts are this machine, and what a browser's Origin is."""

import pytest

from kelpie.core.access.hosts import is_loopback, origin_of


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "::1", "127.255.0.254"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "0.0.0.0",
        "::",
        "10.0.0.1",
        "127.0.0.1.evil.example",
        "127.0.0",
        "127.0.0.256",
        "127.0.0.01",
        "::2",
        "127",
    ],
)
def test_not_this_machine(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://app.example", "https://app.example"),
        ("https://APP.example:443/path?x", "https://app.example"),
        ("http://app.example:80", "http://app.example"),
        ("http://app.example:443", "http://app.example:443"),
        ("http://[::1]:3000/", "http://[::1]:3000"),
        ("app.example", None),
        ("ftp://app.example", None),
        ("https://", None),
        ("https://u@app.example", None),
        ("https://app.example:x", None),
        ("null", None),
        ("http://[", None),
        ("http://[x]", None),
        ("", None),
    ],
)
def test_origins(url: str, origin: str | None) -> None:
    assert origin_of(url) == origin
