"""The tags resource: tags of agents and blocks. The cursors are tags."""

from typing import Annotated, Literal

from fastapi import Query

from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.paging import After, Before, Order, limit_query, page_of
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource

PART_CHARS_MAX = 1000

router = resource("/tags", "tags")

Part = Annotated[str | None, Query(max_length=PART_CHARS_MAX, description="Return only tags that contain this text.")]


@router.get("/", summary="List the tags of agents and blocks", response_model=None)
async def list_tags(
    api: CallerApi,
    before: Before = None,
    after: After = None,
    limit: int | None = limit_query(50),
    order: Order = "asc",
    order_by: Literal["name"] = "name",
    name: Part = None,
    query_text: Annotated[Part, Query(deprecated=True)] = None,
) -> JsonAnswer:
    return JsonAnswer(await api.tags.page(page_of(before, after, limit, order), name or query_text))
