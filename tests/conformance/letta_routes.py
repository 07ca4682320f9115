"""Letta 0.16.8's routes as facts (`letta_routes.tsv`: method, path, method of `letta-client` 1.12.1), and what of them
Kelpie leaves to a later issue or does not mean to have. Whatever is in neither table must be there and tested."""

import csv
from dataclasses import dataclass
from pathlib import Path

MEANING, MCP, FILES, SCHEDULES = 13, 12, 14, 16  # the issues that bring the engine; agent files come with 13

_FILES = ("folders.", "agents.folders.", "agents.files.", "templates.", "agents.export_file", "agents.import_file")
_LATER_SDK = {
    "mcp_servers.refresh": MCP,
    "mcp_servers.tools.retrieve": MCP,
    "mcp_servers.tools.run": MCP,
}
_LATER_PATHS = {
    "/v1/embeddings/total_storage_size": MEANING,
    "/v1/mcp-servers/connect/{mcp_server_id}": MCP,
    "/v1/tools/mcp/oauth/callback": MCP,
    "/v1/tools/mcp/servers/connect": MCP,
    "/v1/tools/mcp/servers/test": MCP,
    "/v1/tools/mcp/servers/{mcp_server_name}/resync": MCP,
    "/v1/tools/mcp/servers/{mcp_server_name}/tools": MCP,
    "/v1/tools/mcp/servers/{mcp_server_name}/tools/{tool_name}/execute": MCP,
    "/v1/tools/mcp/servers/{mcp_server_name}/{mcp_tool_name}": MCP,
    "/v1/chat/completions": FILES,
    "/v1/agents/{agent_id}/export": FILES,
}
_LATER_PREFIXES = {
    "/v1/folders/": FILES,
    "/v1/sources/": FILES,
    "/v1/agents/{agent_id}/sources": FILES,
    "/v1/providers/": FILES,
    "/v1/agents/{agent_id}/schedule": SCHEDULES,
    "/v1/messages/batches": SCHEDULES,
}

_VENDOR = "a pass-through to a vendor's API: point the vendor's own client at the vendor"
_NOT_MEANT = {
    "/v1/anthropic/": _VENDOR,
    "/v1/zai/": _VENDOR,
    "/v1/git/": "git-backed memory of Letta's cloud: blocks have a history of their own",
    "/v1/environments": "remote devices of Letta's cloud",
    "/v1/voice-beta/": "retired by Letta, which answered 410",
    "/v1/tools/generate-tool": "a model would write unreviewed tools: write the source and register it",
    "/v1/sandbox-config/local/recreate-venv": "each set of packages has its own directory, so nothing needs recreating",
    "/v1/sandbox-config/e2b/": "a cloud sandbox: tools run on the machine of the server",
}


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    sdk: str | None

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def later(self) -> int | None:
        """The issue that brings it, if it is not there yet."""
        if self.sdk is not None and self.sdk.startswith(_FILES):
            return FILES
        if self.sdk in _LATER_SDK:
            return _LATER_SDK[self.sdk]
        if self.path in _LATER_PATHS:
            return _LATER_PATHS[self.path]
        return next((issue for start, issue in _LATER_PREFIXES.items() if self.path.startswith(start)), None)

    @property
    def not_meant(self) -> str | None:
        """Why Kelpie does not mean to have it."""
        return next((why for start, why in _NOT_MEANT.items() if self.path.startswith(start)), None)


def letta_routes() -> list[Route]:
    with Path(__file__).with_suffix(".tsv").open(newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return [Route(row["method"], row["path"], None if row["sdk"] == "-" else row["sdk"]) for row in rows]
