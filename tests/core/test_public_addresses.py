"""Which addresses belong to the internet: none of the special purposes that IANA lists as not globally reachable."""

import pytest

from kelpie.core.errors import InvalidInput
from kelpie.core.public_addresses import is_public
from kelpie.core.tools.mcp_servers import check_address

PUBLIC = [
    "8.8.8.8", "93.184.216.34", "192.0.1.1", "192.88.98.255", "192.88.100.0", "168.63.129.17", "2606:2800:220:1::1",
    "2001:4860:4860::8888", "2001:200::1", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::808:808",
]  # fmt: skip
NOT_PUBLIC = [
    "0.1.2.3", "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.0.0.1", "192.0.0.8",
    "192.0.0.170", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.51.100.1",
    "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "168.63.129.16",
    "::", "::1", "::8.8.8.8", "::ffff:10.0.0.1", "::ffff:192.88.99.1", "64:ff9b::a00:1", "64:ff9b:1::1", "100::1",
    "100:0:0:1::1", "2001::1", "2001:0:808:808::f7f7:f7f7", "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1",
    "2002:a00:1::", "3fff::1", "3fff:fff::1", "5f00::1", "fc00::1", "fd00::1", "fe80::1%eth0", "fec0::1", "feff::1",
    "ff02::1", "4000::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_of_the_internet(address: str) -> None:
    assert is_public(address)
    host = f"[{address}]" if ":" in address else address
    assert check_address("server_url", f"http://{host}/mcp")


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_addresses_for_special_purposes(address: str) -> None:
    assert not is_public(address)
    host = f"[{address.partition('%')[0]}]" if ":" in address else address
    with pytest.raises(InvalidInput, match="Non-public IP"):
        check_address("server_url", f"http://{host}/mcp")
