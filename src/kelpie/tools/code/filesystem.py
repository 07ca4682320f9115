"""`filesystem`: reading, writing and listing files of the agent's own workspace, from within a cell."""

from collections.abc import Mapping
from typing import Any

from kelpie.core.errors import ToolError
from kelpie.core.tools.confinement import Runner
from kelpie.core.tools.tool_confinement import confined
from kelpie.core.tools.tools import Tool
from kelpie.sandbox.port import JobEnding, Sandbox, SandboxJob
from kelpie.sandbox.runner_messages import function_call, read_answer
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.tools.code.reports import report
from kelpie.tools.code.run_code import required
from kelpie.tools.code.workspace import Workspace

OPERATIONS = ("read", "write", "append", "list", "delete")
CONTENT_CHARS_MAX = 1_000_000
# The program is part of every cell; this finds it.
PROGRAM = "import sys\nsys.path.insert(0, '/run/kelpie')\nfrom workspace_files import perform\n"


class Filesystem:
    def __init__(self, sandbox: Sandbox | None, workspace: Workspace) -> None:
        self._sandbox = sandbox
        self._workspace = workspace

    async def __call__(self, tool: Tool, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
        """Performs one operation on a file and returns its result. Raises ToolError."""
        sandbox, given = required(self._sandbox), {key: value for key, value in arguments.items() if value is not None}
        if given["operation"] not in OPERATIONS:
            raise ToolError(f"'operation' must be one of {', '.join(OPERATIONS)}.")
        if len(given.get("content", "")) > CONTENT_CHARS_MAX:
            raise ToolError(f"'content' has more than {CONTENT_CHARS_MAX} characters; write it in parts with 'append'.")
        wanted = confined(tool.sandbox)
        confinement = call.quota.confined(wanted)
        mount = await self._workspace.mount(call.agent.id)
        asked = function_call(PROGRAM, "perform", given)
        hops, meter = call.chain.hops, call.meter
        job = SandboxJob(
            Runner.python,
            asked,
            mounts=(mount,),
            confinement=confinement,
            level=hops,
            meter=meter,
            consumer=call.agent.consumer,
        )
        ended = await self._workspace.watched(call.agent.id, sandbox.run(job), meter)
        answer = read_answer(ended.result) if ended.result is not None else None
        if ended.how is not JobEnding.finished or answer is None:
            return report(ended, confinement, wanted)
        spent = ended.cpu_us, ended.memory_peak_bytes
        if not answer.ok:
            raise ToolError(_plainly(answer.text), cpu_us=spent[0], memory_peak_bytes=spent[1])
        return Outcome(answer.text, cpu_us=spent[0], memory_peak_bytes=spent[1])


def _plainly(error: str) -> str:
    """The error, without the name of Python's class where that says nothing."""
    return error.removeprefix("ValueError: ")
