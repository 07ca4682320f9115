"""Custom tools between the agent and the cell: what goes in, how each end is told, what is kept and for how long."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kelpie.accounts.passports import Passports
from kelpie.core.agents.agent import Secret
from kelpie.core.errors import InvalidInput, SandboxUnavailable, ToolError
from kelpie.core.ids import DEFAULT_ORGANIZATION, OrganizationId, SandboxConfigId, SandboxVariableId, SecretId, ToolId
from kelpie.core.permissions.quotas import Quota
from kelpie.core.tools.package_requirements import RequiredPackages
from kelpie.core.tools.sandbox_configs import SandboxConfig, SandboxType, SandboxVariable
from kelpie.core.tools.tools import NewTool, Tool
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.sandbox.port import JobEnding, JobResult, SandboxJob
from kelpie.storage.agents import secrets as agent_secrets
from kelpie.storage.encryption.sealing import Sealing
from kelpie.storage.tools import sandbox_configs
from kelpie.tools.calls.api_callback import ApiCallback
from kelpie.tools.calls.interface import CallContext
from kelpie.tools.custom import environments
from kelpie.tools.custom.definition import make
from kelpie.tools.custom.environments import Environments
from kelpie.tools.custom.result_cache import KEPT_US, RESULTS_MAX, ResultCache, result_key
from kelpie.tools.custom.runner import CustomToolRunner
from kelpie.tools.custom.tool_environment import ToolEnvironment
from kelpie.tools.schema import source_program
from kelpie.tools.schema.source_reader import SourceReader
from kelpie.world.database import Tx
from kelpie.world.files.uploads import Upload
from kelpie.world.workers.port import WorkerProgram
from kelpie.world.world import World
from tests.tools.bare_sandbox import BareSandbox
from tests.tools.workshop import ANN, BEN, NOW, make_agent, open_world

TOOL = ToolId("tool-00000000-0000-4000-8000-000000000001")
SQUARE = 'def square(x: int) -> int:\n    """Squares.\n\n    Args:\n        x: it\n    """\n    return x * x\n'


class DirectWorkers:
    """Answers at once, so that a test can make a tool without a loop."""

    async def ask(self, program: WorkerProgram, request: bytes | Upload, owner: str) -> bytes:
        assert isinstance(request, bytes)
        return source_program.answer(request)

    async def close(self) -> None:
        return


def tool(source: str = SQUARE, **fields: Any) -> Tool:
    try:
        make(SourceReader(DirectWorkers(), DEFAULT_ORGANIZATION), NewTool(source, **fields), TOOL, NOW).send(None)
    except StopIteration as made:
        return made.value
    raise AssertionError("the reader answers at once")


def plain(name: str, body: str, signature: str = "") -> str:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f'def {name}({signature}):\n    """It."""\n{lines}\n'


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(tmp_path) as found:
        yield found


def way_back(world: World) -> ApiCallback:
    return ApiCallback(Passports(world.ids, world.clock), world.clock)


def bench(world: World, sandbox: BareSandbox | None = None) -> tuple[CustomToolRunner, BareSandbox]:
    sandbox = sandbox or BareSandbox()
    return CustomToolRunner(world, sandbox, Environments(None), way_back(world)), sandbox


def call(**fields: Any) -> CallContext:
    return CallContext(make_agent(ANN), NOW, "", **fields)


def ended(
    how: JobEnding = JobEnding.finished, result: Any = None, code: int | None = 0, stderr: bytes = b""
) -> JobResult:
    given = None if result is None else json.dumps(result).encode()
    return JobResult(how, code, given, b"", stderr, 1)


async def test_a_result_is_told_as_its_language_writes_it_and_kept_as_json(world: World) -> None:
    run, _ = bench(world)
    outcome = await run(tool(), call(), {"x": 7})
    assert (outcome.text, outcome.value, outcome.ok, outcome.stdout, outcome.stderr) == ("49", 49, True, (), ())
    assert (outcome.cpu_us, outcome.memory_peak_bytes) == (7, 9)
    printing = plain("pr", 'import sys\nprint("out")\nprint("err", file=sys.stderr)\nreturn {"a": None, "l": (1, 2)}')
    outcome = await run(tool(printing), call(), {})
    assert (outcome.text, outcome.value) == ("{'a': None, 'l': (1, 2)}", {"a": None, "l": [1, 2]})
    assert (outcome.stdout, outcome.stderr) == (("out\n",), ("err\n",))


async def test_a_failure_names_the_tool_and_keeps_what_it_printed(world: World) -> None:
    run, _ = bench(world)
    outcome = await run(tool(plain("boom", 'print("before")\nraise ValueError("bad thing")')), call(), {})
    assert (outcome.ok, outcome.text) == (False, "Error executing function boom: ValueError: bad thing")
    assert outcome.stdout == ("before\n",)
    assert outcome.stderr is not None and outcome.stderr[0].startswith("Traceback") and "line 4" in outcome.stderr[0]
    assert "cell_python" not in outcome.stderr[0], "only the tool's own lines are shown"


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (ended(JobEnding.timed_out, code=None), "exceeded its time limit of 3 s"),
        (ended(JobEnding.out_of_memory, code=None), "exceeded its memory limit of 256 MB"),
        (ended(JobEnding.too_much_output, code=None), "exceeded its output limit"),
        (ended(JobEnding.crashed, code=None), "its sandbox failed"),
        (ended(code=3), "exit code 3 before"),
        (ended(result=["no", "answer"]), "exit code 0 before"),
        (ended(result={"ok": True, "text": 5}), "exit code 0 before"),
        (ended(result={"ok": "yes", "text": "x"}), "exit code 0 before"),
    ],
)
async def test_every_other_end_is_a_failure_with_its_reason(world: World, end: JobResult, told: str) -> None:
    run, _ = bench(world, BareSandbox(lambda job: end))
    outcome = await run(tool(sandbox={"timeout_s": 3}), call(), {"x": 1})
    assert not outcome.ok and told in outcome.text and outcome.stderr == (outcome.text,)


async def test_a_result_of_a_job_that_was_ended_is_not_believed(world: World) -> None:
    forged = ended(JobEnding.timed_out, {"ok": True, "text": "done", "value": "done"})
    outcome = await bench(world, BareSandbox(lambda job: forged))[0](tool(), call(), {"x": 1})
    assert not outcome.ok and "done" not in outcome.text


async def test_arguments_are_data_whatever_they_spell(world: World) -> None:
    """Letta put arguments into a script. Here text that would be code there comes back as the text it is."""
    run, sandbox = bench(world)
    echo = tool('def echo(x: str) -> str:\n    """E.\n\n    Args:\n        x: it\n    """\n    return x\n')
    for text in (
        '"); import os; os.abort() #',
        "'''\nraise SystemExit",
        "__import__('os').abort()",
        "\\",
        "\ud83d\ude00",
        "",
    ):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16")
        assert (await run(echo, call(), {"x": text})).value == text
    assert all(json.loads(job.request)["source"] == echo.source_code for job in sandbox.jobs)


async def test_a_megabyte_of_arguments_and_none(world: World) -> None:
    run, _ = bench(world)
    echo = tool('def size(x: str) -> int:\n    """E.\n\n    Args:\n        x: it\n    """\n    return len(x)\n')
    assert (await run(echo, call(), {"x": "é" * 1_000_000})).value == 1_000_000
    assert (await run(tool(plain("nothing", "return None")), call(), {})).text == "None"


async def test_the_environment_holds_the_organisations_variables_and_over_them_the_agents_secrets(world: World) -> None:
    sealing = Sealing(world.keyring, b"seed")

    def furnish(tx: Tx) -> None:
        config = SandboxConfig(
            SandboxConfigId("sandbox-00000000-0000-4000-8000-000000000001"), SandboxType.local, {}, NOW, NOW
        )
        sandbox_configs.insert(tx, config)
        for number, (key, value) in enumerate({"A": "org", "B": "org"}.items()):
            variable = SandboxVariableId(f"sandbox-env-00000000-0000-4000-8000-00000000000{number}")
            sandbox_configs.insert_variable(tx, SandboxVariable(variable, config.id, key, value, NOW, NOW), sealing)
        for number, agent in enumerate((ANN, BEN)):
            secret = SecretId(f"agent-env-00000000-0000-4000-8000-00000000000{number}")
            agent_secrets.replace(tx, agent, [Secret(secret, "B", f"of {agent}", NOW, NOW)], sealing)

    await world.database.transact(furnish)
    run, sandbox = bench(world)
    seen = plain("seen", 'import os\nreturn [os.environ.get(k) for k in "ABC"]')
    assert (await run(tool(seen), call(), {})).value == ["org", f"of {ANN}", None]
    env = sandbox.jobs[0].env
    assert env["LETTA_AGENT_ID"] == ANN and env["LETTA_API_KEY"] == sandbox.jobs[0].passport is not None


async def test_the_state_of_the_agent_is_given_to_who_asks_for_it(world: World) -> None:
    run, sandbox = bench(world)
    asking = tool(plain("asking", "return agent_state.name + agent_state.id", 'agent_state: "AgentState"'))
    assert "agent_state" not in asking.json_schema["parameters"]["properties"], "the model does not fill it in"
    assert (await run(asking, call(), {})).value == f"Ann{ANN}"
    await run(tool(), call(), {"x": 1})
    assert json.loads(sandbox.jobs[1].request)["agent_state"] is None


async def test_the_tools_settings_and_the_agents_limits_hold_the_job(world: World) -> None:
    run, sandbox = bench(world)
    asked = {"timeout_s": 2, "memory_mb": 512, "egress": ["example.com"], "isolation": "vm", "processes": 3}
    await run(tool(sandbox=asked), call(quota=Quota(memory_bytes=100)), {"x": 1})
    held = sandbox.jobs[0].confinement
    assert (held.wall_s, held.memory_bytes, held.egress, held.isolation, held.processes) == (
        2,
        100,
        ("example.com",),
        "vm",
        3,
    )


async def test_a_tool_that_was_replaced_finishes_on_its_old_code(world: World) -> None:
    run, _ = bench(world)
    old, new = tool(), tool(SQUARE.replace("x * x", "-x"))
    before, after = await asyncio.gather(run(old, call(), {"x": 3}), run(new, call(), {"x": 3}))
    assert (before.value, after.value) == (9, -3)


async def test_a_sandbox_that_is_not_there_is_told(world: World) -> None:
    class Missing(BareSandbox):
        async def run(self, job: SandboxJob) -> JobResult:
            raise SandboxUnavailable("install bubblewrap")

    with pytest.raises(ToolError, match="install bubblewrap"):
        await bench(world, Missing())[0](tool(), call(), {"x": 1})
    await bench(world, Missing())[0].prepare(tool())


# --- results that are kept ---


async def test_the_result_of_a_deterministic_tool_is_kept_for_five_minutes(world: World) -> None:
    run, sandbox = bench(world)
    sure = tool(sandbox={"deterministic": True})
    assert [(await run(sure, call(), {"x": 2})).value for _ in range(3)] == [4, 4, 4]
    assert len(sandbox.jobs) == 1
    await run(sure, call(), {"x": 3})
    await run(replace(sure, version=2), call(), {"x": 2})
    other = CallContext(make_agent(BEN), NOW, "")
    await run(sure, other, {"x": 2})
    assert len(sandbox.jobs) == 4, "other arguments, another version and another agent are other calls"
    await run(tool(), call(), {"x": 2})
    await run(tool(), call(), {"x": 2})
    assert len(sandbox.jobs) == 6, "a tool that says nothing runs every time"


async def test_failures_are_not_kept(world: World) -> None:
    run, sandbox = bench(world, BareSandbox(lambda job: ended(code=1)))
    sure = tool(sandbox={"deterministic": True})
    await run(sure, call(), {"x": 2})
    await run(sure, call(), {"x": 2})
    assert len(sandbox.jobs) == 2


async def test_a_kept_result_takes_nothing_of_what_its_agent_has_in_an_hour(world: World) -> None:
    run, _ = bench(world)
    sure = tool(sandbox={"deterministic": True})
    took = [(each.cpu_us, each.memory_peak_bytes) for each in [await run(sure, call(), {"x": 2}) for _ in range(2)]]
    assert took == [(7, 9), (0, 0)]


async def test_a_result_is_kept_for_what_the_tool_has_seen_of_its_agent(world: World) -> None:
    run, sandbox = bench(world)
    sure = tool(plain("looks", 'return agent_state["name"]', "agent_state"), sandbox={"deterministic": True})
    ann = call()
    before = [(await run(sure, ann, {})).value for _ in range(2)]
    renamed = (await run(sure, replace(ann, agent=replace(ann.agent, name="renamed")), {})).value
    assert (*before, renamed) == (ann.agent.name, ann.agent.name, "renamed")
    assert len(sandbox.jobs) == 2


def test_what_decides_over_a_result_can_be_any_json() -> None:
    given: list[Any] = [1, 1.0, True, "1", None, float("nan"), 10**30, [], {}, "\ud800", {"x": 1}]
    keys = [result_key(tool(), ANN, ToolEnvironment({}), {"x": each}) for each in given]
    keys.append(result_key(tool(), ANN, ToolEnvironment({"K": "v"}), {"x": 1}))
    assert len(set(keys)) == len(keys)


async def test_kept_results_are_bounded_in_time_and_number(world: World) -> None:
    class Hand:
        at = NOW

        def now(self) -> int:
            return self.at

        def monotonic_ns(self) -> int:
            return 0

    clock = Hand()
    kept, outcome = ResultCache(clock), await bench(world)[0](tool(), call(), {"x": 2})
    kept.put(key := "key", outcome)
    clock.at = NOW + KEPT_US - 1
    assert kept.get(key) == replace(outcome, cpu_us=0, memory_peak_bytes=0)
    clock.at += 1
    assert kept.get(key) is None and kept.get(key) is None
    for number in range(RESULTS_MAX + 1):
        kept.put(str(number), outcome)
    assert kept.get("0") is None and kept.get("1") is not None
    kept.put("long", replace(outcome, text="x" * 100_000))
    assert kept.get("long") is None
    for number in range(100):
        kept.put(f"large-{number}", replace(outcome, text="x" * 64_000))
        kept.put("again", replace(outcome, text="x" * 64_000))
    there = [number for number in range(100) if kept.get(f"large-{number}") is not None]
    assert 50 < len(there) < 70 and there[-1] == 99, "those that were used last, and no more than there is room for"


# --- packages ---


class Shelf:
    """Packages that are installed when the test says so."""

    def __init__(self, problem: str | None = None) -> None:
        self.installed: list[RequiredPackages] = []
        self.there: dict[RequiredPackages, str] = {}
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.problem = problem
        self.kept: list[str] = []  # the sets in use when the last installation was done

    def find(self, wanted: RequiredPackages) -> str | None:
        return self.there.get(wanted)

    async def install(self, wanted: RequiredPackages, in_use: Any) -> str:
        self.installed.append(wanted)
        self.begun.set()
        await self.go.wait()
        self.kept = sorted(in_use)
        if self.problem:
            raise ToolError(self.problem)
        self.there[wanted] = f"/shelf/{len(self.there)}"
        return self.there[wanted]

    async def node_reads_types(self) -> bool | None:
        return False


def needing(*names: str) -> Tool:
    return tool(pip_requirements=tuple({"name": name, "version": "1"} for name in names))


async def test_installations_of_one_organization_do_not_keep_another_waiting(world: World) -> None:
    shelf, sandbox = Shelf(), BareSandbox(lambda job: ended(result={"ok": True, "text": "x", "value": "x"}))
    held = Environments(shelf, OrganizationShare(organizations=2))
    run = CustomToolRunner(world, sandbox, held, way_back(world))
    async with asyncio.timeout(60):
        many = [asyncio.create_task(run(needing(name), call(), {"x": 1})) for name in "abcd"]
        while len(held._under_way) < 4:  # noqa: ASYNC110 - a read of the database comes first
            await asyncio.sleep(0.001)
        other = replace(needing("e"), organization_id=OrganizationId("org-00000000-0000-4000-8000-00000000000b"))
        theirs = asyncio.create_task(run(other, call(), {"x": 1}))
        while len(shelf.installed) < 2:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.001)
        assert [each.lines for each in shelf.installed][1:] == [("e==1",)], "the other one comes second"
        shelf.go.set()
        await asyncio.gather(*many, theirs)


async def test_no_more_sets_wait_than_there_is_room_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "INSTALLS_MAX", 2)
    shelf, sandbox = Shelf(), BareSandbox(lambda job: ended(result={"ok": True, "text": "x", "value": "x"}))
    held = Environments(shelf)
    run = CustomToolRunner(world, sandbox, held, way_back(world))
    async with asyncio.timeout(60):
        waiting = [asyncio.create_task(run(needing(name), call(), {"x": 1})) for name in ("a", "b")]
        while len(held._under_way) < 2:  # noqa: ASYNC110 - a read of the database comes first
            await asyncio.sleep(0.001)
        with pytest.raises(ToolError, match="package installations are already waiting"):
            await run(needing("c"), call(), {"x": 1})
        shelf.go.set()
        await asyncio.gather(*waiting)
        await run(needing("c"), call(), {"x": 1})


async def test_one_set_is_installed_once_however_many_ask(world: World) -> None:
    shelf, sandbox = Shelf(), BareSandbox(lambda job: ended(result={"ok": True, "text": "x", "value": "x"}))
    run = CustomToolRunner(world, sandbox, Environments(shelf), way_back(world))
    same = [needing("a", "b"), needing("b", "a"), needing("a", "b")]
    calls = [asyncio.create_task(run(each, call(), {"x": 1})) for each in same]
    gone = asyncio.create_task(run(needing("a", "b"), call(), {"x": 1}))
    async with asyncio.timeout(10):
        await shelf.begun.wait()
        gone.cancel()  # who goes away does not take it from the others
        shelf.go.set()
        await asyncio.gather(*calls)
        await run(needing("a", "b"), call(), {"x": 1})
        await run(needing("a"), call(), {"x": 1})
    assert [each.lines for each in shelf.installed] == [("a==1", "b==1"), ("a==1",)]
    assert {(m.source, m.target, m.writable) for job in sandbox.jobs[:4] for m in job.mounts} == {
        ("/shelf/0", "/packages", False)
    }
    assert json.loads(sandbox.jobs[0].request)["paths"] == ["/packages"]


async def test_who_goes_away_takes_an_installation_from_nobody(world: World) -> None:
    shelf = Shelf()
    held = Environments(shelf)

    async def used() -> None:
        async with held.of(needing("a")) as mounts:
            assert [mount.source for mount in mounts] == ["/shelf/0"]

    async with asyncio.timeout(10):
        first, second = (asyncio.create_task(used()) for _ in range(2))
        await shelf.begun.wait()
        first.cancel()
        await asyncio.wait((first,))
        shelf.go.set()
        await second
        await used()
    assert len(shelf.installed) == 1 and not held._in_use and not held._under_way and not held._waiting


async def test_an_installation_that_failed_is_tried_again_by_the_next_call() -> None:
    shelf = Shelf("no network")
    shelf.go.set()
    held = Environments(shelf)
    for _ in range(2):
        with pytest.raises(ToolError, match="no network"):
            async with held.of(needing("a")):
                pass
    shelf.problem = None
    async with held.of(needing("a")) as mounts:
        assert len(mounts) == 1
    assert len(shelf.installed) == 3


async def test_sets_of_one_organization_leave_room_for_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "INSTALLS_MAX", 2)
    shelf = Shelf()
    held = Environments(shelf)

    async def used(wanted: Tool) -> None:
        async with held.of(wanted):
            pass

    async with asyncio.timeout(10):
        mine = [asyncio.create_task(used(needing(name))) for name in "ab"]
        await shelf.begun.wait()
        other = replace(needing("c"), organization_id=OrganizationId("org-00000000-0000-4000-8000-00000000000b"))
        theirs = asyncio.create_task(used(other))
        await asyncio.sleep(0)
        assert not theirs.done()
        shelf.go.set()
        await asyncio.gather(*mine, theirs)


async def test_sets_in_use_are_named_to_the_installer_as_long_as_one_call_runs_with_them(world: World) -> None:
    shelf = Shelf()
    shelf.go.set()
    held = Environments(shelf)

    async def kept_meanwhile(name: str) -> list[str]:
        async with held.of(needing(name)):
            return shelf.kept

    async with held.of(needing("a")):
        async with held.of(needing("a")):
            assert await kept_meanwhile("b") == ["/shelf/0"]
        assert await kept_meanwhile("c") == ["/shelf/0"], "one call still runs with it"
    assert await kept_meanwhile("d") == []


async def test_a_failed_installation_is_told_to_who_registers_and_to_the_model(world: World) -> None:
    shelf = Shelf("pip could not install a==1: no such version")
    shelf.go.set()
    run = CustomToolRunner(world, BareSandbox(), Environments(shelf), way_back(world))
    with pytest.raises(InvalidInput, match="pip_requirements: pip could not install a==1: no such version"):
        await run.prepare(needing("a"))
    with pytest.raises(ToolError, match="no such version"):
        await run(needing("a"), call(), {"x": 1})


async def test_where_nothing_is_installed_a_tool_is_stored_and_its_call_refused(world: World) -> None:
    run, _ = bench(world)
    await run.prepare(needing("a"))
    with pytest.raises(ToolError, match="package installation is switched off"):
        await run(needing("a"), call(), {"x": 1})


async def test_an_older_node_gets_help_with_typescript(world: World) -> None:
    shelf, sandbox = Shelf(), BareSandbox(lambda job: ended(result={"ok": True, "text": "3", "value": 3}))
    shelf.go.set()
    schema: Mapping[str, Any] = {"name": "add", "parameters": {"type": "object", "properties": {"b": {}, "a": {}}}}
    typed = tool("function add(b: number, a: number) { return a + b }", source_type="typescript", json_schema=schema)
    await CustomToolRunner(world, sandbox, Environments(shelf), way_back(world))(typed, call(), {"a": 1, "b": 2})
    (wanted,) = shelf.installed
    assert wanted.index == "npm" and wanted.lines[0].startswith("amaro@")
    assert wanted.integrity[0][0] == wanted.lines[0] and wanted.integrity[0][1].startswith("sha512-")
    request = json.loads(sandbox.jobs[0].request)
    assert (sandbox.jobs[0].runner, request["order"], request["typescript"]) == ("node", ["b", "a"], True)
    assert [mount.target for mount in sandbox.jobs[0].mounts] == ["/node_modules"]
    assert typed.organization_id == DEFAULT_ORGANIZATION
