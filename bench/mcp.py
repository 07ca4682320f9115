"""What it costs to use MCP servers through Kelpie, beside calling the same server directly, in one run; prints JSON.

    python bench/mcp.py [--calls 1000] [--servers 100]

"stdio" and "http": one call of a tool of `bench/fake_mcp.py`, from the record of the tool to its result, against the
bare exchange with the same program: a line through pipes, and a request on an open connection. Kelpie's stdio server
runs in a cell. Both take turns, 50 calls each. `cpu_ms` is the processor time of this process per call, without the
server's; `overhead_cpu_ms` is the difference. Wall times hold for this machine as busy as it was.

"registered": processor time and memory of a start with many servers in the database, against one with none; nothing
connects. "connected": as many servers, connected one after the other, over HTTP and as programs in cells: processor
time of this process for each, the growth of its memory, and the memory of the programs.
"""

import argparse
import asyncio
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kelpie.app import Kelpie
from kelpie.core.settings.settings import Settings
from kelpie.core.tools.mcp_servers import McpConfig, McpServerType
from kelpie.core.tools.tools import Tool
from kelpie.local import open_kelpie
from kelpie.mcp.client.answers import CallResult
from load.server import quantiles

FAKE = Path(__file__).with_name("fake_mcp.py")
BATCH = 50
ARGUMENTS = {"a": 20, "b": 22}
ASKED = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": ARGUMENTS}}

Call = Callable[[], Awaitable[None]]


def program() -> McpConfig:
    return McpConfig(McpServerType.stdio, command="python3", args=("-c", FAKE.read_text(), "stdio"))


def address(url: str) -> McpConfig:
    return McpConfig(McpServerType.streamable_http, server_url=url)


@asynccontextmanager
async def started(directory: str, **settings: Any) -> AsyncIterator[Kelpie]:
    env = {"KELPIE_DATA_DIR": directory, "KELPIE_MCP_PRIVATE": "true", "KELPIE_LOG_LEVEL": "error"}
    kelpie = open_kelpie(replace(Settings.from_environment(env), **settings))
    await kelpie.start()
    try:
        yield kelpie
    finally:
        await kelpie.stop(0)


async def tool_of(kelpie: Kelpie, name: str, config: McpConfig) -> Tool:
    server = await kelpie.api().mcp_servers.create(name, config)
    (found,) = await kelpie.api().mcp_servers.tools(server.id)
    return found.tool


def through_kelpie(kelpie: Kelpie, tool: Tool) -> Call:
    async def call() -> None:
        _, answer = await kelpie.runtime.mcp_tool_runner.answer(tool, ARGUMENTS)
        assert isinstance(answer, CallResult) and answer.content[0]["text"] == "42"

    return call


# --- the same servers, called directly --------------------------------------------------------------------------------


@asynccontextmanager
async def pipes() -> AsyncIterator[Call]:
    process = await asyncio.create_subprocess_exec(sys.executable, FAKE, "stdio", stdin=-1, stdout=-1)
    assert process.stdin is not None and process.stdout is not None
    written, read = process.stdin, process.stdout

    async def call() -> None:
        written.write(json.dumps(ASKED).encode() + b"\n")
        await written.drain()
        assert json.loads(await read.readline())["result"]["content"][0]["text"] == "42"

    yield call
    written.close()
    await process.wait()


@asynccontextmanager
async def connection(port: int) -> AsyncIterator[Call]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def call() -> None:
        body = json.dumps(ASKED).encode()
        head = f"POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        told = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(told.partition("content-length: ")[2].partition("\r\n")[0])
        assert json.loads(await reader.readexactly(length))["result"]["content"][0]["text"] == "42"

    yield call
    writer.close()
    await writer.wait_closed()


@contextmanager
def fake_server() -> Iterator[int]:
    process = subprocess.Popen((sys.executable, FAKE, "0"), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline().split()[1])
    finally:
        process.kill()
        process.wait()


# --- measurements -----------------------------------------------------------------------------------------------------


