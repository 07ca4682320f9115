"""The routes section of docs/letta-compatibility.md, made from what the tests know and the app says of itself.

python -m tests.conformance.compatibility        writes it into the page
"""

import re
from pathlib import Path
from typing import Any

from tests.conformance.letta_routes import Route, letta_routes
from tests.server.description import document

PAGE = Path(__file__).parents[2] / "docs" / "letta-compatibility.md"
SECTION = re.compile(r"(?<=^## Routes\n).*?(?=^## )", re.MULTILINE | re.DOTALL)


def shape(path: str) -> str:
    """A path whatever its parameters are called."""
    return "/".join("{}" if part.startswith("{") else part for part in path.split("/"))


def described() -> dict[tuple[str, str], dict[str, Any]]:
    """What the app says of its routes, by method and path."""
    paths = document()["paths"]
    return {(method.upper(), path): about for path, methods in paths.items() for method, about in methods.items()}


def render() -> str:
    ours = described()
    by_shape = {(method, shape(path)): about for (method, path), about in ours.items()}
    routes = letta_routes()
    here = [route for route in routes if route.not_meant is None]
    not_meant = [route for route in routes if route.not_meant is not None]
    letta = {(route.method, shape(route.path)) for route in routes}
    own = {key: about for key, about in ours.items() if (key[0], shape(key[1])) not in letta}
    methods, works = [r for r in routes if r.sdk], [r for r in here if r.sdk]
    return "\n".join(
        (
            "",
            f"Letta 0.16.8 and its cloud had {len(routes)} routes.",
            f"**Kelpie supports {len(here)} ({_share(here, routes)})**; a test calls each of them.",
            f"{len(not_meant)} are not planned.",
            f"Of the {len(methods)} methods of the Python client, **{len(works)} work ({_share(works, methods)})**.",
            "The tests call each of them, with the synchronous and the asynchronous client, and check every response",
            "against the client's own model.",
            "",
            "A route of Letta 0.16.8 that Kelpie does not support returns 501 and the reason. Other unknown routes",
            "return 404. `/latest/…` is another name for `/v1/…`. A running server documents all parameters at",
            "`/docs`.",
            "",
            "### Supported",
            "",
            "| Route | What it does | Client |",
            "|---|---|---|",
            *(f"| `{r.name}` | {_about(by_shape, r)} | {_client(r)} |" for r in here),
            "",
            "### Kelpie extensions",
            "",
            "| Route | What it does |",
            "|---|---|",
            *(
                f"| `{method} {path}` | {about['summary']} |"
                for (method, path), about in sorted(own.items(), key=_by_path)
            ),
            "",
            "### Not planned",
            "",
            "| Route | Why |",
            "|---|---|",
            *(f"| `{r.name}` | {r.not_meant} |" for r in not_meant),
            "",
            "",
        )
    )


def _share(some: list[Route], of: list[Route]) -> str:
    return f"{100 * len(some) // len(of)} %"


def _client(route: Route) -> str:
    return f"`{route.sdk}`" if route.sdk else ""


def _about(by_shape: dict[tuple[str, str], dict[str, Any]], route: Route) -> str:
    return by_shape[route.method, shape(route.path)]["summary"]


def _by_path(item: tuple[tuple[str, str], Any]) -> tuple[str, str]:
    return item[0][1], item[0][0]


def page() -> str:
    """The page as it should be."""
    text, found = SECTION.subn(lambda _: render(), PAGE.read_text())
    assert found == 1, "the page has no section 'Routes'"
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
