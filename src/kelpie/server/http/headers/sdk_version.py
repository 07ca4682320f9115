"""Detection of clients that expect the answers of the 1.x SDKs: no relations unless asked for, and null after attaching
a tool.
"""

import re
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends
from starlette.datastructures import Headers
from starlette.requests import Request

_SDK_V1 = re.compile(r"(@letta-ai/)?letta-client/1\.")


def is_v1(headers: Headers) -> bool:
    """True if a client expects the answers of SDK 1.x. A client that does not name itself counts as one."""
    if "x-stainless-package-version" in headers:
        return True
    agent = headers.get("user-agent")
    return agent is None or _SDK_V1.match(agent) is not None


async def _is_v1(request: Request) -> bool:
    return is_v1(request.headers)


if TYPE_CHECKING:
    SdkV1 = bool
else:
    SdkV1 = Annotated[bool, Depends(_is_v1)]
