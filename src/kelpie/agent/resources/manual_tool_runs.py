"""Manual tool runs API: a client runs a tool of an agent, as the agent would, or source code that is not stored.

Nothing is written into the agent's history, but the call is recorded like any other and needs the same permission. A
tool that fails is a result and not an error of the request.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kelpie.agent.resources.manual_tool_call import Note, failed, inside_of, outside_of_commits, within_commit
from kelpie.agent.tool_calls import approval_matching
from kelpie.agent.turn.dependencies import TurnDependencies
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.access.passports import Passport
from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.agent_chain import UNCHAINED
from kelpie.core.errors import NotFound, ToolError
from kelpie.core.ids import AgentId, ToolId
from kelpie.core.permissions.call_records import CallOutcome
from kelpie.core.permissions.policies import EffectivePermissions, Refusal
from kelpie.core.permissions.quotas import Quota
from kelpie.core.time import Micros
from kelpie.core.tools import environment_variables
from kelpie.core.tools.sandbox_caps import NO_CAPS, SandboxCaps
from kelpie.core.tools.tools import NewTool, Tool, ToolType
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents
from kelpie.storage.tools import tools
from kelpie.tools.calls import manual_calls
from kelpie.tools.calls.agent_letters import refuse_endless
from kelpie.tools.calls.argument_check import check_arguments
from kelpie.tools.calls.capabilities import subject_of
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.tools.calls.outcome_text import within
from kelpie.tools.code import run_code_with_tools
from kelpie.tools.custom.definition import make
from kelpie.tools.custom.runner import CustomToolRunner
from kelpie.tools.custom.tool_environment import organization_variables
from kelpie.tools.schema.source_reader import SourceReader
from kelpie.world.database import Tx

NO_SANDBOX = "its code needs a sandbox, and this server has none."


@dataclass(frozen=True, slots=True)
class ManualToolResult:
    """Result of a tool. `value` is its return value as JSON, or its text where it has no other value."""

    tool: Tool
    outcome: Outcome
    value: Any


class ManualToolRuns:
    """Tools of the caller's organization."""

    def __init__(
        self,
        dependencies: TurnDependencies,
        workbench: CustomToolRunner | None,
        caller: Caller = DEFAULT_CALLER,
        caps: SandboxCaps = NO_CAPS,
    ) -> None:
        """`caps` are the operator's, on what source that is not stored may ask for."""
        self._dependencies = dependencies
        self._workbench = workbench
        self._caller = caller
        self._caps = caps

    async def run(self, agent_id: AgentId, name: str, arguments: Mapping[str, Any]) -> ManualToolResult:
        """Runs a tool of an agent. Raises NotFound for an agent, or a tool that it has not."""
        ours, database = self._dependencies, self._dependencies.world.database
        now, uuid = ours.world.clock.now(), ours.world.ids.uuid()
        agent, tool, bounds = await database.read(lambda tx: self._find(tx, agent_id, name, now))
        passport = self._caller.passport
        call = CallContext(
            agent,
            now,
            uuid,
            passport.conversation_id if passport else None,
            chain=passport.chain if passport else UNCHAINED,
            run_id=passport.run_id if passport else None,
            step_id=passport.step_id if passport else None,
            block_rules=ours.block_rules,
            tool=name,
            working_memory=ours.working_memory,
            code_egress=_code_egress(passport),
            quota=bounds.quota,
        )
        clock = ours.world.clock
        note = Note(self._caller, agent, tool, now, clock.monotonic_ns, clock.monotonic_ns(), call.meter)
        if (refusal := bounds.refusal(subject_of(tool))) is not None:
            return _tried(tool, await self._turned_away(note, ToolError(refusal.told), refusal), bounds.quota)
        try:
            return _tried(tool, await self._run(ours, call, arguments, note), bounds.quota)
        finally:  # also for who is gone before it has ended
            ours.live_agents.invalidate_spending(agent.id)

    async def attempt(
        self, new: NewTool, name: str | None, arguments: Mapping[str, Any], env: Mapping[str, str]
    ) -> ManualToolResult:
        """Runs a source for no agent. Raises InvalidInput for a source that could not be registered either, or for
        variables that none can be."""
        environment_variables.check_all("env_vars", env)
        self._caps.check(new.sandbox, new.return_char_limit)
        ours, organization = self._dependencies, self._caller.organization_id
        world = ours.world
        now = world.clock.now()
        sources = SourceReader(world.workers, organization)
        tool = await make(sources, new, world.ids.new(ToolId), now, self._caller)
        if name is not None:
            tool = replace(tool, name=name)

        bounds = await world.database.read(
            lambda tx: manual_calls.effective_permissions_of(tx, ours.policy, organization, None, now)
        )
        note = Note(self._caller, None, tool, now, world.clock.monotonic_ns, world.clock.monotonic_ns())
        if (refusal := bounds.refusal(subject_of(tool))) is not None:
            return _tried(tool, await self._turned_away(note, ToolError(refusal.told), refusal), bounds.quota)

        async def work() -> Outcome:
            if self._workbench is None:
                raise ToolError(NO_SANDBOX)
            checked = check_arguments(tool.json_schema, arguments)
            around = await world.database.read(lambda tx: organization_variables(tx, organization, world.keyring))
            return await self._workbench.attempt(tool, checked, around | dict(env), bounds.quota)

        return _tried(tool, await outside_of_commits(world.database, work, note), bounds.quota)

    async def run_mcp(self, tool: Tool, arguments: Mapping[str, Any]) -> ManualToolResult:
        """Runs a tool of an MCP server for no agent. The server checks the arguments."""
        ours, world = self._dependencies, self._dependencies.world
        now, organization = world.clock.now(), self._caller.organization_id
        bounds = await world.database.read(
            lambda tx: manual_calls.effective_permissions_of(tx, ours.policy, organization, None, now)
        )
        note = Note(self._caller, None, tool, now, world.clock.monotonic_ns, world.clock.monotonic_ns())
        if (refusal := bounds.refusal(subject_of(tool))) is not None:
            return _tried(tool, await self._turned_away(note, ToolError(refusal.told), refusal), bounds.quota)

        async def work() -> Outcome:
            assert ours.mcp_tools is not None, "a server has it"
            return await ours.mcp_tools.attempt(tool, arguments, bounds.quota.wall_s)

        return _tried(tool, await outside_of_commits(world.database, work, note), bounds.quota)

    async def _run(
        self, ours: TurnDependencies, call: CallContext, arguments: Mapping[str, Any], note: Note
    ) -> Outcome:
        tool = note.tool
        try:
            if self._caller.passport is not None:
                _check_code(call.agent, tool, self._caller.passport)
            checked = check_arguments(tool.json_schema, arguments)
        except ToolError as error:
            return await self._turned_away(note, error)
        if (inside := inside_of(tool)) is not None:
            return await within_commit(ours, inside, call, checked, note)

        async def work() -> Outcome:
            if (outside := ours.runner(tool)) is None:
                raise ToolError(NO_SANDBOX)
            outcome = await outside(tool, call, checked)
            ours.live_agents.reload(outcome.touched)
            ours.live_agents.enqueue(outcome.begun)
            return outcome

        return await outside_of_commits(ours.world.database, work, note)

    async def _turned_away(self, note: Note, error: ToolError, refusal: Refusal | None = None) -> Outcome:
        """Records a call that is not run."""
        outcome = failed(note.tool, error)
        ended, reason = (CallOutcome.refused, refusal.reason) if refusal else (None, None)
        await self._dependencies.world.database.transact(lambda tx: note.put_down(tx, outcome, ended, reason))
        return outcome

    def _find(self, tx: Tx, agent_id: AgentId, name: str, now: Micros) -> tuple[Agent, Tool, EffectivePermissions]:
        row_ownership.agent(tx, self._caller.organization_id, agent_id)
        tool = next((one for one in tools.of_agent(tx, agent_id) if one.name == name), None)
        if tool is None:
            raise NotFound(f"Tool '{name[:80]}' of the agent", agent_id)
        agent = agents.get(tx, agent_id)
        bounds = manual_calls.effective_permissions_of(tx, self._dependencies.policy, agent.organization_id, agent, now)
        return agent, tool, bounds


def _check_code(agent: Agent, tool: Tool, passport: Passport) -> None:
    """Raises ToolError for a tool that the code of another tool may not call."""
    refuse_endless(passport.chain)
    if approval_matching.needs_approval(agent.tool_rules, tool.name):
        raise ToolError(f"'{tool.name}' needs approval, so code cannot call it. Call the tool directly.")


def _code_egress(passport: Passport | None) -> tuple[str, ...] | None:
    """Hosts to which a call of code may lead: the code's own. A model wrote the code of `run_code_with_tools`, and can
    make the same call itself."""
    return None if passport is None or passport.tool == run_code_with_tools.NAME else passport.egress


def _tried(tool: Tool, outcome: Outcome, quota: Quota) -> ManualToolResult:
    text = within(outcome.text, quota.returned(tool.return_char_limit))
    whole = text is outcome.text
    value = outcome.value if tool.tool_type is ToolType.custom and whole else text
    return ManualToolResult(tool, replace(outcome, text=text), value if outcome.ok else None)
