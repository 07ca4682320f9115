"""What every test run shares: the plain last line that says how it went."""

from typing import Any

import pytest

_FAILED = ("failed", "error")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the output with one plain line of counts, after everything pytest itself prints."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    counts = {name: len(reporter.stats.get(name, [])) for name in ("passed", "failed", "error", "skipped", "xfailed")}
    failed = sum(counts[name] for name in _FAILED)
    expected = f" ({counts['xfailed']} more failed as expected)" if counts["xfailed"] else ""
    print(f"{counts['passed']} passed, {failed} failed, {counts['skipped']} skipped{expected}", flush=True)
