"""`run_code_with_tools`: Python code that calls its agent's other tools by their names.

Such a call comes back through Kelpie's API with the passport of this one, and is checked there like any other: a tool
that the agent may not use, or that needs an approval, is refused to the code as it would be to the model.
"""

from collections.abc import Mapping
from typing import Any

from kelpie.core.errors import ToolError
from kelpie.core.ids import AgentId
from kelpie.core.tools.confinement import Runner
from kelpie.core.tools.tool_confinement import confined
from kelpie.core.tools.tools import Tool
from kelpie.sandbox.port import Sandbox, SandboxJob
from kelpie.sandbox.runner_messages import function_call
from kelpie.storage.tools import tools as rows
from kelpie.tools.calls.api_callback import ApiCallback
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.tools.code.reports import report
from kelpie.tools.code.run_code import required, with_code
from kelpie.world.database import Database

NAME = "run_code_with_tools"
PROGRAM = "import sys\nsys.path.insert(0, '/run/kelpie')\nfrom agent_tools import perform\n"


class CodeWithTools:
    def __init__(self, sandbox: Sandbox | None, callback: ApiCallback, database: Database) -> None:
        self._sandbox = sandbox
        self._callback = callback
        self._database = database

    async def __call__(self, tool: Tool, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
        """Runs the code and returns its output and how it ended. Raises ToolError."""
        sandbox, code = required(self._sandbox), str(arguments["code"])
        if not code.strip():
            raise ToolError("Nothing was run: 'code' is empty.")
        wanted = confined(tool.sandbox)
        confinement = call.quota.confined(wanted)
        tools = await self._tools(call.agent.id)
        with self._callback.opened(tool, call, confinement.wall_s) as way:
            ended = await sandbox.run(
                SandboxJob(
                    Runner.python,
                    function_call(PROGRAM, "perform", {"code": code, "tools": tools}),
                    env=way.env,
                    confinement=confinement,
                    passport=way.passport,
                    level=call.chain.hops,
                    meter=call.meter,
                    consumer=call.agent.consumer,
                )
            )
        return report(with_code(ended), confinement, wanted, {"language": "python"})

    async def _tools(self, agent_id: AgentId) -> list[dict[str, Any]]:
        """The agent's tools but this one: code that ran itself would go on for ever."""
        found = await self._database.read(lambda tx: rows.of_agent(tx, agent_id))
        return [{"name": each.name, "parameters": _parameters(each)} for each in found if each.name != NAME]


def _parameters(tool: Tool) -> list[str]:
    schema: Mapping[str, Any] = tool.json_schema.get("parameters") or {}
    return list(schema.get("properties") or {})
