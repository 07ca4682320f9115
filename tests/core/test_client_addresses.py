"""Who the client of a request is: only what trusted proxies wrote is believed."""

import pytest

from kelpie.core.access.client_addresses import HOPS_MAX, TrustedProxies, network_of
from kelpie.core.errors import ConfigurationError
from kelpie.core.settings.settings import Settings

PROXIES = TrustedProxies(["10.0.0.0/24", "192.168.7.7", "fd00::/8"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.1", ["8.8.8.8"], "8.8.8.8"),
        ("10.0.0.1", ["1.1.1.1, 8.8.8.8"], "8.8.8.8"),
        ("10.0.0.1", ["1.1.1.1, 8.8.8.8, 10.0.0.2,192.168.7.7"], "8.8.8.8"),
        ("10.0.0.1", ["1.1.1.1", "8.8.8.8, 10.0.0.2"], "8.8.8.8"),
        ("::ffff:10.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("fd00::5", ["[2001:db8::1]:443"], "2001:db8::1"),
        ("10.0.0.1", ["8.8.8.8:1234"], "8.8.8.8"),
        ("10.0.0.1", ["10.0.0.7, 10.0.0.2"], "10.0.0.7"),
        ("10.0.0.1", ["::ffff:8.8.8.8"], "8.8.8.8"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", [""], "10.0.0.1"),
        ("10.0.0.1", ["unknown"], "10.0.0.1"),
        ("10.0.0.1", ["8.8.8.8, _hidden"], "10.0.0.1"),
        ("10.0.0.1", ["not an address, 8.8.8.8"], "8.8.8.8"),
        ("10.0.0.1", ["8.8.8.8" * 1000], "10.0.0.1"),
        ("10.0.0.1", ["8.8.8.8" + ", 10.0.0.2" * HOPS_MAX], "10.0.0.2"),
        ("127.0.0.1", ["8.8.8.8"], "127.0.0.1"),
        ("10.0.1.1", ["8.8.8.8"], "10.0.1.1"),
        ("", ["8.8.8.8"], ""),
    ],
)
def test_the_rightmost_address_that_is_no_trusted_proxy_is_the_client(
    peer: str, forwarded: list[str], client: str
) -> None:
    assert PROXIES.client(peer, forwarded) == client


def test_without_named_proxies_nobody_is_trusted() -> None:
    assert Settings().trusted_proxies == ()
    assert TrustedProxies(()).client("127.0.0.1", ["8.8.8.8"]) == "127.0.0.1"


def test_a_network_of_ipv6_addresses_is_one_client() -> None:
    assert network_of("2001:db8:1:2::1") == network_of("2001:db8:1:2:ffff::9") != network_of("2001:db8:1:3::1")
    assert network_of("::ffff:10.0.0.7") == network_of("10.0.0.7") != network_of("10.0.0.8")
    assert network_of("fe80::1%eth0") == "fe80::/64"
    assert network_of("testclient") == "testclient"


@pytest.mark.parametrize("wrong", ["proxy.example", "10.0.0.0/33", "10.0.0.5/24", "*"])
def test_a_proxy_that_is_no_address_is_refused_with_its_setting(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=r"KELPIE_TRUSTED_PROXIES: .* is not an address"):
        Settings.from_environment({"KELPIE_TRUSTED_PROXIES": f"10.0.0.1, {wrong}"})
