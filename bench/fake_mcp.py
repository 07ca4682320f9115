"""A small MCP server for the measurements: `fake_mcp.py stdio`, or `fake_mcp.py PORT` over HTTP. One tool adds numbers.

It speaks 2025-11-25 without sessions, with the standard library alone, and prints `ready` when it listens.
"""

import asyncio
import json
import sys
from typing import Any

NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOLS = [{"name": "add", "description": "Adds.", "inputSchema": NUMBERS}]


def answered(message: dict[str, Any]) -> dict[str, Any] | None:
    if "id" not in message:
        return None
    method, params = message["method"], message.get("params") or {}
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        answer["result"] = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "fake"}}
    elif method == "tools/list":
        answer["result"] = {"tools": TOOLS}
    elif method == "tools/call":
        total = params["arguments"]["a"] + params["arguments"]["b"]
        answer["result"] = {"content": [{"type": "text", "text": str(total)}]}
    else:
        answer["error"] = {"code": -32601, "message": f"no method {method}"}
    return answer


def over_stdio() -> None:
    for line in sys.stdin:
        if (answer := answered(json.loads(line))) is not None:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


async def over_http(port: int) -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", port)
    print(f"ready {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = next((int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), 0)
            body = await reader.readexactly(length)
            answer = answered(json.loads(body)) if head.startswith("post") else {}
            status = "202 Accepted" if answer is None else "200 OK" if answer else "405 Method Not Allowed"
            sent = json.dumps(answer).encode() if answer else b""
            writer.write(f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n".encode())
            writer.write(f"content-length: {len(sent)}\r\n\r\n".encode() + sent)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        over_stdio()
    else:
        asyncio.run(over_http(int(sys.argv[1])))
