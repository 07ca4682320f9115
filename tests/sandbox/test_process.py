"""A job in a cell: what it is given, what comes back, and how it ends."""

import asyncio
import json
import os
import resource
import select
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kelpie.core.errors import SandboxUnavailable
from kelpie.core.tools.confinement import MEGABYTE, Confinement, Isolation
from kelpie.sandbox.port import JobEnding, JobResult, Mount, Runner, SandboxJob
from kelpie.sandbox.process import ProcessSandbox
from kelpie.world.cells import bubblewrap
from kelpie.world.cells.bubblewrap import START_S, BubblewrapCells
from kelpie.world.cells.bubblewrap_cell import CellHandles
from kelpie.world.cells.launch import start_isolated
from kelpie.world.cells.port import CellPlan
from kelpie.world.cells.users import NoUsers
from kelpie.world.clock import SystemClock
from kelpie.world.egress.broker import API_PORT, PROXY_PORT, Listener, LocalBroker, ServedListener, socket_of
from kelpie.world.isolation.control_group import ControlGroups
from tests.parts import lacks
from tests.sandbox.jobs import command, function, script


def answer(ended: JobResult) -> dict[str, Any]:
    assert ended.how is JobEnding.finished and ended.result is not None, ended
    return json.loads(ended.result)


async def test_a_function_gets_its_arguments_and_gives_its_value(sandbox: ProcessSandbox) -> None:
    ended = await sandbox.run(function("def tool(a, b):\n    print('hello')\n    return {'sum': a + b}", a=1, b=2))
    assert answer(ended) == {"ok": True, "value": {"sum": 3}, "text": "{'sum': 3}"}
    assert (ended.stdout, ended.stderr, ended.code) == (b"hello\n", b"", 0)
    assert ended.duration_us > 0


async def test_what_is_not_json_comes_back_as_text(sandbox: ProcessSandbox) -> None:
    source = "class Odd:\n    def __str__(self): return 'odd'\ndef tool(): return [Odd()]"
    assert answer(await sandbox.run(function(source)))["value"] == ["odd"]
    ended = answer(await sandbox.run(function("def tool(): return float('nan')")))
    assert ended == {"ok": True, "value": "nan", "text": "nan"}


async def test_an_error_tells_its_line(sandbox: ProcessSandbox) -> None:
    told = answer(await sandbox.run(function("def tool():\n    return 1 / 0")))
    assert told["ok"] is False and told["error"] == "ZeroDivisionError: division by zero"
    assert "line 2" in told["traceback"] and "return 1 / 0" in told["traceback"]
    assert "/run/kelpie" not in told["traceback"]


async def test_a_script_ends_with_its_code(sandbox: ProcessSandbox) -> None:
    ended = await sandbox.run(script("import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(7)"))
    assert (ended.how, ended.code, ended.stdout, ended.stderr) == (JobEnding.finished, 7, b"out\n", b"err\n")
    ended = await sandbox.run(script("oops"))
    assert ended.code == 1 and b"NameError" in ended.stderr and b"/run/kelpie" not in ended.stderr


async def test_a_command_reads_its_input(sandbox: ProcessSandbox) -> None:
    ended = await sandbox.run(command("sh", "-c", "cat; exit 3", stdin="hello\n"))
    assert (ended.how, ended.code, ended.stdout) == (JobEnding.finished, 3, b"hello\n")
    ended = await sandbox.run(command("no-such-program"))
    assert ended.code == 127 and b"no-such-program" in ended.stderr


