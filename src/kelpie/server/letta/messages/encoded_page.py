"""A page of messages as JSON. Messages do not change, and clients list the same ones again and again, so each is kept
as it was written, by its version.
"""

from typing import TYPE_CHECKING, Any

import orjson

from kelpie.core.conversations.messages import Message, MessageQuery
from kelpie.core.encoded_json import EncodedJson
from kelpie.core.ids import AgentId
from kelpie.server.http.json_answer import JsonAnswer, joined
from kelpie.server.letta.messages.shape import View, wire_messages

if TYPE_CHECKING:
    from kelpie.api import Api

Version = tuple[Any, ...]


async def encoded_page(api: "Api", agent_id: AgentId, query: MessageQuery, view: View) -> JsonAnswer:
    """Raises NotFound."""
    cache = api.encoded_messages
    known: dict[Version, EncodedJson] = {}  # also what leaves the cache while the others are read

    def size_of(version: Version) -> int | None:
        if (found := cache.get((version, view))) is None:
            return None
        known[version] = found
        return found.bytes

    def shapes(each: tuple[Version, Message | None]) -> tuple[orjson.Fragment, ...]:
        version, message = each
        if message is None:
            found = known[version]
        else:
            found = EncodedJson(b",".join([orjson.dumps(one) for one in wire_messages(message, view)]))
            if not message.lost:
                cache.put((version, view), found)
        return (orjson.Fragment(found.text),) if found.text else ()

    return await joined(await api.histories.message_versions(agent_id, query, size_of), shapes)
