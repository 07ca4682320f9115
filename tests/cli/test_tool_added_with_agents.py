"""`kelpie tools add --agent` when the tool cannot be attached: nothing stays, or it is said what does."""

from pathlib import Path
from typing import Any

import pytest

from kelpie.cli.commands.tools import tool_changes
from kelpie.cli.main import run
from kelpie.world.http.cli_client import ErrorResponse

GONE = ErrorResponse(404, "The agent was deleted.")
BUSY = ErrorResponse(503, "The server is busy.")


class FakeServer:
    """A server with two agents, of which the second refuses tools."""

    def __init__(self, before: list[dict[str, Any]], deletion: ErrorResponse | None = None) -> None:
        self.before = before
        self.deletion = deletion
        self.attached: list[str] = []
        self.deleted: list[str] = []

    def get(self, path: str, **query: Any) -> Any:
        return self.before if path == "/v1/tools/" else [{"id": f"agent-{query['name']}", "name": query["name"]}]

    def post(self, path: str, body: Any) -> Any:
        name = {"name": "total"}
        return name if path.endswith("schema") else {"id": "tool-1", **name}

    def patch(self, path: str, body: Any) -> Any:
        if "agent-ben" in path:
            raise GONE
        self.attached.append(path)

    def delete(self, path: str) -> None:
        if self.deletion is not None:
            raise self.deletion
        self.deleted.append(path)


@pytest.fixture
def typed(tmp_path: Path) -> list[str]:
    file = tmp_path / "dice.py"
    file.write_text("def total(): ...")
    return ["tools", "add", str(file), "--agent", "ada", "--agent", "ben"]


@pytest.mark.parametrize(
    ("before", "deletion", "deleted", "told"),
    [
        ([], None, ["/v1/tools/tool-1"], "total was not added, because it could not be attached to agent ben: "),
        ([], BUSY, [], "`kelpie tools delete total` removes it"),
        (
            [{"id": "tool-1"}],
            None,
            [],
            "of total was replaced, but the tool was not attached to agent ben: ",
        ),
    ],
)
def test_a_tool_that_cannot_be_attached(
    before: list[dict[str, Any]],
    deletion: ErrorResponse | None,
    deleted: list[str],
    told: str,
    typed: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = FakeServer(before, deletion)
    monkeypatch.setattr(tool_changes, "client", lambda url, timeout_s: server)
    monkeypatch.setattr(tool_changes, "_schema", lambda server, code, language: {"name": "total"})
    monkeypatch.setattr(tool_changes, "find", lambda server, who: {"id": f"agent-{who}", "name": who})
    assert run(typed) == 1
    assert server.attached == ["/v1/agents/agent-ada/tools/attach/tool-1"]
    assert server.deleted == deleted
    shown = capsys.readouterr()
    assert shown.out == "" and told in shown.err and "The agent was deleted." in shown.err
