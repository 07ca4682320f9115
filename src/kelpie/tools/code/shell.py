"""`shell`: a command in a cell, in the agent's own workspace."""

from collections.abc import Mapping
from typing import Any

from kelpie.core.errors import ToolError
from kelpie.core.tools.confinement import Runner
from kelpie.core.tools.tool_confinement import confined
from kelpie.core.tools.tools import Tool
from kelpie.sandbox.port import Sandbox, SandboxJob
from kelpie.tools.calls.api_callback import ApiCallback
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.tools.code.reports import report
from kelpie.tools.code.run_code import required
from kelpie.tools.code.runtimes import command
from kelpie.tools.code.workspace import TARGET, Workspace


class Shell:
    def __init__(self, sandbox: Sandbox | None, callback: ApiCallback, workspace: Workspace) -> None:
        self._sandbox = sandbox
        self._callback = callback
        self._workspace = workspace

    async def __call__(self, tool: Tool, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
        """Runs the command and returns its output and how it ended. Raises ToolError."""
        sandbox, text = required(self._sandbox), str(arguments["command"])
        if not text.strip():
            raise ToolError("Nothing was run: 'command' is empty.")
        wanted = confined(tool.sandbox)
        confinement = call.quota.confined(wanted)
        mount = await self._workspace.mount(call.agent.id)
        with self._callback.opened(tool, call, confinement.wall_s) as way:
            job = SandboxJob(
                Runner.command,
                command("sh", "-c", text, cwd=TARGET),
                env={**way.env, "HOME": TARGET},
                mounts=(mount,),
                confinement=confinement,
                passport=way.passport,
                level=call.chain.hops,
                meter=call.meter,
                consumer=call.agent.consumer,
            )
            ended = await self._workspace.watched(call.agent.id, sandbox.run(job), call.meter)
        return report(ended, confinement, wanted)
