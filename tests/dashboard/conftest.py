"""The dashboard in a real browser against a live server. All files share one browser, and those that count nothing one
server; a file with `OWN_SERVER` has a fresh one."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.acceptance.served import Served, served
from tests.acceptance.wire_model import WireModel, wire_model, wires
from tests.dashboard.watched import FLAGS, WAIT_MS, Watched
from tests.parts import lacks

expect.set_options(timeout=WAIT_MS)

SCREENSHOTS = "KELPIE_TEST_SCREENSHOTS"  # a folder that receives the screenshots of the tests


@pytest.fixture(scope="package")
def model() -> Iterator[WireModel]:
    """A model with a price that sees images; agents of most tests use the demo model instead."""
    with wire_model() as made:
        yield made


@pytest.fixture(scope="package")
def shared_server(tmp_path_factory: pytest.TempPathFactory, model: WireModel) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("data"), **wires(model.url)) as running:
        yield running


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, model: WireModel) -> Iterator[Served]:
    """The shared server; a fresh one for files that say `OWN_SERVER = True`, because they count what a server has."""
    if not getattr(request.module, "OWN_SERVER", False):
        yield request.getfixturevalue("shared_server")
        return
    folder = request.getfixturevalue("tmp_path_factory").mktemp("data")
    with served(folder, **wires(model.url)) as running:
        yield running


@pytest.fixture(scope="module")
def api(server: Served) -> Iterator[httpx.Client]:
    """The API of the server, for what a test needs before a person looks."""
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60, follow_redirects=True) as client:
        yield client


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if shutil.which("chromium") is None:
        lacks("browser")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS))
        yield made
        made.close()


@pytest.fixture
def visit(browser: Browser, server: Served) -> Iterator[Callable[..., Watched]]:
    """Makes watched pages; all of them are checked at the end of the test."""
    made: list[tuple[Any, Watched]] = []

    def make(url: str | None = None, **options: Any) -> Watched:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
        watched = Watched(context, url or server.url)
        made.append((context, watched))
        return watched

    yield make
    for context, _ in made:
        context.close()
    for _, watched in made:
        watched.check()


@pytest.fixture
def watched(visit: Callable[..., Watched]) -> Watched:
    return visit()


@pytest.fixture
def page(watched: Watched) -> Page:
    """The start of the dashboard."""
    return watched.open()


@pytest.fixture
def screenshot(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Page, str], Path]:
    """Keeps a picture of a page as output of the test: in `KELPIE_TEST_SCREENSHOTS`, or in its temporary folder."""
    folder = Path(os.environ.get(SCREENSHOTS) or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)

    def take(page: Page, name: str) -> Path:
        file = folder / f"{name}.png"
        page.screenshot(path=file)
        return file

    return take