async def test_the_environment_is_that_of_the_job(sandbox: ProcessSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not for tools")
    ended = await sandbox.run(replace(command("env"), env={"GREETING": "hello"}))
    names = sorted(line.partition("=")[0] for line in ended.stdout.decode().splitlines())
    assert names == ["GREETING", "HOME", "LANG", "PATH", "TMPDIR"]
    assert b"GREETING=hello" in ended.stdout and b"not for tools" not in ended.stdout


async def test_a_megabyte_of_arguments_and_of_result(sandbox: ProcessSandbox) -> None:
    text = "ä" * 500_000
    assert answer(await sandbox.run(function("def tool(text): return text", text=text)))["value"] == text


async def test_too_slow_is_ended(sandbox: ProcessSandbox) -> None:
    source = (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('begun', flush=True)\nwhile True: pass"
    )
    ended = await sandbox.run(script(source, Confinement(wall_s=0.3)))
    assert ended.how is JobEnding.timed_out and ended.result is None


async def test_output_past_the_bound_is_thrown_away_and_a_flood_is_ended(sandbox: ProcessSandbox) -> None:
    ended = await sandbox.run(script("print('x' * 5000)", Confinement(output_bytes=1000)))
    assert (ended.how, len(ended.stdout), ended.truncated) == (JobEnding.finished, 1000, True)
    ended = await sandbox.run(script("while True: print('x' * 1000)", Confinement(output_bytes=1000)))
    assert (ended.how, len(ended.stdout), ended.truncated) == (JobEnding.too_much_output, 1000, True)


async def test_mounts_are_read_only_unless_said_otherwise(sandbox: ProcessSandbox, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("kept")
    read_only = (Mount(str(tmp_path), "/data"),)
    source = (
        "print(open('/data/note').read())\ntry: open('/data/new', 'w')\nexcept OSError as error: print(error.errno)"
    )
    assert (await sandbox.run(script(source, mounts=read_only))).stdout == b"kept\n30\n"
    writable = (Mount(str(tmp_path), "/data", writable=True),)
    ended = await sandbox.run(script("open('/data/new', 'w').write('written')", mounts=writable))
    assert ended.code == 0, ended.stderr
    assert (tmp_path / "new").read_text() == "written"


async def test_a_cancelled_job_leaves_nothing(sandbox: ProcessSandbox, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "door")
    mounts = (Mount(str(tmp_path), "/data", writable=True),)
    source = "door = open('/data/door', 'w')\ndoor.write('begun')\ndoor.flush()\nwhile True: pass"
    running = asyncio.create_task(sandbox.run(script(source, mounts=mounts)))
    begun = asyncio.Event()
    door = os.open(tmp_path / "door", os.O_RDONLY | os.O_NONBLOCK)
    asyncio.get_running_loop().add_reader(door, begun.set)
    async with asyncio.timeout(30):
        await begun.wait()
    asyncio.get_running_loop().remove_reader(door)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert os.read(door, 100) == b"begun"
    assert os.read(door, 100) == b""  # nobody holds the other end any more
    os.close(door)


async def test_a_class_that_is_not_there_is_refused_by_name(sandbox: ProcessSandbox) -> None:
    with pytest.raises(SandboxUnavailable, match="vm"):
        await sandbox.run(script("pass", Confinement(isolation=Isolation.vm)))


async def test_a_job_with_a_passport_reaches_who_answers_its_door_and_one_without_does_not(
    cells: BubblewrapCells,
) -> None:
    class OneWord:
        """Answers every connection with a word, as the API would with more."""

        async def serve_api(self, listener: Listener, passport: str) -> ServedListener:
            server = await asyncio.start_server(lambda _, writer: self._say(writer, passport), sock=socket_of(listener))
            return _Closing(server)

        async def serve_proxy(self, listener: Listener, hosts: Sequence[str]) -> ServedListener:
            raise AssertionError("nobody asked for the network")

        async def _say(self, writer: asyncio.StreamWriter, word: str) -> None:
            writer.write(word.encode())
            writer.close()
            await writer.wait_closed()

    sandbox = ProcessSandbox(cells, SystemClock(), OneWord())
    source = (
        "import socket\ndef tool(port):\n    return socket.create_connection(('127.0.0.1', port), 5).recv(100).decode()"
    )
    job = function(source, port=API_PORT)
    assert answer(await sandbox.run(replace(job, passport="hello")))["value"] == "hello"
    assert "ConnectionRefusedError" in answer(await sandbox.run(job))["error"]
    proxy = function(source, port=PROXY_PORT)
    assert "ConnectionRefusedError" in answer(await sandbox.run(replace(proxy, passport="hello")))["error"]
    await sandbox.close()


class _Closing:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    async def close(self) -> None:
        self._server.close()


@pytest.mark.needs("node")
async def test_javascript_runs_as_a_function_and_as_a_script(sandbox: ProcessSandbox) -> None:
    def job(source: str, name: str | None = None, **arguments: Any) -> SandboxJob:
        told = {"source": source, "function": name, "arguments": arguments, "order": ["b", "a"]}
        return SandboxJob(Runner.node, json.dumps(told).encode(), env={"GREETING": "hello"})

    source = "async function tool(b, a) { console.log(process.env.GREETING); return { difference: a - b } }"
    ended = await sandbox.run(job(source, "tool", a=1, b=2))
    assert answer(ended) == {"ok": True, "value": {"difference": -1}, "text": '{"difference":-1}'}
    assert ended.stdout == b"hello\n"
    ended = await sandbox.run(job("export function tool() { throw new TypeError('no') }", "tool"))
    assert answer(ended)["error"] == "TypeError: no"
    ended = await sandbox.run(job("console.log(require('fs').readdirSync('/tmp').length); process.exitCode = 4"))
    assert (ended.how, ended.code, ended.stdout) == (JobEnding.finished, 4, b"0\n")


@pytest.mark.needs("node")
async def test_every_runner_is_held_by_the_same_limits(sandbox: ProcessSandbox) -> None:
    show = json.dumps({"source": "console.log(require('fs').readFileSync('/proc/self/limits', 'utf8'))"}).encode()
    most = Confinement(wall_s=10)
    python = await sandbox.run(script("print(open('/proc/self/limits').read())", most))
    node = await sandbox.run(SandboxJob(Runner.node, show, confinement=most))
    plain = await sandbox.run(command("cat", "/proc/self/limits", most=most))
    bounds = [_bounds(ended.stdout.decode()) for ended in (python, node, plain)]
    assert bounds[0]["Max file size"] == 64 * MEGABYTE and bounds[0]["Max cpu time"] == 12
    assert bounds[0] == bounds[1] == bounds[2]


def _bounds(told: str) -> dict[str, int]:
    """The hard limits that were set, by the names that the kernel has for them."""
    named = ("Max cpu time", "Max file size", "Max core file size", "Max open files")
    rows = {line[:26].strip(): line[26:].split() for line in told.splitlines()}
    return {name: int(rows[name][1]) for name in named}


async def test_a_limit_that_no_cell_can_live_with_counts_as_the_least_one(sandbox: ProcessSandbox) -> None:
    tiny = Confinement(memory_bytes=1, processes=1, cpu_share=0.0)
    assert answer(await sandbox.run(function("def tool(): return 'lives'", most=tiny)))["value"] == "lives"


async def test_a_cell_that_greets_before_anybody_listens_is_known_nevertheless(
    cells: BubblewrapCells, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who becomes a user of its own cannot: it waits until it is admitted."""

    def greeted(*arguments: Any) -> CellHandles:
        hold = start_isolated(*arguments)
        assert select.select([hold.control], [], [], START_S)[0]
        return hold

    monkeypatch.setattr(bubblewrap, "start_isolated", greeted)
    itself = BubblewrapCells(users=lambda _: NoUsers())
    sandbox = ProcessSandbox(itself, SystemClock(), LocalBroker(), warm_max=0)
    assert (await sandbox.run(script("print('known')"))).stdout == b"known\n"
    await sandbox.close()


async def test_a_server_out_of_descriptors_says_so_and_keeps_nothing(cells: BubblewrapCells) -> None:
    def held() -> tuple[list[str], list[str]]:
        tops = cells.groups.tops if isinstance(cells.groups, ControlGroups) else ()
        groups = [str(each) for top in tops for each in top.glob("*/")]
        return sorted(each.name for each in Path("/proc/self/fd").iterdir()), sorted(groups)

    before = held()
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    refused = 0
    for highest in range(3, 300):
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, usual[1]))
        try:
            cell = await cells.start(CellPlan(Runner.command))
        except SandboxUnavailable:
            refused += 1
        else:
            await cell.kill()
            break
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, usual)
        assert held() == before, f"below descriptor {highest} something stayed"
    else:
        pytest.fail("it never worked")
    assert refused > 10, "every step of a start was refused once"


def works_by_itself() -> bool:
    bare = ("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "true")
    return shutil.which("bwrap") is not None and subprocess.run(bare, capture_output=True, check=False).returncode == 0


async def test_where_bubblewrap_works_by_itself_cells_start() -> None:
    """Other tests skip where no cell starts; were that our own fault, this one would tell."""
    if not works_by_itself():
        lacks("sandbox", "bubblewrap is not installed, or may not make namespaces here")
    cells = BubblewrapCells()
    cell = await cells.start(CellPlan(Runner.command))
    await cell.kill()
    await cells.close()
