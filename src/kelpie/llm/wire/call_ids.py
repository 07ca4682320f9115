"""Ids for tool calls that came without one.

They depend on the request alone, so that a retry gives the same ids, and differ from step to step, because the last
message of a history is another one in each.
"""

from zlib import crc32

from kelpie.llm.provider.interface import Request


def made_call_id(request: Request, index: int) -> str:
    """The id of the call at `index` in the reply to this request: `call_<n>`."""
    last = request.messages[-1].message.id if request.messages else ""
    return f"call_{crc32(f'{last}#{index}'.encode())}"
