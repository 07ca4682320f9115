"""The methods of MCP that Kelpie answers, for both generations. A method that is not here is unknown to it.

What a tool raises is the result of its call; what another method raises becomes a JSON-RPC error.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from kelpie.core.conversations.runs import UNFINISHED, Run
from kelpie.core.errors import CallerError, InvalidInput, KelpieError, NotFound, ToolError
from kelpie.mcp.protocol.envelope import META, Rejected
from kelpie.mcp.protocol.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    TASK,
)
from kelpie.mcp.protocol.tasks import EXTENSION, RELATED_KEY
from kelpie.mcp.protocol.versions import VERSIONS, agreed_session
from kelpie.server.http.errors import refusal
from kelpie.server.mcp import agent_resources, completions, prompts, tools, turn_tasks
from kelpie.server.mcp.peer import Peer
from kelpie.server.mcp.prompts import PromptDefinition
from kelpie.server.mcp.results import SERVER, tool_error
from kelpie.server.mcp.tool_definitions import DEFINITIONS, SEND_MESSAGE, ToolDefinition
from kelpie.tools.calls.argument_check import check_arguments

REFUSED = -32000  # of those that the protocol leaves to servers: not allowed, too many, in conflict
TASK_AFTER_S = 5.0  # a turn that takes longer becomes a task, for clients that take tasks
INSTRUCTIONS = (
    "Kelpie runs agents that remember. Find one with list_agents and talk to it with send_message. The other tools "
    "read and change the memory of an agent."
)

Params = Mapping[str, Any]
Result = dict[str, Any]
Method = Callable[[Peer, Params], Awaitable[Result]]


# --- start of a connection ------------------------------------------------------------------------------------------


async def initialize(peer: Peer, params: Params) -> Result:
    version = agreed_session(params.get("protocolVersion"))
    answered = Peer(peer.api, peer.given, version)
    return {
        "protocolVersion": version,
        "capabilities": _capabilities(answered),
        "serverInfo": SERVER,
        "instructions": INSTRUCTIONS,
    }


async def discover(peer: Peer, params: Params) -> Result:
    return {"supportedVersions": list(VERSIONS), "capabilities": _capabilities(peer), "instructions": INSTRUCTIONS}


async def ping(peer: Peer, params: Params) -> Result:
    return {}


def _capabilities(peer: Peer) -> Result:
    found: Result = {"tools": {}, "resources": {}, "prompts": {}, "completions": {}}
    if peer.stateless:
        found["extensions"] = {EXTENSION: {}}
    elif peer.asks_for_tasks:
        found["tasks"] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
    return found


# --- tools ----------------------------------------------------------------------------------------------------------


async def list_tools(peer: Peer, params: Params) -> Result:
    offered = (each for each in DEFINITIONS if peer.may_write or not each.writes)
    return {"tools": [each.wire(tasks=peer.asks_for_tasks) for each in offered]}


def called(peer: Peer, params: Params) -> ToolDefinition:
    """The tool that a call names. Raises Rejected, also for a tool that the client may not use."""
    name, arguments = params.get("name"), params.get("arguments")
    found = next((each for each in DEFINITIONS if each.name == name), None)
    if found is None or (found.writes and not peer.may_write):
        raise Rejected(INVALID_PARAMS, f"Unknown tool: {str(name)[:80]}")
    if arguments is not None and not isinstance(arguments, Mapping):
        raise Rejected(INVALID_PARAMS, "arguments must be an object")
    return found


async def call_tool(peer: Peer, tool: ToolDefinition, params: Params) -> AsyncGenerator[str | Result, None]:
    """Yields a word about each step of a long call, and then its result."""
    try:
        arguments = check_arguments({"parameters": tool.schema}, params.get("arguments") or {})
        if tool is not SEND_MESSAGE:
            yield await tools.FUNCTIONS[tool.name](peer, arguments)
            return
        run = await tools.start_turn(peer, arguments)
        if peer.asks_for_tasks and params.get("task") is not None:
            yield {"task": (await turn_tasks.task_of(peer, run)).session_wire()}
            return
        async for word in _turn(peer, run):
            yield word
    except ToolError as error:
        yield tool_error(str(error))
    except KelpieError as error:
        yield tool_error(_sentence(error))


async def _turn(peer: Peer, run: Run) -> AsyncGenerator[str | Result, None]:
    """The steps of a turn and its result; or a task, if the client takes one and the turn takes long."""
    deadline = asyncio.get_running_loop().time() + TASK_AFTER_S if peer.takes_tasks else None
    async with aclosing(turn_tasks.steps(peer, run.id)) as steps:
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    word = await anext(steps)
            except StopAsyncIteration:
                break
            except TimeoutError:
                run = await peer.api.runs.get(run.id)
                if run.status in UNFINISHED:
                    yield {"resultType": TASK, **(await turn_tasks.task_of(peer, run)).wire()}
                    return
                break
            yield word
    yield await turn_tasks.result_of(peer, await turn_tasks.ended(peer, run))


# --- tasks ----------------------------------------------------------------------------------------------------------


async def get_task(peer: Peer, params: Params) -> Result:
    run = await turn_tasks.find(peer, _text(params, "taskId"))
    if peer.stateless:
        return (await turn_tasks.task_of(peer, run, with_result=True)).wire()
    return (await turn_tasks.task_of(peer, run)).session_wire()


async def task_result(peer: Peer, params: Params) -> Result:
    """Waits for the end of the task."""
    run = await turn_tasks.find(peer, _text(params, "taskId"))
    async for _ in turn_tasks.steps(peer, run.id):
        pass
    result = await turn_tasks.result_of(peer, await turn_tasks.ended(peer, run))
    return {**result, META: {RELATED_KEY: {"taskId": run.id}}}


async def cancel_task(peer: Peer, params: Params) -> Result:
    run = await turn_tasks.cancel(peer, _text(params, "taskId"))
    return {} if peer.stateless else (await turn_tasks.task_of(peer, run)).session_wire()


# --- resources ------------------------------------------------------------------------------------------------------


async def list_resources(peer: Peer, params: Params) -> Result:
    cursor = params.get("cursor")
    return await agent_resources.listed(peer, None if cursor is None else _text(params, "cursor"))


async def list_templates(peer: Peer, params: Params) -> Result:
    return {"resourceTemplates": list(agent_resources.TEMPLATES)}


async def read_resource(peer: Peer, params: Params) -> Result:
    uri = _text(params, "uri")
    try:
        return await agent_resources.read(peer, uri)
    except NotFound as error:
        code = INVALID_PARAMS if peer.stateless else RESOURCE_NOT_FOUND
        raise Rejected(code, str(error), {"uri": uri[:200]}) from None


# --- prompts --------------------------------------------------------------------------------------------------------


async def list_prompts(peer: Peer, params: Params) -> Result:
    return {"prompts": [each.wire() for each in prompts.DEFINITIONS if peer.may_write or not each.writes]}


async def get_prompt(peer: Peer, params: Params) -> Result:
    prompt = _prompt(peer, params.get("name"))
    arguments = prompts.checked(prompt, params.get("arguments"))
    return {"description": prompt.description, "messages": await prompts.messages(peer, prompt, arguments)}


async def complete(peer: Peer, params: Params) -> Result:
    """Completes an argument of a prompt, or of a resource's address."""
    reference, argument, context = (params.get(name) for name in ("ref", "argument", "context"))
    if not isinstance(reference, Mapping) or not isinstance(argument, Mapping):
        raise Rejected(INVALID_PARAMS, "params.ref and params.argument must be objects")
    name, typed = _text(argument, "name"), argument.get("value")
    others = context.get("arguments") if isinstance(context, Mapping) else None
    if reference.get("type") == "ref/prompt":
        known = name in _prompt(peer, reference.get("name")).arguments
    else:
        known = f"{{{name}}}" in _template(reference.get("uri"))
    if not known or not isinstance(typed, str):
        return completions.shape([])
    return completions.shape(await completions.values(peer, name, typed, others if isinstance(others, Mapping) else {}))


