"""Preparation and runs of custom tools: their source and arguments go into a cell as data, and a result comes out.

Nothing of a tool runs in the server process, and its output is never more than text. A call works on the tool as it was
when the call was planned; a tool that is replaced or deleted meanwhile finishes on its old code.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kelpie.core.access.consumers import Consumer
from kelpie.core.errors import InvalidInput, SandboxUnavailable, ToolError
from kelpie.core.permissions.quotas import UNBOUNDED, Quota
from kelpie.core.tools.confinement import DEFAULT_CONFINEMENT, Confinement
from kelpie.core.tools.package_requirements import Index
from kelpie.core.tools.tool_confinement import confined, is_deterministic
from kelpie.core.tools.tools import Tool
from kelpie.observe import logs
from kelpie.sandbox.port import Mount, Runner, Sandbox, SandboxJob
from kelpie.sandbox.runner_messages import function_call, read_answer
from kelpie.tools.calls.api_callback import ApiCallback
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.tools.calls.outcome_text import outcome_of
from kelpie.tools.custom.definition import is_python
from kelpie.tools.custom.environments import PYTHON_PACKAGES, Environments
from kelpie.tools.custom.result_cache import ResultCache, result_key
from kelpie.tools.custom.tool_environment import PARAMETER, tool_environment
from kelpie.world.world import World

_log = logs.get("tools")


class CustomToolRunner:
    """Runs custom tools: the `ExternalTool` of all agents, and sources that a client wants to try."""

    def __init__(self, world: World, sandbox: Sandbox, environments: Environments, callback: ApiCallback) -> None:
        self._world = world
        self._sandbox = sandbox
        self._environments = environments
        self._callback = callback
        self._results = ResultCache(world.clock)

    async def __call__(self, tool: Tool, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
        """Runs a tool of an agent. Raises ToolError when it could not be run at all."""
        wants_state = PARAMETER in (tool.source_code or "")
        keyring = self._world.keyring
        around = await self._world.database.read(lambda tx: tool_environment(tx, call.agent, wants_state, keyring))
        held = call.quota.confined(confined(tool.sandbox))
        key = result_key(tool, call.agent.id, around, arguments) if is_deterministic(tool.sandbox) else None
        if key is not None and (kept := self._results.get(key)) is not None:
            return kept
        with self._callback.opened(tool, call, held.wall_s) as way:
            env = {**around.env, **way.env}
            outcome = await self._run(tool, arguments, env, held, around.state, way.passport, call)
        if key is not None:
            self._results.put(key, outcome)
        return outcome

    async def attempt(
        self, tool: Tool, arguments: Mapping[str, Any], env: Mapping[str, str], quota: Quota = UNBOUNDED
    ) -> Outcome:
        """Runs a source that is not stored, for no agent. Raises ToolError when it could not be run at all."""
        return await self._run(tool, arguments, env, quota.confined(confined(tool.sandbox)))

    async def prepare(self, tool: Tool) -> None:
        """Installs what a tool needs before it is stored. Raises InvalidInput for bad packages or a bad source."""
        index = Index.pip if is_python(tool.source_type) else Index.npm
        asked = tool.pip_requirements if index is Index.pip else tool.npm_requirements
        try:
            async with self._environments.of(tool) as mounts:
                if index is Index.npm:
                    await self._check(tool, mounts)
        except ToolError as error:
            if asked and self._environments.installs:
                raise InvalidInput(f"{index}_requirements", str(error)) from error
            _log.warning("tool_not_runnable", "Tool stored, but it cannot run yet", tool=tool.name, error=str(error))

    async def close(self) -> None:
        """Cancels running installations. The sandbox is closed by its owner."""
        await self._environments.close()

    async def _run(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        env: Mapping[str, str],
        held: Confinement,
        state: Mapping[str, Any] | None = None,
        passport: str | None = None,
        call: CallContext | None = None,
    ) -> Outcome:
        async with self._environments.of(tool) as mounts:
            job = _job(tool, _request(tool, arguments, state, mounts), env, mounts, held)
            if call is not None:
                job = replace(
                    job, passport=passport, level=call.chain.hops, meter=call.meter, consumer=call.agent.consumer
                )
            return outcome_of(tool.name, await self._sandbox.run(job), held, confined(tool.sandbox))

    async def _check(self, tool: Tool, mounts: tuple[Mount, ...]) -> None:
        """Raises InvalidInput with the line of what Node cannot parse. Without a sandbox, nothing is checked."""
        request = function_call(tool.source_code or "", None, {}, typescript=_typed(tool), check=True)
        try:
            ended = await self._sandbox.run(_job(tool, request, {}, mounts, DEFAULT_CONFINEMENT))
        except SandboxUnavailable as error:
            _log.warning("tool_syntax_unchecked", "Tool syntax could not be checked", tool=tool.name, error=str(error))
            return
        answer = None if ended.result is None else read_answer(ended.result)
        if answer is not None and not answer.ok:
            raise InvalidInput("source_code", f"is not valid {tool.source_type}: {answer.text}")


def _typed(tool: Tool) -> bool:
    return tool.source_type == "typescript"


def _request(
    tool: Tool, arguments: Mapping[str, Any], state: Mapping[str, Any] | None, mounts: tuple[Mount, ...]
) -> bytes:
    parameters: Mapping[str, Any] = tool.json_schema.get("parameters") or {}
    order = list(parameters.get("properties") or {})
    return function_call(
        tool.source_code or "",
        tool.name,
        arguments,
        order=order if PARAMETER in order or state is None else [*order, PARAMETER],
        agent_state=state,
        paths=[mount.target for mount in mounts if mount.target == PYTHON_PACKAGES],
        typescript=_typed(tool),
    )


def _job(
    tool: Tool, request: bytes, env: Mapping[str, str], mounts: tuple[Mount, ...], held: Confinement
) -> SandboxJob:
    runner = Runner.python if is_python(tool.source_type) else Runner.node
    return SandboxJob(runner, request, dict(env), mounts, held, consumer=Consumer(tool.organization_id))
