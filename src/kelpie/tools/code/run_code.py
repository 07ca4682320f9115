"""`run_code`: code in one of a few languages in a cell of its own, with access to the agent through Kelpie's API."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from kelpie.core.errors import SandboxUnavailable, ToolError
from kelpie.core.tools.languages import Language, detect
from kelpie.core.tools.tool_confinement import confined
from kelpie.core.tools.tools import Tool
from kelpie.sandbox.port import JobResult, Sandbox, SandboxJob
from kelpie.sandbox.runner_messages import read_answer
from kelpie.tools.calls.api_callback import ApiCallback
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.tools.code.reports import report
from kelpie.tools.code.runtimes import (
    MISSING,
    MISSING_CODE,
    NO_TYPES,
    RUNTIMES,
    SOURCE_TYPES,
    default_confinement,
    request,
)
from kelpie.tools.custom.environments import Environments

NO_SANDBOX = "the code was not run: it needs a sandbox, and this server has none"


class CodeRunner:
    """`sandbox` is None where no sandbox is available."""

    def __init__(self, sandbox: Sandbox | None, callback: ApiCallback, environments: Environments) -> None:
        self._sandbox = sandbox
        self._callback = callback
        self._environments = environments

    async def run_code(self, tool: Tool, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
        """Runs code and returns its output and how it ended. Raises ToolError."""
        sandbox, code = required(self._sandbox), str(arguments["code"])
        if not code.strip():
            raise ToolError("Nothing was run: 'code' is empty.")
        named = arguments.get("language")
        language = Language(named) if named else detect(code)
        wanted = confined(tool.sandbox, default_confinement(language))
        confinement = call.quota.confined(wanted)
        runner, asked = request(language, code)
        source_type = SOURCE_TYPES.get(language)
        async with AsyncExitStack() as stack:
            mounts = ()
            if source_type is not None:  # packages that the operator has given the tool, and what the language needs
                mounts = await stack.enter_async_context(self._environments.of(replace(tool, source_type=source_type)))
            way = stack.enter_context(self._callback.opened(tool, call, confinement.wall_s))
            job = SandboxJob(
                runner,
                asked,
                way.env,
                mounts,
                confinement,
                way.passport,
                call.chain.hops,
                call.meter,
                call.agent.consumer,
            )
            ended = await sandbox.run(job)
        if _is_missing(language, ended):
            told = _missing(language, guessed=not named)
            raise ToolError(told, cpu_us=ended.cpu_us, memory_peak_bytes=ended.memory_peak_bytes)
        facts = {"language": language.value} | ({} if named else {"detected": True})
        return report(with_code(ended), confinement, wanted, facts)


def required(sandbox: Sandbox | None) -> Sandbox:
    """Raises SandboxUnavailable."""
    if sandbox is None:
        raise SandboxUnavailable(NO_SANDBOX)
    return sandbox


def _is_missing(language: Language, ended: JobResult) -> bool:
    """True if the program in the cell reports a missing runtime. The code can print the same, and then gets that
    report.
    """
    if language is Language.ts:
        return NO_TYPES in ended.stderr
    return language in RUNTIMES and ended.code == MISSING_CODE and MISSING.encode() in ended.stderr


def _missing(language: Language, *, guessed: bool) -> str:
    runtime = RUNTIMES[language]
    told = f"{runtime.title} is not installed on this server, so the code was not run. "
    if guessed:
        told += f"The code was detected as {language.value}; if that is wrong, set 'language'. "
    return f"{told}Write it in Python, or ask the operator to {runtime.remedy}."


def with_code(ended: JobResult) -> JobResult:
    """A runner that answered for the code reports how the code ended, since the runner itself succeeded."""
    if ended.result is None:
        return ended
    answer = read_answer(ended.result)
    if answer is not None and answer.ok:
        return replace(ended, code=0)
    said = b"" if answer is None or answer.text.encode() in ended.stderr else f"{answer.text}\n".encode()
    return replace(ended, code=1, stderr=ended.stderr + said)
