"""Encoder of requests in Anthropic's messages format.

The system prompt and the last block are marked for the provider's prompt cache, which includes the tools. Parameters
that a model is known to refuse are left out, so that an agent can be moved to another model with its settings
unchanged.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from kelpie.llm.anthropic.message_rows import CACHED, WIRE, encode_messages, encode_row, has_thoughts
from kelpie.llm.catalog import known_models
from kelpie.llm.catalog.claude_traits import Traits, traits
from kelpie.llm.catalog.thinking_defaults import BUDGET_TOKENS_MIN
from kelpie.llm.provider.interface import PreparedHistory, Request, ToolSchema
from kelpie.llm.wire.json_bytes import array, dumps, plain

METADATA_CHARS_MAX = 256


def encode_request(request: Request, *, thoughts: bool = True) -> bytes:
    """The body of the call; without `thoughts`, those of earlier turns are not sent again, and none are requested where
    they are optional."""
    known, asked = traits(request.model), request.options.get("thinking")
    asked = asked if isinstance(asked, Mapping) else {}
    thinking, thinks = _thinking(request, known, asked, thoughts)
    body: dict[str, Any] = {"model": request.model, "max_tokens": _max_tokens(request, thinking)}
    if request.system.strip():
        system = dumps({"type": "text", "text": request.system}).removesuffix(b"}") + CACHED
        body["system"] = array([system])
    body["messages"] = encode_messages(request.messages)
    body |= _tools(request, forced=known.forced_tools and not thinks)
    if thinking:
        body["thinking"] = thinking
    if known.sampling and not thinks:
        body |= _sampling(request)
    body |= _settings(request)
    if request.deltas:
        body["stream"] = True
    return orjson.dumps(body, default=plain)


def forget_thoughts(request: Request) -> bool:
    """Removes the thoughts from every row for good, because the provider no longer accepts them. False: there were
    none."""
    rows = [row for row in request.messages if has_thoughts(row.message)]
    for row in rows:
        encode_row(row, thoughts=False)
    if isinstance(request.messages, PreparedHistory):
        request.messages.encoded.pop(WIRE, None)
    return bool(rows)


def _thinking(
    request: Request, known: Traits, asked: Mapping[str, Any], thoughts: bool
) -> tuple[dict[str, Any] | None, bool]:
    """The thinking parameter, and whether the model will think."""
    kind = asked.get("type")
    if not known.can_think or (not known.thinks_unasked and kind in (None, "disabled")):
        return None, False
    if known.off and (kind == "disabled" or (kind is None and _forced(request))):
        return {"type": known.off}, False
    if kind == "disabled":
        return None, True  # it thinks all the same
    if known.adaptive:
        return {"type": "adaptive", "display": "summarized"}, True
    if not thoughts or not _may_think(request):
        return None, False
    if kind == "adaptive":
        return {"type": "adaptive"}, True
    budget = asked.get("budget_tokens")
    tokens = budget if isinstance(budget, int) else BUDGET_TOKENS_MIN
    return {"type": "enabled", "budget_tokens": max(tokens, BUDGET_TOKENS_MIN)}, True


def _may_think(request: Request) -> bool:
    """Checks whether thinking can be used: a model with a thinking budget continues after tool calls only if the
    thoughts before them are sent again."""
    for row in reversed(request.messages):
        if not row.message.tool_returns:
            return not row.message.tool_calls or has_thoughts(row.message)
    return True


def _max_tokens(request: Request, thinking: Mapping[str, Any] | None) -> int:
    room = request.max_tokens or known_models.max_output_tokens(request.model) or known_models.MAX_TOKENS_DEFAULT
    budget = (thinking or {}).get("budget_tokens", 0)
    return room if room > budget else room + budget


def _forced(request: Request) -> bool:
    return bool(request.tools) and request.tool_choice not in ("auto", "none")


def _tools(request: Request, *, forced: bool) -> dict[str, Any]:
    if not request.tools:
        return {}
    choice: dict[str, Any] = {"type": "auto"}
    if request.tool_choice == "none":
        choice = {"type": "none"}
    elif forced and request.tool_choice == "required":
        choice = {"type": "any"}
    elif forced and request.tool_choice != "auto":
        choice = {"type": "tool", "name": request.tool_choice}
    if choice["type"] != "none" and not request.parallel_tool_calls:
        choice["disable_parallel_tool_use"] = True
    return {"tools": array([*map(_tool, request.tools)]), "tool_choice": choice}


def _tool(tool: ToolSchema) -> bytes:
    schema = {"type": "object", **tool.parameters}
    return dumps({"name": tool.name, "description": tool.description, "input_schema": schema})


def _sampling(request: Request) -> dict[str, Any]:
    if request.temperature is not None:
        return {"temperature": min(request.temperature, 1.0)}  # others count to 2
    top_p = request.options.get("top_p")  # refused beside a temperature
    return {} if top_p is None else {"top_p": top_p}


def _settings(request: Request) -> dict[str, Any]:
    options, found = request.options, dict[str, Any]()
    output: dict[str, Any] = {}
    if options.get("effort"):
        output["effort"] = options["effort"]
    wanted = options.get("response_format")
    schema = wanted.get("json_schema") if isinstance(wanted, Mapping) else None
    if isinstance(schema, Mapping) and isinstance(schema.get("schema"), Mapping):
        output["format"] = {"type": "json_schema", "schema": schema["schema"]}
    if output:
        found["output_config"] = output
    stop = options.get("stop")
    if stop:
        found["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if request.user:
        found["metadata"] = {"user_id": request.user[:METADATA_CHARS_MAX]}
    return found
