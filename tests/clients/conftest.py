"""What the tests of real clients share: a scripted model, a server that asks it, and a proxy in front of the server."""

from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import model, server
from tests.acceptance.served import Served
from tests.cutting_proxy import CuttingProxy, cutting_proxy

__all__ = ["model", "proxy", "server"]


@pytest.fixture
def proxy(server: Served) -> Iterator[CuttingProxy]:
    with cutting_proxy(server.url) as made:
        yield made
