"""`shell`: a command in a cell, in the agent's own workspace."""

from collections.abc import Mapping
from typing import Any

from kelpie.core.confinement import Runner
from kelpie.core.errors import ToolError
from kelpie.core.tool_sandbox import confined
from kelpie.core.tools import Tool
from kelpie.sandbox.port import Job, Sandbox
from kelpie.tools.callback import Callback
from kelpie.tools.code.programs import command
from kelpie.tools.code.reports import report
from kelpie.tools.code.running import required
from kelpie.tools.code.workspace import TARGET, Workspace
from kelpie.tools.port import CallContext, Outcome


class Shell:
    def __init__(self, sandbox: Sandbox | None, callback: Callback, workspace: Workspace) -> None:
        self._sandbox = sandbox
        self._callback = callback
        self._workspace = workspace

    async def __call__(self, tool: Tool, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
        """Runs the command and gives what it printed and how it ended. Raises ToolError."""
        sandbox, text = required(self._sandbox), str(arguments["command"])
        if not text.strip():
            raise ToolError("'command' is empty; nothing was run.")
        confinement = call.quota.confined(confined(tool.sandbox))
        mount = await self._workspace.mount(call.agent.id)
        with self._callback.opened(tool, call, confinement.wall_s) as way:
            job = Job(
                Runner.command,
                command("sh", "-c", text, cwd=TARGET),
                env={**way.env, "HOME": TARGET},
                mounts=(mount,),
                confinement=confinement,
                passport=way.passport,
                level=call.chain.hops,
                meter=call.meter,
            )
            return report(await self._workspace.watched(call.agent.id, sandbox.run(job), call.meter), confinement)
