"""One running server for all tests of a module that only talk to it."""

from collections.abc import Iterator

import pytest

from tests.cli.live import Live, live


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("running") / "data") as place:
        place.serve()
        yield place
