"""Batches of agents (Kelpie): create or delete up to 100 in one request. Each has an outcome of its own."""

from collections.abc import Awaitable
from typing import Annotated, Any

import orjson
from fastapi import Query

from kelpie.core.conversations.batches import ITEMS_MAX
from kelpie.core.errors import InvalidInput, KelpieError
from kelpie.core.ids import AgentId
from kelpie.server.http.errors import refusal
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.batches.body import CreateAgents, DeleteAgents
from kelpie.server.letta.templates.routes import Project, ProjectId, create_agent

router = resource("/agents/batch", "agents")

Ids = Annotated[
    list[str] | None, Query(max_length=ITEMS_MAX, description="Agents to delete; repeat it, or use commas.")
]


@router.post("", summary="Create up to 100 agents (Kelpie)", response_model=None)
async def create_agents(
    api: CallerApi, body: CreateAgents, project_id: ProjectId = None, project: Project = None
) -> JsonAnswer:
    results: list[dict[str, Any]] = []
    for index, new in enumerate(body.agents):
        made = await _outcome(create_agent(api, new, project_id, project))
        if isinstance(made, JsonAnswer):
            agent = orjson.loads(made.body)
            results.append({"index": index, "status": "created", "id": agent["id"], "agent": agent, "error": None})
        else:
            results.append({"index": index, "status": "failed", "id": None, "agent": None, "error": made})
    return _answer(results)


@router.delete("", summary="Delete up to 100 agents and their messages (Kelpie)", response_model=None)
async def delete_agents(api: CallerApi, body: DeleteAgents | None = None, ids: Ids = None) -> JsonAnswer:
    named = [each for text in ids or () for each in text.split(",") if each]
    wanted = list(dict.fromkeys([*named, *(body.ids if body is not None else ())]))
    if not wanted:
        raise InvalidInput("ids", "give the ids of the agents, in the body or as ?ids=")
    if len(wanted) > ITEMS_MAX:
        raise InvalidInput("ids", f"give at most {ITEMS_MAX} ids")
    results: list[dict[str, Any]] = []
    for index, text in enumerate(wanted):
        error = await _outcome(_delete(api, text))
        status = "deleted" if error is None else "failed"
        results.append({"index": index, "status": status, "id": text, "error": error})
    return _answer(results)


async def _delete(api: CallerApi, text: str) -> None:
    await api.agents.delete(AgentId.parse(text))


async def _outcome(work: Awaitable[Any]) -> Any:
    """What the work returns, or its error as clients see it: one that fails leaves the others alone."""
    try:
        return await work
    except KelpieError as error:
        told = refusal(error)
        return {"status": told.status, "code": told.code, "message": told.message}


def _answer(results: list[dict[str, Any]]) -> JsonAnswer:
    failed = sum(each["status"] == "failed" for each in results)
    counts = {"total": len(results), "succeeded": len(results) - failed, "failed": failed}
    return JsonAnswer({**counts, "results": results}, 207 if failed else 200)
