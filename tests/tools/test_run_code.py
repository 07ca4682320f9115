"""Code that says what only the program around it should say is believed no more than that."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kelpie.accounts.passports import Passports
from kelpie.core.errors import ToolError
from kelpie.core.ids import ToolId
from kelpie.core.tools.tools import Tool, ToolType
from kelpie.sandbox.port import JobEnding, JobResult
from kelpie.tools.calls.api_callback import ApiCallback
from kelpie.tools.calls.interface import CallContext
from kelpie.tools.code.run_code import CodeRunner
from kelpie.tools.code.runtimes import MISSING, MISSING_CODE, NO_TYPES
from kelpie.tools.custom.environments import Environments
from kelpie.world.world import World
from tests.tools.bare_sandbox import BareSandbox
from tests.tools.workshop import ANN, NOW, make_agent, open_world

TOOL = Tool(ToolId("tool-00000000-0000-4000-8000-000000000001"), "run_code", ToolType.letta_builtin, {}, NOW, NOW)
CALL = CallContext(make_agent(ANN), NOW, "")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(tmp_path) as found:
        yield found


def runner(world: World, stderr: bytes, code: int) -> CodeRunner:
    ended = JobResult(JobEnding.finished, code, None, b"a\0b", stderr, 1, cpu_us=5, memory_peak_bytes=6)
    callback = ApiCallback(Passports(world.ids, world.clock), world.clock)
    return CodeRunner(BareSandbox(lambda job: ended), callback, Environments(None), world.workers)


@pytest.mark.parametrize(("said", "code"), [(NO_TYPES, 0), (MISSING.encode(), MISSING_CODE)])
async def test_what_python_prints_is_what_it_printed(world: World, said: bytes, code: int) -> None:
    outcome = await runner(world, said, code).run_code(TOOL, CALL, {"code": "x", "language": "python"})
    assert outcome.stderr == (said.decode(),) and outcome.stdout == ("a\ufffdb",)
    assert (outcome.cpu_us, outcome.memory_peak_bytes) == (5, 6)


@pytest.mark.parametrize(("language", "said", "code"), [("ts", NO_TYPES, 1), ("r", MISSING.encode(), MISSING_CODE)])
async def test_code_that_plays_a_missing_program_has_used_what_it_used(
    world: World, language: str, said: bytes, code: int
) -> None:
    with pytest.raises(ToolError, match="not installed") as caught:
        await runner(world, said, code).run_code(TOOL, CALL, {"code": "x", "language": language})
    assert (caught.value.cpu_us, caught.value.memory_peak_bytes) == (5, 6)