def _prompt(peer: Peer, name: object) -> PromptDefinition:
    """Raises Rejected."""
    found = next((each for each in prompts.DEFINITIONS if each.name == name), None)
    if found is None or (found.writes and not peer.may_write):
        raise Rejected(INVALID_PARAMS, f"Unknown prompt: {str(name)[:80]}")
    return found


def _template(uri: object) -> str:
    """Raises Rejected."""
    found = next((each["uriTemplate"] for each in agent_resources.TEMPLATES if each["uriTemplate"] == uri), None)
    if found is None:
        raise Rejected(INVALID_PARAMS, f"Unknown resource template: {str(uri)[:80]}")
    return found


# --- choice of the method -------------------------------------------------------------------------------------------

_BOTH: Mapping[str, Method] = {
    "tools/list": list_tools,
    "resources/list": list_resources,
    "resources/templates/list": list_templates,
    "resources/read": read_resource,
    "prompts/list": list_prompts,
    "prompts/get": get_prompt,
    "completion/complete": complete,
    "tasks/get": get_task,
    "tasks/cancel": cancel_task,
}
_STATELESS: Mapping[str, Method] = {**_BOTH, "server/discover": discover}
_SESSION: Mapping[str, Method] = {**_BOTH, "initialize": initialize, "ping": ping, "tasks/result": task_result}


async def answer(peer: Peer, method: str, params: Params) -> Result:
    """The result of a method other than `tools/call`. Raises Rejected."""
    found = (_STATELESS if peer.stateless else _SESSION).get(method)
    if found is None:
        raise Rejected(METHOD_NOT_FOUND, f"Method not found: {method[:80]}")
    try:
        return await found(peer, params)
    except KelpieError as error:
        raise rejected(error) from None


def rejected(error: KelpieError) -> Rejected:
    """An error of Kelpie as a JSON-RPC error with the same sentence."""
    told = refusal(error)
    if isinstance(error, InvalidInput | NotFound):
        return Rejected(INVALID_PARAMS, told.message)
    code = REFUSED if isinstance(error, CallerError) else INTERNAL_ERROR
    return Rejected(code, told.message, {"status": told.status})


def _sentence(error: KelpieError) -> str:
    told = refusal(error)
    return f"{told.message} {told.hint}" if told.hint else told.message


def _text(params: Params, name: str) -> str:
    """Raises Rejected."""
    value = params.get(name)
    if not isinstance(value, str) or not value:
        raise Rejected(INVALID_PARAMS, f"params.{name} must be text")
    return value
