"""A page in a real browser that a person uses. It remembers what must never happen: a request to another origin, a
violation of the page's policy, an error in the console, an uncaught error.
"""

import re
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT_MS = 20_000  # the machine may be busy


class Watched:
    """A page of the server at `url`. `check` fails the test with everything that must not have happened."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.url = url
        self.problems: list[str] = []
        self._expected: list[re.Pattern[str]] = []
        self.page: Page = context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self._note(f"uncaught: {error}"))
        self.page.on("request", self._asked)

    def open(self, place: str = "") -> Page:
        """Opens an address of the dashboard, such as `#/agents`."""
        self.page.goto(f"{self.url.rstrip('/')}/{place}")
        return self.page

    def expect(self, pattern: str) -> None:
        """Says that errors which match the pattern belong to this test."""
        self._expected.append(re.compile(pattern))

    def check(self) -> None:
        found = [each for each in self.problems if not any(known.search(each) for known in self._expected)]
        assert found == [], "\n".join(found)

    def _asked(self, request: Request) -> None:
        if urlsplit(request.url).scheme not in ("data", "blob") and _origin(request.url) != _origin(self.url):
            self._note(f"request to another origin: {request.url}")

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._note(f"console {message.type}: {message.text} ({message.location.get('url', '')})")

    def _note(self, problem: str) -> None:
        self.problems.append(problem)


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc
