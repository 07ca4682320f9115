"""Accessibility of a page, as axe-core judges it."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.parts import lacks

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
_RUN = """
axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations.map((each) => {
    const where = each.nodes.slice(0, 3).map((node) => `${node.html} ${node.failureSummary}`);
    return `${each.id}: ${each.help} (${where.join("; ")})`;
}))"""


def violations(page: Page) -> list[str]:
    """What is wrong for people who cannot see well or use no mouse (WCAG 2.2 A and AA, and good practice)."""
    if not AXE.exists():
        lacks("browser", "axe-core is not installed")
    session = page.context.new_cdp_session(page)  # past the page's policy, which allows no foreign script
    session.send("Runtime.evaluate", {"expression": AXE.read_text()})
    answer: Any = session.send(
        "Runtime.evaluate",
        {
            "expression": _RUN,
            "awaitPromise": True,
            "returnByValue": True,
        },
    )
    session.detach()
    assert "exceptionDetails" not in answer, answer["exceptionDetails"]
    return answer["result"]["value"]
