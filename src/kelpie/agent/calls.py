"""Tool calls: checked when they are executed, not only when tools are listed, and answered exactly once each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kelpie.agent.prompt import HEARTBEAT, THINKING, read_object
from kelpie.core.agents import Agent
from kelpie.core.errors import CallerError, ToolError
from kelpie.core.messages import ToolCall, ToolReturn
from kelpie.core.tools import Tool, ToolType
from kelpie.tools.arguments import check_arguments
from kelpie.tools.port import CallContext, ExternalTool, Outcome, TransactionalTool
from kelpie.tools.registry import transactional
from kelpie.world.database import Tx

INTERRUPTED = (
    "Interrupted: the server stopped while this tool was running. It may or may not have taken effect; "
    "check before you call it again."
)


@dataclass(frozen=True, slots=True)
class Planned:
    """A call that has been checked. Exactly one of `refusal`, `transactional`, `external` is set."""

    call: ToolCall
    arguments: dict[str, Any]
    heartbeat: bool
    tool: Tool | None = None
    refusal: str | None = None
    transactional: TransactionalTool | None = None
    external: ExternalTool | None = None


def plan(call: ToolCall, agent: Agent, tools: Sequence[Tool], external: ExternalTool | None) -> Planned:
    """Decides how a call will be answered; never raises for what the model did wrong."""
    arguments = read_object(call.arguments)
    if arguments is None:
        return Planned(call, {}, False, refusal="The arguments are not a JSON object. Call again with valid JSON.")
    heartbeat = arguments.pop(HEARTBEAT, False) is True
    arguments.pop(THINKING, None)
    tool = next((t for t in tools if t.name == call.name), None)
    if tool is None:
        names = ", ".join(t.name for t in tools) or "none"
        text = f"You have no tool named '{call.name}', so nothing was run. Your tools: {names}."
        return Planned(call, arguments, heartbeat, refusal=text)
    if any(r.type == "requires_approval" and r.tool_name == tool.name for r in agent.tool_rules):
        text = f"'{tool.name}' may only run with a person's approval, which cannot be asked for yet; it was not run."
        return Planned(call, arguments, heartbeat, tool, refusal=text)
    try:
        arguments = check_arguments(tool.json_schema, arguments)
    except ToolError as error:
        return Planned(call, arguments, heartbeat, tool, refusal=str(error))
    return _with_runner(Planned(call, arguments, heartbeat, tool), tool, external)


def _with_runner(planned: Planned, tool: Tool, external: ExternalTool | None) -> Planned:
    inside = None if tool.tool_type is ToolType.custom else transactional(tool.name)
    if inside is not None:
        return Planned(planned.call, planned.arguments, planned.heartbeat, tool, transactional=inside)
    if external is not None:
        return Planned(planned.call, planned.arguments, planned.heartbeat, tool, external=external)
    text = f"'{tool.name}' was not run: its code would need a sandbox, and this server has none."
    return Planned(planned.call, planned.arguments, planned.heartbeat, tool, refusal=text)


def run_inside(tx: Tx, planned: Planned, context: CallContext) -> tuple[ToolReturn, Outcome | None]:
    """Answers a refused or transactional call within a commit; a tool that fails leaves nothing written."""
    if planned.refusal is not None or planned.transactional is None:
        return _failed(planned, planned.refusal or INTERRUPTED), None
    savepoint = tx.begin_nested()
    try:
        outcome = planned.transactional(tx, context, planned.arguments)
    except (ToolError, CallerError) as error:
        savepoint.rollback()
        return _failed(planned, str(error)), None
    savepoint.commit()
    return _returned(planned, outcome), outcome


async def run_outside(planned: Planned, context: CallContext) -> ToolReturn:
    """Runs an external call; what it raises as ToolError is its result."""
    assert planned.external is not None and planned.tool is not None
    try:
        return _returned(planned, await planned.external(planned.tool, context, planned.arguments))
    except ToolError as error:
        return _failed(planned, str(error))


def interrupted(call: ToolCall) -> ToolReturn:
    """The result of a call that a crash left open."""
    return ToolReturn(call.id, call.name, False, INTERRUPTED, None, (INTERRUPTED,))


def _returned(planned: Planned, outcome: Outcome) -> ToolReturn:
    limit = planned.tool.return_char_limit if planned.tool else len(outcome.text)
    text = outcome.text
    if len(text) > limit:
        text = f"{text[:limit]}\n[The result was cut: {len(text)} characters are more than the {limit} allowed.]"
    return ToolReturn(planned.call.id, planned.call.name, outcome.ok, text, outcome.stdout, outcome.stderr)


def _failed(planned: Planned, text: str) -> ToolReturn:
    return ToolReturn(planned.call.id, planned.call.name, False, text, None, (text,))
