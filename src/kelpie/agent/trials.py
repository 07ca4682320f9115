"""The door to running a tool by hand: one of an agent's, as the agent would, or a source that nobody has stored.

Nothing is written into the agent's history, but the call is recorded like any other and needs the same permission. A
tool that fails is a result and not an error of the request.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kelpie.agent import approvals
from kelpie.agent.calls import since
from kelpie.agent.equipment import Equipment
from kelpie.core.accounts import DEFAULT_CALLER, Caller
from kelpie.core.agents import Agent
from kelpie.core.chains import UNCHAINED
from kelpie.core.errors import CallerError, NotFound, ToolError
from kelpie.core.ids import AgentId, ToolId
from kelpie.core.passports import Passport
from kelpie.core.policies import Warrant
from kelpie.core.time import Micros
from kelpie.core.tool_calls import CallOutcome, Took
from kelpie.core.tools import NewTool, Tool, ToolType
from kelpie.storage import agents, sandbox_configs, scope, tools
from kelpie.tools import by_hand
from kelpie.tools.arguments import check_arguments
from kelpie.tools.capabilities import subject_of
from kelpie.tools.custom import make
from kelpie.tools.letters import refuse_endless
from kelpie.tools.port import CallContext, Outcome
from kelpie.tools.registry import preparation, transactional
from kelpie.tools.tool_ending import within
from kelpie.tools.workbench import Workbench
from kelpie.world.database import Tx

NO_SANDBOX = "its code would need a sandbox, and this server has none."


@dataclass(frozen=True, slots=True)
class Tried:
    """What a tool gave. `value` is what it returned, as JSON, or its text where it has no other value."""

    tool: Tool
    outcome: Outcome
    value: Any


class Trials:
    """Tools of the caller's organisation."""

    def __init__(
        self, equipment: Callable[[], Equipment], workbench: Workbench | None, caller: Caller = DEFAULT_CALLER
    ) -> None:
        self._equipment = equipment
        self._workbench = workbench
        self._caller = caller

    async def run(self, agent_id: AgentId, name: str, arguments: Mapping[str, Any]) -> Tried:
        """Runs a tool of an agent. Raises NotFound for an agent, or a tool that it has not."""
        ours, database = self._equipment(), self._equipment().world.database
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
            quota=bounds.quota,
        )
        refusal, began = bounds.refusal(subject_of(tool)), ours.world.clock.monotonic_ns()
        try:
            if refusal is not None:
                raise ToolError(refusal.told)
            if passport is not None:
                _check_code(agent, tool, passport)
            outcome = await _run(ours, tool, call, check_arguments(tool.json_schema, arguments))
        except (ToolError, CallerError) as error:
            outcome = _failed(tool, error)
        await self._put_down(agent, tool, outcome, now, began, refused=refusal is not None)
        return _tried(tool, outcome)

    async def attempt(
        self, new: NewTool, name: str | None, arguments: Mapping[str, Any], env: Mapping[str, str]
    ) -> Tried:
        """Runs a source for no agent. Raises InvalidInput for a source that could not be registered either."""
        ours, organization = self._equipment(), self._caller.organization_id
        world = ours.world
        now = world.clock.now()
        tool = make(new, world.ids.new(ToolId), now, self._caller)
        if name is not None:
            tool = replace(tool, name=name)

        def read(tx: Tx) -> tuple[Warrant, dict[str, str]]:
            bounds = by_hand.warrant_of(tx, ours.policy, organization, None, now)
            return bounds, sandbox_configs.environment(tx, organization)

        bounds, around = await world.database.read(read)
        refusal, began = bounds.refusal(subject_of(tool)), world.clock.monotonic_ns()
        try:
            if refusal is not None:
                raise ToolError(refusal.told)
            if self._workbench is None:
                raise ToolError(NO_SANDBOX)
            checked = check_arguments(tool.json_schema, arguments)
            outcome = await self._workbench.attempt(tool, checked, around | dict(env), bounds.quota)
        except ToolError as error:
            outcome = _failed(tool, error)
        await self._put_down(None, tool, outcome, now, began, refused=refusal is not None)
        return _tried(tool, outcome)

    async def _put_down(
        self, agent: Agent | None, tool: Tool, outcome: Outcome, now: Micros, began: int, *, refused: bool
    ) -> None:
        world, organization = self._equipment().world, self._caller.organization_id
        took = Took(since(began, world.clock.monotonic_ns), outcome.cpu_us, outcome.memory_peak_bytes)
        ended = CallOutcome.refused if refused else CallOutcome.success if outcome.ok else CallOutcome.error
        passport = self._caller.passport
        run_id, step_id = (passport.run_id, passport.step_id) if passport else (None, None)
        await world.database.transact(
            lambda tx: by_hand.record(tx, organization, tool, ended, took, now, agent, run_id, step_id)
        )
        if agent is not None:
            self._equipment().recount(agent.id)

    def _find(self, tx: Tx, agent_id: AgentId, name: str, now: Micros) -> tuple[Agent, Tool, Warrant]:
        scope.agent(tx, self._caller.organization_id, agent_id)
        tool = next((one for one in tools.of_agent(tx, agent_id) if one.name == name), None)
        if tool is None:
            raise NotFound(f"Tool '{name[:80]}' of the agent", agent_id)
        agent = agents.get(tx, agent_id)
        bounds = by_hand.warrant_of(tx, self._equipment().policy, agent.organization_id, agent, now)
        return agent, tool, bounds


def _check_code(agent: Agent, tool: Tool, passport: Passport) -> None:
    """What the code of a tool may not make of other tools. Raises ToolError."""
    refuse_endless(passport.chain)
    if approvals.needs_approval(agent.tool_rules, tool.name):
        raise ToolError(f"'{tool.name}' needs a person's approval, so code cannot call it. Call it yourself.")


async def _run(ours: Equipment, tool: Tool, call: CallContext, arguments: dict[str, Any]) -> Outcome:
    inside = None if tool.tool_type is ToolType.custom else transactional(tool.name)
    if inside is None:
        outside = ours.runner(tool)
        if outside is None:
            raise ToolError(NO_SANDBOX)
        outcome = await outside(tool, call, arguments)
    else:
        prepare = preparation(tool.name)
        if prepare is not None:
            call = replace(call, insight=await prepare(ours.foresight, call, arguments))
        outcome = await ours.world.database.transact(lambda tx: inside(tx, call, arguments))
    ours.touched(outcome.touched)
    ours.summon(outcome.begun)
    return outcome


def _failed(tool: Tool, error: ToolError | CallerError) -> Outcome:
    text = f"Error executing function {tool.name}: {error}"
    cpu, peak = (error.cpu_us, error.memory_peak_bytes) if isinstance(error, ToolError) else (0, 0)
    return Outcome(text, ok=False, stdout=(), stderr=(text,), cpu_us=cpu, memory_peak_bytes=peak)


def _tried(tool: Tool, outcome: Outcome) -> Tried:
    text = within(outcome.text, tool.return_char_limit)
    whole = text is outcome.text
    value = outcome.value if tool.tool_type is ToolType.custom and whole else text
    return Tried(tool, replace(outcome, text=text), value if outcome.ok else None)
