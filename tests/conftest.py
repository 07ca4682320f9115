"""What every test run shares: how examples are drawn, and the plain last lines that say how it went."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import parts

# No time limit per example: machines are noisy. The same examples every time: a red run means a change, not bad luck.
settings.register_profile("kelpie", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kelpie")

_FAILED = ("failed", "error")
_SOAKED = re.compile(r"test_soak\[(?P<scenario>[a-z-]+)-(?P<first>\d+)\.\.(?P<last>\d+)\]")


def pytest_configure() -> None:
    """Refuses a `KELPIE_TEST_REQUIRE` that names an unknown part, before any test runs."""
    parts.required()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips or fails a test that is marked with a part that this machine lacks."""
    parts.look(item)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tells of a soak how many seeds each scenario had, what one of them took, and what all took together."""
    seconds: dict[str, float] = defaultdict(float)
    seeds: dict[str, int] = defaultdict(int)
    for report in [*terminalreporter.stats.get("passed", []), *terminalreporter.stats.get("failed", [])]:
        if report.when == "call" and (found := _SOAKED.search(report.nodeid)):
            seconds[found["scenario"]] += report.duration
            seeds[found["scenario"]] += int(found["last"]) - int(found["first"]) + 1
    if not seconds:
        return
    terminalreporter.section("seeds")
    for scenario, took in sorted(seconds.items()):
        terminalreporter.line(f"{scenario:45} {seeds[scenario]:6} seeds {took / seeds[scenario]:7.2f} s each")
    fired: Counter[tuple[str, str, str]] = Counter()
    for scenario, kind, place, count in _fired(terminalreporter):
        fired[kind, place, scenario] += count
    terminalreporter.section("faults that fired: kind, point, scenario, times")
    for (kind, place, scenario), count in sorted(fired.items()):
        terminalreporter.line(f"{kind:26} {place:26} {scenario:40} {count:8}")
    hours = sum(seconds.values()) / 3600
    terminalreporter.line(f"{sum(seeds.values())} seeds in {hours:.2f} hours of a process, spread over all of them")


def _fired(terminalreporter: Any) -> Iterator[tuple[str, str, str, int]]:
    """The scenario, kind, point and number of firings that each part of a soak has recorded."""
    for report in [*terminalreporter.stats.get("passed", []), *terminalreporter.stats.get("failed", [])]:
        if report.when == "call" and (found := _SOAKED.search(report.nodeid)):
            for kind, place, count in dict(report.user_properties).get("fired", ()):
                yield found["scenario"], kind, place, count


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the output with one plain line of counts, after everything pytest itself prints."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    counts = {name: len(reporter.stats.get(name, [])) for name in ("passed", "failed", "error", "skipped", "xfailed")}
    failed = sum(counts[name] for name in _FAILED)
    expected = f" ({counts['xfailed']} more failed as expected)" if counts["xfailed"] else ""
    print(f"{counts['passed']} passed, {failed} failed, {counts['skipped']} skipped{expected}", flush=True)
