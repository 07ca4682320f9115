"""The built-in tools that run code, in real cells: what the model is told, what is kept, and what stays closed."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kelpie.accounts.passports import Passports
from kelpie.accounts.quotas.disk_usage import DiskUsage
from kelpie.accounts.quotas.quotas import Quotas
from kelpie.core.agents.agent import Agent, AgentType, ModelChoice
from kelpie.core.errors import SandboxUnavailable, ToolError
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId
from kelpie.core.permissions.quotas import Quota
from kelpie.sandbox.process import ProcessSandbox
from kelpie.tools.builtin import BUILTINS
from kelpie.tools.calls.api_callback import ApiCallback
from kelpie.tools.calls.interface import CallContext, ExternalTool, Outcome
from kelpie.tools.code import workspace as workspace_module
from kelpie.tools.code.filesystem import Filesystem
from kelpie.tools.code.run_code import CodeRunner
from kelpie.tools.code.shell import Shell
from kelpie.tools.code.workspace import Workspace
from kelpie.tools.custom.environments import Environments
from kelpie.world.cells.bubblewrap import BubblewrapCells
from kelpie.world.clock import SystemClock
from kelpie.world.files.workspaces import DirectoryWorkspaces
from kelpie.world.ids import RandomIds
from kelpie.world.workers.processes import ProcessWorkers
from tests.parts import lacks

ONE, TWO = (AgentId(f"agent-00000000-0000-4000-8000-00000000000{number}") for number in (1, 2))


def _agent(agent_id: AgentId) -> Agent:
    return Agent(agent_id, "Ann", AgentType.letta_v1_agent, "", ModelChoice("kelpie/demo", 8000), 1, 1)


@dataclass(frozen=True)
class Bench:
    """Calls the tools as an agent would."""

    tools: dict[str, ExternalTool]
    passports: Passports
    workspaces: DirectoryWorkspaces

    async def __call__(
        self, name: str, agent_id: AgentId = ONE, quota: Quota | None = None, sandbox: Any = None, **arguments: Any
    ) -> Outcome:
        tool = replace(BUILTINS[name].row(DEFAULT_ORGANIZATION, 1), sandbox=sandbox or {})
        call = CallContext(_agent(agent_id), 1, RandomIds().uuid(), quota=quota or Quota())
        return await self.tools[name](tool, call, arguments)

    async def told(self, name: str, **arguments: Any) -> dict[str, Any]:
        return json.loads((await self(name, **arguments)).text)


@pytest.fixture
async def bench(cells: BubblewrapCells, tmp_path: Path) -> AsyncIterator[Bench]:
    clock = SystemClock()
    passports, sandbox = Passports(RandomIds(), clock), ProcessSandbox(cells, clock)
    callback, workspaces = ApiCallback(passports, clock), DirectoryWorkspaces(tmp_path)
    workspace, workers = Workspace(workspaces, 1, DiskUsage(Quotas(clock))), ProcessWorkers()
    tools: dict[str, ExternalTool] = {
        "run_code": CodeRunner(sandbox, callback, Environments(None), workers).run_code,
        "shell": Shell(sandbox, callback, workspace),
        "filesystem": Filesystem(sandbox, workspace),
    }
    yield Bench(tools, passports, workspaces)
    await workers.close()
    await sandbox.close()


async def test_code_is_run_and_told_with_its_language(bench: Bench) -> None:
    told = await bench.told("run_code", code="import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(3)")
    assert told.pop("duration_ms") >= 0
    assert told == {"language": "python", "detected": True, "exit_code": 3, "stdout": "out\n", "stderr": "err\n"}
    named = await bench("run_code", code="print(1)", language="python")
    assert named.ok and "detected" not in named.text and named.stdout == ("1\n",)
    failed = await bench("run_code", code="1/0")
    assert not failed.ok and "ZeroDivisionError" in failed.text


@pytest.mark.parametrize(
    ("program", "code", "printed"),
    [
        ("node", "const fs = require('fs'); console.log(typeof fs.readFileSync)", "function\n"),
        ("node", "import os from 'node:os'; console.log(typeof os.cpus, await Promise.resolve(4))", "function 4\n"),
        ("java", 'public class A { public static void main(String[] a) { System.out.println("hi"); } }', "hi\n"),
        ("Rscript", "x <- c(1, 3)\ncat(mean(x))", "2"),
        ("Rscript", "d <- data.frame(a = 1:3)\nwrite.csv(d, 'd.csv')\ncat(nrow(read.csv('d.csv')), sd(d$a))", "3 1"),
    ],
)
async def test_other_languages_run_where_they_are_installed(
    bench: Bench, program: str, code: str, printed: str
) -> None:
    if shutil.which(program) is None:
        with pytest.raises(ToolError, match=r"not installed on this server.*install"):
            await bench("run_code", code=code)
        lacks({"node": "node", "java": "java", "Rscript": "r"}[program], "which the model was told")
    told = await bench.told("run_code", code=code)
    assert (told["stdout"], told["exit_code"]) == (printed, 0), told


async def test_typescript_runs_or_is_told_with_its_remedy(bench: Bench) -> None:
    call = bench.told("run_code", code="const x: number = 1; console.log(x + 1)")
    (told,) = await asyncio.gather(call, return_exceptions=True)
    if isinstance(told, BaseException):
        assert isinstance(told, ToolError) and "install Node.js" in str(told)
        lacks("typescript", f"the model was told: {told}")
    assert (told["language"], told["stdout"]) == ("ts", "2\n")


@pytest.mark.needs("r")
async def test_an_error_in_r_is_told_with_its_code(bench: Bench) -> None:
    failed = await bench.told("run_code", code="cat('begun')\nstop('no more')", language="r")
    assert (failed["exit_code"], failed["stdout"]) == (1, "begun") and "no more" in failed["stderr"], failed
    ended = await bench.told("run_code", code="message('told')\nquit(status = 3)", language="r")
    assert (ended["exit_code"], ended["stderr"]) == (3, "told\n")


async def test_code_knows_its_agent_and_its_passport_ends_with_it(bench: Bench) -> None:
    told = await bench.told(
        "run_code", code="import os\nprint(os.environ['LETTA_AGENT_ID'], os.environ['LETTA_API_KEY'])"
    )
    agent_id, key = told["stdout"].split()
    assert agent_id == ONE
    assert bench.passports.find(key) is None and len(bench.passports) == 0


async def test_bounds_of_tool_and_agent_hold(bench: Bench) -> None:
    slow = await bench("run_code", code="while True: pass", sandbox={"timeout_s": 0.3})
    assert not slow.ok and "its time limit" in slow.text
    large = "data = bytearray(200 * 1024 * 1024)\nprint(len(data))"
    refused = await bench("run_code", code=large, quota=Quota(memory_bytes=64 * 1024 * 1024))
    assert not refused.ok
    assert (await bench("run_code", code=large)).ok, "the next call works"
    assert len(bench.passports) == 0


async def test_much_output_is_cut_in_the_middle(bench: Bench) -> None:
    told = await bench.told("run_code", code="print('a' * 30000, 'z' * 30000)")
    assert told["stdout"].startswith("aaa") and told["stdout"].endswith("zzz\n") and "omitted here" in told["stdout"]


async def test_nothing_is_run_for_empty_code_or_without_a_sandbox(bench: Bench) -> None:
    with pytest.raises(ToolError, match="empty"):
        await bench("run_code", code=" \n")
    with pytest.raises(ToolError, match="empty"):
        await bench("shell", command="")
    callback = ApiCallback(bench.passports, SystemClock())
    none = CodeRunner(None, callback, Environments(None), ProcessWorkers()).run_code
    with pytest.raises(SandboxUnavailable, match="needs a sandbox, and this server has none"):
        await replace(bench, tools={"run_code": none})("run_code", code="print(1)")


async def test_files_are_kept_and_are_the_agents_own(bench: Bench) -> None:
    assert (await bench("filesystem", operation="list")).text == "'.' is empty."
    await bench("shell", command="echo hello > note.txt")
    assert (await bench("filesystem", operation="read", path="note.txt")).text == "hello\n"
    await bench("filesystem", operation="write", path="deep/er/file", content="one\ntwo\nthree\n")
    await bench("filesystem", operation="append", path="/workspace/deep/er/file", content="four\n")
    assert (
        await bench("filesystem", operation="read", path="deep/er/file", start_line=2, lines=2)
    ).text == "two\nthree\n"
    assert (await bench.told("shell", command="wc -l < deep/er/file"))["stdout"].strip() == "4"
    assert (await bench("filesystem", operation="list")).text == "deep/\nnote.txt (6 bytes)"
    await bench("filesystem", operation="delete", path="note.txt")
    with pytest.raises(ToolError, match="There is no file"):
        await bench("filesystem", operation="read", path="note.txt")
    assert (await bench.told("shell", agent_id=TWO, command="ls -A"))["stdout"] == "", "another agent has its own"


async def test_no_path_leads_out_of_the_workspace(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the server")
    await bench("shell", agent_id=TWO, command="echo theirs > file")
    await bench("shell", command=f"ln -s {tmp_path}/secret one; ln -s / two; ln -s ../{TWO}/file three; ln -s . four")
    for path in ("one", "../../secret", "two/etc/passwd", "three", f"../{TWO}/file", "a\0b"):
        with pytest.raises(ToolError):
            await bench("filesystem", operation="read", path=path)
        with pytest.raises(ToolError):
            await bench("filesystem", operation="write", path=f"{path}/new", content="x")
    assert (tmp_path / "secret").read_text() == "of the server"
    seen = (await bench.told("shell", command=f"cat one three ../{TWO}/file {tmp_path}/secret; ls /"))["stdout"]
    assert "of the server" not in seen and "theirs" not in seen


async def test_a_link_is_deleted_and_not_what_it_leads_to(bench: Bench) -> None:
    await bench("shell", command="echo kept > file; mkdir dir; ln -s file link; ln -s nowhere broken; ln -s dir to_dir")
    for path in ("link", "/workspace/broken", "to_dir/"):
        await bench("filesystem", operation="delete", path=path)
    assert (await bench("filesystem", operation="list")).text == "dir/\nfile (5 bytes)"
    for path, told in (("", "name a file"), ("..", "name a file"), ("dir/../..", "name a file"), ("../x", "leads out")):
        with pytest.raises(ToolError, match=told):
            await bench("filesystem", operation="delete", path=path)
    with pytest.raises(ToolError, match="There is no file"):
        await bench("filesystem", operation="delete", path="link")


async def test_a_full_workspace_ends_what_fills_it_and_can_be_cleared(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_module, "LOOK_S", 0.01)
    with pytest.raises(ToolError, match="your workspace is full"):
        await bench("shell", command="head -c 3000000 /dev/zero > big; sleep 20")
    told = await bench.told("shell", command="ls; rm big; ls")
    assert told["stdout"] == "big\n", "what is there can be seen and removed"
    assert (await bench("filesystem", operation="write", path="small", content="x")).ok


async def test_what_is_written_where_nobody_sees_it_leaves_the_disk_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_module, "LOOK_S", 0.01)
    monkeypatch.setattr(workspace_module, "FREE_BYTES_MIN", 1 << 60)
    with pytest.raises(ToolError, match="disk has only"):
        await bench("shell", command="exec 3> gone; rm gone; head -c 100000000 /dev/zero >&3; sleep 20")
    assert (await bench.told("shell", command="ls"))["stdout"] == "", "what took nothing is not blamed"


async def test_no_depth_hides_what_fills_a_workspace(bench: Bench) -> None:
    deep = (
        "import os\nfor _ in range(40): os.mkdir('d' * 200); os.chdir('d' * 200)\nopen('f', 'w').write('x' * 3 * 10**6)"
    )
    with pytest.raises(ToolError, match="your workspace is full"):
        await bench("shell", command=f'python3 -c "{deep}"')
    await bench("shell", command="rm -r d*")
    assert (await bench("filesystem", operation="write", path="small", content="x")).ok


async def test_a_removed_workspace_leaves_nothing(bench: Bench) -> None:
    await bench("shell", command="mkdir -p a/b; echo x > a/b/c; ln -s / root; chmod 000 a/b a")
    assert await bench.workspaces.names() == [ONE]
    await bench.workspaces.remove(ONE)
    assert await bench.workspaces.names() == []
    await bench.workspaces.remove(ONE)
