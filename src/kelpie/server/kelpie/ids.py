"""Ids by their first characters, for clients in which people type ids."""

import re
from typing import Annotated

from fastapi import Query

from kelpie.agent.resources.id_prefixes import KINDS
from kelpie.core.errors import InvalidInput
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource

router = resource("/kelpie/ids", "ids (Kelpie)")

LIMIT_MAX = 100
PREFIXES_MAX = 100
_PREFIX = re.compile(rf"({'|'.join(KINDS)})-([0-9a-f][0-9a-f-]{{0,35}})")


@router.get("", summary="List the ids that begin with a prefix (Kelpie)", response_model=None)
async def list_ids(
    api: CallerApi,
    prefix: Annotated[
        list[str],
        Query(
            min_length=1,
            max_length=PREFIXES_MAX,
            description="Kind and first characters of an id: `agent-1f3b` (repeatable).",
        ),
    ],
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Maximum number of ids for each prefix.")] = 20,
) -> JsonAnswer:
    ids = await api.id_prefixes.find([_parsed(each) for each in prefix], limit)
    return JsonAnswer([{"id": each, "name": name} for each, name in ids])


def _parsed(prefix: str) -> tuple[str, str]:
    found = _PREFIX.fullmatch(prefix)
    if found is None:
        raise InvalidInput(
            "prefix", f"expected the first characters of an id such as agent-1f3b; kinds are {', '.join(KINDS)}"
        )
    return found[1], found[2]
