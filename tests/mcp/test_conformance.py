"""The conformance kit of MCP against Kelpie as a client: every scenario that is no extension of the protocol.

The kit starts a command for each scenario; here the command asks this process, where one Kelpie visits all servers.
"""

import asyncio
import json
import re
import sys
import traceback
from pathlib import Path
from typing import Any

from kelpie.app import Kelpie
from tests.mcp.conformance_client import play
from tests.mcp.installed import CONFORMANCE, NODE, require
from tests.server.rig import open_rig

DEADLINE_S = 240.0
KNOCK = Path(__file__).with_name("knock.py")
NOT_OFFERED = {
    "auth/client-credentials-basic",  # extensions: logins without a person
    "auth/client-credentials-jwt",
    "auth/cross-app-access-complete-flow",
}
SCENARIOS = 26


async def kit(socket: Path, results: Path) -> dict[str, set[str]]:
    """The checks that failed, by scenario."""
    command = f"{sys.executable} -I -S {KNOCK} {socket}"
    arguments = ("client", "--command", command, "--suite", "all", "-o", str(results), "--timeout", "120000")
    process = await asyncio.create_subprocess_exec(NODE, CONFORMANCE, *arguments, stdout=-1, stderr=-2)
    async with asyncio.timeout(DEADLINE_S):
        said, _ = await process.communicate()
    print(said.decode()[-6000:])
    return failures(results)


def failures(results: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for file in results.glob("**/checks.json"):
        name = re.sub(r"-\d{4}-\d\d-\d\dT.*", "", str(file.parent.relative_to(results)))
        found[name] = {check["id"] for check in json.loads(file.read_text()) if failed(check)}
    return found


def failed(check: dict[str, Any]) -> bool:
    """A client that comes back late is no failure here: the machine may be busy."""
    late = check.get("details", {}).get("veryLate") is True
    return check["status"] == "FAILURE" and not late


async def test_the_scenarios_for_clients(tmp_path: Path) -> None:
    require(CONFORMANCE)
    socket = tmp_path / "door"
    async with open_rig(tmp_path, mcp_private=True) as (kelpie, _):
        door = await asyncio.start_unix_server(lambda reader, writer: visit(kelpie, reader, writer), socket)
        async with door:
            found = await kit(socket, tmp_path / "kit")
    assert len(found) == SCENARIOS, sorted(found)
    assert {name: checks for name, checks in found.items() if checks}.keys() == NOT_OFFERED


async def visit(kelpie: Kelpie, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    url, context = [(await reader.readline()).decode().strip() for _ in range(2)]
    try:
        await play(kelpie, url, json.loads(context), name=url)
        writer.write(b"done\n")
    except Exception:  # noqa: BLE001 - the kit decides what it means
        writer.write(traceback.format_exc().encode())
    writer.close()
    await writer.wait_closed()
