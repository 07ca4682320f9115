"""Tests against real providers: those that the environment sets up are run, the others are skipped with what to set.

`make test-live` runs them. `LIVE_MODEL_OPENAI=gpt-4.1` and the like choose a model; otherwise a small one is taken, or
the first that the server lists.
"""

import os
import random
from collections.abc import Iterator
from typing import Any, cast

import pytest

from kelpie.core.settings.settings import SETTINGS, VARIABLES, Settings
from kelpie.llm.provider.interface import ModelInfo
from kelpie.llm.routing.models import Models
from kelpie.llm.routing.providers import ALL_OFFERS
from kelpie.world.clock import SystemClock
from kelpie.world.http.port import NetworkHttp
from kelpie.world.ids import RandomIds
from kelpie.world.processes.processes import SystemProcesses
from kelpie.world.world import World

PROVIDERS = tuple(offer.name for offer in ALL_OFFERS)
REAL_MODEL = "SmolLM2 on this machine"
SMALL = {
    "openai": ("gpt-4.1-mini", "gpt-4o-mini"),
    "anthropic": ("claude-haiku-4-5", "claude-3-5-haiku-latest"),
    "groq": ("llama-3.1-8b-instant",),
    "deepseek": ("deepseek-chat",),
}


def made() -> Models:
    """The models as the server of this environment would have them."""
    world = World(
        SystemClock(), RandomIds(), random.Random(), cast(Any, None), NetworkHttp(), SystemProcesses()
    )  # models need no database
    return Models(world, Settings.from_environment(os.environ))


def live_variables(section: str) -> dict[str, str]:
    """What the environment sets in a section of the settings, for a server that is started with it."""
    ours = [name for name, field in VARIABLES.items() if SETTINGS[field].key.startswith(section)]
    return {name: os.environ[name] for name in ours if os.environ.get(name)}


async def chosen(models: Models, provider: str) -> ModelInfo:
    """The model to test the provider with."""
    listed = {model.name: model for model in await models.all() if model.provider_name == provider}
    assert listed, f"{provider} is set up, but lists no model: {[r.error for r in await models.report()]}"
    named = os.environ.get(f"LIVE_MODEL_{provider.upper()}")
    wanted = (named,) if named else SMALL.get(provider, ())
    for want in wanted:
        if found := next((model for name, model in sorted(listed.items()) if name.startswith(want)), None):
            return found
    assert not named, f"{provider} does not list {named}"
    with_tools = [model for model in listed.values() if model.tools]
    return (with_tools or list(listed.values()))[0]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "provider" in metafunc.fixturenames:
        metafunc.parametrize("provider", PROVIDERS)


@pytest.fixture(autouse=True)
def needs(request: pytest.FixtureRequest) -> None:
    """Skips what the environment does not set up."""
    provider = request.node.callspec.params.get("provider") if hasattr(request.node, "callspec") else None
    remedy = made().absent().get(provider) if provider else None
    if remedy:
        pytest.skip(remedy)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """The last lines: which providers were really asked, and why the others were not."""
    yield
    told = dict(_outcomes(terminalreporter))
    if told:
        terminalreporter.section("live")
    for provider, line in told.items():
        terminalreporter.write_line(f"{provider}: {line}")


def _outcomes(reporter: Any) -> Iterator[tuple[str, str]]:
    found = {kind: _live(reporter.stats.get(kind, [])) for kind in ("passed", "failed", "error", "skipped")}
    for provider in (*PROVIDERS, REAL_MODEL, "web"):
        ran = {kind: len(reports.get(provider, [])) for kind, reports in found.items() if kind != "skipped"}
        skipped = found["skipped"].get(provider, [])
        if any(ran.values()):
            yield provider, "ran, " + ", ".join(f"{count} {kind}" for kind, count in ran.items() if count)
        elif skipped:
            yield provider, f"not run: {skipped[0].longrepr[2].removeprefix('Skipped: ')}"


def _live(reports: list[Any]) -> dict[str, list[Any]]:
    """The reports of tests in this folder, by provider."""
    found: dict[str, list[Any]] = {}
    for report in reports:
        if "tests/live/" in report.nodeid:
            names = report.nodeid.partition("[")[2].rstrip("]").split("-")
            other = REAL_MODEL if "test_real_model" in report.nodeid else "web"
            provider = next((name for name in names if name in PROVIDERS), other)
            found.setdefault(provider, []).append(report)
    return found
