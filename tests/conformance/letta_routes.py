"""Letta 0.16.8's routes as facts (`letta_routes.tsv`: method, path, method of `letta-client` 1.12.1), and what of them
Kelpie does not mean to have. Whatever is not in that table must be there and tested."""

import csv
from dataclasses import dataclass
from pathlib import Path

_VENDOR = "a pass-through to a vendor's API: point the vendor's own client at the vendor"
_NOT_MEANT = {
    "/v1/anthropic/": _VENDOR,
    "/v1/zai/": _VENDOR,
    "/v1/git/": "git-backed memory of Letta's cloud: blocks have a history of their own",
    "/v1/environments/{connection_id}/messages": "no device is connected to the server: send to the agent",
    "/v1/voice-beta/": "retired by Letta, which answered 410",
    "/v1/tools/generate-tool": "a model would write unreviewed tools: write the source and register it",
    "/v1/sandbox-config/local/recreate-venv": "each set of packages has its own directory, so nothing needs recreating",
    "/v1/sandbox-config/e2b/": "a cloud sandbox: tools run on the machine of the server",
}
_NOT_FOUND = ("/v1/environments/",)  # refused with 404, because other parts of the resource are there
_RETIRED = ("/v1/voice-beta/",)


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    sdk: str | None

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def not_meant(self) -> str | None:
        """Why Kelpie does not mean to have it."""
        return next((why for start, why in _NOT_MEANT.items() if self.path.startswith(start)), None)

    @property
    def refusal(self) -> int:
        """The status of its refusal, where it is not meant."""
        if self.path.startswith(_RETIRED):
            return 410
        return 404 if self.path.startswith(_NOT_FOUND) else 501


def letta_routes() -> list[Route]:
    with Path(__file__).with_suffix(".tsv").open(newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return [Route(row["method"], row["path"], None if row["sdk"] == "-" else row["sdk"]) for row in rows]
