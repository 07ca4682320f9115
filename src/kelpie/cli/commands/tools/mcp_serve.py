"""`kelpie mcp serve`: the server's /mcp over the standard input and output, for clients that start a program.

Each line is one JSON-RPC message and is sent to the running server as it is. Nothing is answered here but that no
server answers.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from kelpie.cli.output import say
from kelpie.core.errors import KelpieError
from kelpie.mcp.protocol import http_headers
from kelpie.world.http.cli_client import Client
from kelpie.world.http.line_bridge import LineBridge

PATH = "/mcp"
SILENCE_S = 120.0  # the server sends a sign of life more often than that
PARSE_ERROR, INTERNAL_ERROR = -32700, -32603
_META, _VERSION = "_meta", "io.modelcontextprotocol/protocolVersion"


class McpBridge:
    """One client that started this program, and the server behind it."""

    def __init__(self, server: Client) -> None:
        self._server = server
        self._version: str | None = None  # that `initialize` agreed on

    def answer(self, line: bytes) -> Iterator[bytes]:
        """The lines that answer one line."""
        try:
            message = json.loads(line)
        except ValueError:
            yield _failure(None, PARSE_ERROR, "The line is not a JSON document.")
            return
        named: dict[str, Any] = message if isinstance(message, dict) else {}
        try:
            for document in self._server.documents(PATH, line, self._headers(named), SILENCE_S):
                if named.get("method") == "initialize":
                    self._agree(document)
                yield document
        except KelpieError as error:
            say(f"kelpie: {error}", file=sys.stderr)
            if "id" in named and "method" in named:
                yield _failure(named["id"], INTERNAL_ERROR, str(error))

    def _headers(self, message: dict[str, Any]) -> dict[str, str]:
        """The headers that repeat parts of the message, as its generation requires them."""
        method, params = message.get("method"), message.get("params")
        params = params if isinstance(params, dict) else {}
        meta = params.get(_META)
        version = meta.get(_VERSION) if isinstance(meta, dict) else None
        if isinstance(version, str) and isinstance(method, str):
            return http_headers.routing(version, method, params)
        return {http_headers.VERSION: self._version} if self._version else {}

    def _agree(self, document: bytes) -> None:
        result = json.loads(document).get("result")
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        self._version = version if isinstance(version, str) else None


def serve(server: Client) -> None:
    """Works until the input ends."""
    LineBridge(McpBridge(server).answer).run()


def _failure(request_id: Any, code: int, text: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}).encode()
