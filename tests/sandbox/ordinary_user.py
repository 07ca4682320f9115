"""Runs jobs in the sandbox and prints what came of them; test_ordinary_user.py starts it as somebody else than root."""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from kelpie.core.tools.confinement import Confinement, Mount, Runner
from kelpie.core.tools.package_requirements import Index, needed
from kelpie.sandbox.port import SandboxJob
from kelpie.sandbox.process import ProcessSandbox
from kelpie.world.cells.bubblewrap import BubblewrapCells
from kelpie.world.clock import SystemClock
from kelpie.world.packages.installer_cell import CellInstaller
from kelpie.world.packages.store import LocalPackages
from kelpie.world.processes.processes import SystemProcesses
from tests.package_index import Web
from tests.sandbox.jobs import FORKS, command, function, script


def node(body: str) -> SandboxJob:
    told = {"source": f"function tool() {{ {body} }}", "function": "tool", "arguments": {}, "order": []}
    return SandboxJob(Runner.node, json.dumps(told).encode(), confinement=Confinement(wall_s=20))


async def main() -> None:
    cells = BubblewrapCells()
    sandbox = ProcessSandbox(cells, SystemClock(), warm_max=1)
    jobs = {
        "plain": function("def tool(a): return a + 1", a=1),
        "forks": function(FORKS),
        "memory": script("held = bytearray(1 << 30)"),
        "slow": script("while True: pass", Confinement(wall_s=0.5)),
        "network": function("import socket\ndef tool(): socket.create_connection(('127.0.0.1', 8283), 3)"),
        "write": function("def tool(): open('/usr/planted', 'w')"),
    }
    if shutil.which("node") is not None:
        jobs["node"] = node("return 1")
        jobs["node_memory"] = node("const held = []; for (;;) held.push(Buffer.alloc(16 << 20, 1))")
        jobs["node_forks"] = node(
            "const { spawn } = require('child_process'); let made = 0;"
            "for (let n = 0; n < 200; n++) { const child = spawn('sleep', ['9']); child.on('error', () => {});"
            "if (child.pid) made++ } return made"
        )
    if shutil.which("Rscript") is not None:
        jobs["r"] = command(
            "Rscript", "--vanilla", "-e", "cat(mean(c(1, 3)))", most=Confinement(memory_bytes=512 << 20)
        )
    told: dict[str, object] = {"user": os.getuid(), "groups": cells.has_groups}
    for name, job in jobs.items():
        ended = await sandbox.run(job)
        result = json.loads(ended.result) if ended.result else None
        told[name] = [ended.how, ended.code, result, ended.stderr.decode()[-200:], ended.stdout.decode()[-200:]]
    told["packages"] = await installed(cells)
    await sandbox.close()
    print(json.dumps(told))


async def installed(cells: BubblewrapCells) -> dict[str, str]:
    """The modes of a set that pip installed from an index of its own."""
    web = Web()
    web.add_wheel("plain")
    os.environ |= {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": f"{web.address}/simple"}
    try:
        with tempfile.TemporaryDirectory() as directory:
            data = Path(directory)
            store = LocalPackages(CellInstaller(cells, SystemProcesses(), data), SystemProcesses(), data / "packages")
            place = Path(await store.install(needed(Index.pip, [{"name": "plain"}]), ()))
            return {name: oct((place / name).stat().st_mode) for name in ("plain.py", ".")}
    finally:
        web.close()


async def hold(directory: str) -> None:
    """Runs one job that does not end, and opens the door of the directory meanwhile."""
    source = "door = open('/data/door', 'w')\ndoor.write('begun')\ndoor.flush()\nwhile True: pass"
    sandbox = ProcessSandbox(BubblewrapCells(), SystemClock())
    await sandbox.run(script(source, mounts=(Mount(directory, "/data", writable=True),)))


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1]) if len(sys.argv) > 1 else main())
