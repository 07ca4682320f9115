"""The least that a server can do on Kelpie's stack for a JSON answer: the same ASGI server and event loop, no routes.

`PUT /name` keeps a document, and every other request to `/name` gets it, encoded anew; the body of a request is parsed.
Prints its port. Only for benchmarks.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import uvicorn
import uvloop

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class BareJson:
    """An ASGI application."""

    def __init__(self) -> None:
        self._documents: dict[str, Any] = {}

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body = b""
        while True:
            piece = await receive()
            body += piece.get("body", b"")
            if not piece.get("more_body"):
                break
        given = orjson.loads(body) if body else None
        if scope["method"] == "PUT":
            self._documents[scope["path"]] = given
        answer = orjson.dumps(self._documents[scope["path"]])
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


async def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    app: Any = BareJson()
    config = uvicorn.Config(app, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False)
    print(listening.getsockname()[1], flush=True)
    await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
