"""Lists of hosts that code may reach."""

import pytest

from kelpie.core.errors import InvalidInput
from kelpie.core.tools.egress_rules import ENTRIES_MAX, allows, entries


@pytest.mark.parametrize(
    ("listed", "host", "port", "open_"),
    [
        ("example.com", "example.com", 443, True),
        ("example.com", "EXAMPLE.com.", 80, True),
        ("example.com", "example.com", 8080, False),
        ("example.com", "a.example.com", 443, False),
        ("example.com", "example.com.evil.net", 443, False),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "evilexample.com", 443, False),
        ("example.com:8443", "example.com", 8443, True),
        ("example.com:8443", "example.com", 443, False),
        ("*", "anything.net", 443, True),
        ("*", "anything.net", 22, False),
        ("[2001:db8::1]", "2001:db8::1", 443, True),
        ("10.0.0.1", "10.0.0.1", 80, True),
    ],
)
def test_an_entry_covers_its_host_and_no_other(listed: str, host: str, port: int, open_: bool) -> None:
    assert allows(entries([listed]), host, port) is open_


def test_an_empty_list_opens_nothing() -> None:
    assert not allows((), "example.com", 443)


@pytest.mark.parametrize(
    "text", ["", "http://example.com", "a b", "example.com:0", "example.com:70000", "*x.com", "a/b"]
)
def test_what_is_no_host_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a host"):
        entries([text])


def test_a_list_is_bounded() -> None:
    with pytest.raises(InvalidInput, match="at most"):
        entries([f"h{number}.com" for number in range(ENTRIES_MAX + 1)])
