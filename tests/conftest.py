"""What every test run shares: how examples are drawn, and the plain last lines that say how it went."""

import gc
import os
from functools import cache
from typing import Any

import pytest
from httpx._transports import default
from hypothesis import HealthCheck, settings

from tests import parts

# No time limit per example: machines are noisy. The same examples every time: a red run means a change, not bad luck.
settings.register_profile("kelpie", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kelpie")

_FAILED = ("failed", "error")


def pytest_configure() -> None:
    """Refuses a `KELPIE_TEST_REQUIRE` that names an unknown part, before any test runs.

    All clients of httpx, and so those of the SDKs, share what they read of the certificates of this machine: that took
    17 ms of each, and few of them use TLS.

    No garbage is collected until all tests are: every worker imports all of them, and a third of that was looking for
    garbage that imports do not leave.
    """
    parts.required()
    default.create_ssl_context = cache(default.create_ssl_context)
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each worker begins with its part of the long tests, so that none of them is left alone at the end.

    pytest-xdist gives every worker an equal part of the list, and later what others have not begun.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = [item for item in items if item.get_closest_marker("long")]
    others = [item for item in items if not item.get_closest_marker("long")]
    size = len(items) / workers
    items.clear()
    for number in range(workers):
        mine = long[number::workers]
        rest = max(0, round((number + 1) * size) - len(items) - len(mine))
        items += [*mine, *others[:rest]]
        del others[:rest]
    items += others


def pytest_collection_finish() -> None:
    """Collects garbage again, without looking through what was imported, and less often than Python does: tests make
    much that lives until their end."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips or fails a test that is marked with a part that this machine lacks."""
    parts.look(item)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the output with one plain line of counts, after everything pytest itself prints."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    counts = {name: len(reporter.stats.get(name, [])) for name in ("passed", "failed", "error", "skipped", "xfailed")}
    failed = sum(counts[name] for name in _FAILED)
    expected = f" ({counts['xfailed']} more failed as expected)" if counts["xfailed"] else ""
    print(f"{counts['passed']} passed, {failed} failed, {counts['skipped']} skipped{expected}", flush=True)
