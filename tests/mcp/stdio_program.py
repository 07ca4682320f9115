"""An MCP server over standard input and output that misbehaves on request; the standard library alone.

Its first argument is how it starts: `ok`, `crash`, `slow`, `silent`, `chatty` (prints text before its messages),
`stateless` (speaks 2026-07-28 only). Its tools do what their names say.
"""

import json
import os
import pathlib
import sys
import time

HOW = sys.argv[1] if len(sys.argv) > 1 else "ok"
NO_ARGUMENTS = {"type": "object", "properties": {}}
TOOLS = {
    "add": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
    "fail": NO_ARGUMENTS,
    "crash": NO_ARGUMENTS,
    "hang": NO_ARGUMENTS,
    "garbage": NO_ARGUMENTS,
    "big": NO_ARGUMENTS,
    "ask": NO_ARGUMENTS,
    "grow": NO_ARGUMENTS,
    "steps": NO_ARGUMENTS,
    "read": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def say(message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def text(words: str, *, error: bool = False) -> dict:
    done = {"content": [{"type": "text", "text": words}], "isError": error}
    return done | ({"resultType": "complete"} if HOW == "stateless" else {})


def ask(params: dict) -> dict:
    """Asks for a name; in the stateless generation with the result, before with a request."""
    if HOW == "stateless":
        answers = params.get("inputResponses")
        if answers is None:
            request = {"method": "elicitation/create", "params": {"message": "Your name?", "requestedSchema": NAME}}
            return {"resultType": "input_required", "inputRequests": {"who": request}, "requestState": "kept"}
        assert params["requestState"] == "kept"
        answer = answers["who"]
    else:
        params = {"message": "Your name?", "requestedSchema": NAME}
        say({"jsonrpc": "2.0", "id": "q1", "method": "elicitation/create", "params": params})
        answer = json.loads(sys.stdin.readline())["result"]
    return text(
        f"Hello {answer['content']['name']}" if answer["action"] == "accept" else f"No name: {answer['action']}"
    )


def call(name: str, params: dict) -> dict | None:
    arguments = params.get("arguments") or {}
    if name == "add":
        return text(str(arguments["a"] + arguments["b"]))
    if name == "fail":
        return text("it failed", error=True)
    if name == "crash":
        sys.stderr.write("out of luck\n")
        sys.stderr.flush()
        os._exit(3)
    if name == "hang":
        return None
    if name == "garbage":
        for _ in range(300):
            sys.stdout.write("this is no message\n")
        sys.stdout.flush()
        return None
    if name == "big":
        return text("x" * 10_000_000)
    if name == "ask":
        return ask(params)
    if name == "grow":
        TOOLS["grown"] = NO_ARGUMENTS
        say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}})
        return text("grown")
    if name == "steps":
        for odd in ([], {}, None, 1.5, "another"):  # tokens that nobody has given out
            say({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": odd, "progress": 1}})
        token = params["_meta"]["progressToken"]
        for at in (1, 2):
            told = {"progressToken": token, "progress": at, "total": 2, "message": f"step {at}"}
            say({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})
        return text("done")
    if name == "read":
        try:
            return text(pathlib.Path(arguments["path"]).read_bytes()[:200].decode("utf-8", "replace"))
        except OSError as error:
            return text(str(error), error=True)
    return text("grown" if name == "grown" else "no such tool", error=name != "grown")


def answer(message: dict) -> dict | None:
    method, params = message["method"], message.get("params") or {}
    if method == "initialize" and HOW != "stateless":
        capabilities = {"tools": {"listChanged": True}}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": {"name": "t"}}
    if method == "server/discover" and HOW == "stateless":
        told = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        return told | {"ttlMs": 0, "cacheScope": "private"}
    if method == "tools/list":
        listed = [{"name": name, "description": f"To {name}.", "inputSchema": schema} for name, schema in TOOLS.items()]
        return {"resultType": "complete", "tools": listed}
    if method == "tools/call":
        return call(params["name"], params)
    say({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": f"no method {method}"}})
    return None


def main() -> None:
    if HOW == "crash":
        sys.stderr.write("cannot find my configuration\n")
        sys.exit(1)
    if HOW == "slow":
        time.sleep(3600)
    if HOW == "chatty":
        sys.stdout.write("Welcome!\nStarting up ...\n")
    for line in sys.stdin:
        message = json.loads(line)
        if HOW == "silent" or "id" not in message or "method" not in message:
            continue
        result = answer(message)
        if result is not None:
            say({"jsonrpc": "2.0", "id": message["id"], "result": result})


main()