async def compared(ours: Call, bare: Call, calls: int) -> dict[str, Any]:
    """Both in turns; the times of single calls, and the processor time of each batch."""
    cpu: dict[str, list[float]] = {"kelpie": [], "direct": []}
    wall: dict[str, list[float]] = {"kelpie": [], "direct": []}
    for call in (ours, bare):
        for _ in range(BATCH):
            await call()
    for _ in range(max(1, calls // BATCH)):
        for name, call in (("kelpie", ours), ("direct", bare)):
            begun = time.process_time()
            for _ in range(BATCH):
                at = time.perf_counter()
                await call()
                wall[name].append((time.perf_counter() - at) * 1000)
            cpu[name].append((time.process_time() - begun) * 1000 / BATCH)
    medians = {name: statistics.median(found) for name, found in cpu.items()}
    return {
        "cpu_ms": {name: round(found, 3) for name, found in medians.items()},
        "overhead_cpu_ms": round(medians["kelpie"] - medians["direct"], 3),
        "wall_ms": {name: quantiles(found) for name, found in wall.items()},
    }


def memory_mb(pid: str = "self") -> float:
    fields = Path(f"/proc/{pid}/status").read_text()
    return int(fields.partition("VmRSS:")[2].split()[0]) / 1024


async def of_a_start(directory: str) -> dict[str, float]:
    """A start of Kelpie in this process: processor time, and memory after it."""
    begun = time.process_time()
    async with started(directory):
        return {"cpu_ms": (time.process_time() - begun) * 1000, "memory_mb": memory_mb()}


def a_start(directory: str) -> dict[str, float]:
    """The same in a process of its own, where nothing of an earlier start is warm."""
    command = (sys.executable, __file__, "--start", directory)
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


async def registered(servers: int, repeats: int = 5) -> dict[str, Any]:
    """Starts with servers in the database that nobody uses, and without."""
    with tempfile.TemporaryDirectory() as none, tempfile.TemporaryDirectory() as many:
        async with started(none), started(many) as kelpie:
            for number in range(servers):
                config = program() if number % 2 else address("http://127.0.0.1:1/mcp")
                await kelpie.api().mcp_servers.register(f"server-{number}", config)
        found: dict[str, list[dict[str, float]]] = {"none": [], "many": []}
        for _ in range(repeats):
            found["none"].append(a_start(none))
            found["many"].append(a_start(many))
    median = {
        name: {key: statistics.median(one[key] for one in rows) for key in ("cpu_ms", "memory_mb")}
        for name, rows in found.items()
    }
    return {
        "servers": servers,
        "start_cpu_ms": {name: round(rows["cpu_ms"], 1) for name, rows in median.items()},
        "memory_mb": {name: round(rows["memory_mb"], 1) for name, rows in median.items()},
    }


async def connected(servers: int, config: Callable[[int], McpConfig], **settings: Any) -> dict[str, Any]:
    """Servers that are connected, called once each, and kept."""
    with tempfile.TemporaryDirectory() as directory:
        async with started(directory, **settings) as kelpie:
            for number in range(servers):
                await kelpie.api().mcp_servers.register(f"server-{number}", config(number))
            gc.collect()
            before, others_mb = memory_mb(), programs_mb()
            begun, at = time.process_time(), time.perf_counter()
            for server in await kelpie.api().mcp_servers.all():
                await kelpie.api().mcp_servers.refresh(server)
            cpu_s, wall_s = time.process_time() - begun, time.perf_counter() - at
            reports = [kelpie.runtime.mcp_pool.report(each) for each in await kelpie.api().mcp_servers.all()]
            assert all(report.connected for report in reports), "all stay connected"
            gc.collect()
            return {
                "servers": servers,
                "cpu_ms_each": round(cpu_s * 1000 / servers, 2),
                "wall_ms_each": round(wall_s * 1000 / servers, 1),
                "memory_growth_mb": round(memory_mb() - before, 1),
                "memory_of_programs_mb": round(programs_mb() - others_mb, 1),
            }


def programs_mb() -> float:
    """The memory of all processes that this one started, shared pages counted once among them."""
    total, waiting = 0.0, [Path("/proc/self")]
    while waiting:
        for file in waiting.pop().glob("task/*/children"):
            for pid in file.read_text().split():
                waiting.append(Path(f"/proc/{pid}"))
                rollup = (waiting[-1] / "smaps_rollup").read_text()
                total += int(rollup.partition("Pss:")[2].split()[0]) / 1024
    return total


async def main(calls: int, servers: int) -> dict[str, Any]:
    with fake_server() as port:
        with tempfile.TemporaryDirectory() as directory:
            async with started(directory) as kelpie, pipes() as bare_stdio, connection(port) as bare_http:
                stdio = through_kelpie(kelpie, await tool_of(kelpie, "program", program()))
                http = through_kelpie(kelpie, await tool_of(kelpie, "web", address(f"http://127.0.0.1:{port}/mcp")))
                found = {
                    "stdio": await compared(stdio, bare_stdio, calls),
                    "http": await compared(http, bare_http, calls),
                }
        return {
            **found,
            "registered": await registered(servers),
            "connected": {
                "http": await connected(servers, lambda number: address(f"http://127.0.0.1:{port}/mcp/{number}")),
                "stdio": await connected(servers, lambda number: program(), mcp_processes_max=servers),
            },
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--servers", type=int, default=100)
    parser.add_argument("--start", help=argparse.SUPPRESS)
    given = parser.parse_args()
    work = of_a_start(given.start) if given.start else main(given.calls, given.servers)
    print(json.dumps(asyncio.run(work), indent=None if given.start else 2))
