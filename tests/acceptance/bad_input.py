"""The table of bad requests: what is sent, the status it gets, and words the answer must hold.

In paths and bodies `{agent}` / `<agent>` and so on stand for ids of what exists; GHOST is a well-formed id of nothing.
"""

from typing import Any

from tests.acceptance.refusal import GHOST, Case

AGENTS = "/v1/agents/"
AGENT = "/v1/agents/{agent}"
SEND = "/v1/agents/{agent}/messages"
GHOST_AGENT = f"/v1/agents/agent-{GHOST}"
HELLO: dict[str, Any] = {"input": "hello"}


def _unknown_ids() -> list[Case]:
    reads = [
        *(f"{GHOST_AGENT}{tail}" for tail in ("", "/messages", "/tools", "/core-memory/blocks", "/core-memory")),
        f"{GHOST_AGENT}/core-memory/blocks/human",
        "/v1/agents/{agent}/core-memory/blocks/nothing",
        *(f"/v1/{kind}s/{kind}-{GHOST}" for kind in ("block", "tool", "message", "run", "step")),
        *(f"/v1/runs/run-{GHOST}/{tail}" for tail in ("messages", "steps", "usage", "metrics")),
        f"/v1/steps/step-{GHOST}/metrics",
    ]
    writes: list[tuple[str, str, Any]] = [
        ("PATCH", GHOST_AGENT, {"name": "x"}),
        ("DELETE", GHOST_AGENT, ...),
        ("POST", f"{GHOST_AGENT}/messages", HELLO),
        ("POST", f"{GHOST_AGENT}/messages/stream", HELLO),
        ("PATCH", f"{GHOST_AGENT}/reset-messages", {}),
        ("POST", f"{GHOST_AGENT}/recompile", ...),
        *(("POST", f"{GHOST_AGENT}/{verb}", ...) for verb in ("start", "stop", "restart")),
        ("PATCH", f"/v1/blocks/block-{GHOST}", {"value": "x"}),
        ("DELETE", f"/v1/blocks/block-{GHOST}", ...),
        ("PATCH", f"/v1/tools/tool-{GHOST}", {"description": "x"}),
        ("DELETE", f"/v1/runs/run-{GHOST}", ...),
        ("PATCH", f"{GHOST_AGENT}/core-memory/blocks/human", {"value": "x"}),
        ("PATCH", AGENT + "/core-memory/blocks/nothing", {"value": "x"}),
        ("PATCH", f"{GHOST_AGENT}/tools/attach/{{tool}}", ...),
        ("PATCH", f"{GHOST_AGENT}/tools/detach/{{tool}}", ...),
        ("PATCH", f"{AGENT}/tools/attach/tool-{GHOST}", ...),
        ("PATCH", f"{GHOST_AGENT}/core-memory/blocks/attach/{{block}}", ...),
        ("PATCH", f"{AGENT}/core-memory/blocks/attach/block-{GHOST}", ...),
    ]
    cases = [("GET", path, ...) for path in reads] + writes
    found = [Case(f"unknown id: {method} {path}", method, path, 404, json=body) for method, path, body in cases]
    # Letta's clients know 400 for this one.
    return [*found, Case("unknown id: DELETE tool", "DELETE", f"/v1/tools/tool-{GHOST}", 400, says=(GHOST,))]


def _malformed_ids() -> list[Case]:
    bad = ("bad-id", f"AGENT-{GHOST.upper()}", "agent-00000000-0000-1000-8000-000000000001", f"agent-{GHOST}x", "%20")
    cases = [Case(f"malformed id: {text}", "GET", f"/v1/agents/{text}", 422, says=("agent-",)) for text in bad]
    for kind in ("block", "tool", "message", "step"):
        cases.append(Case(f"malformed id: {kind}", "GET", f"/v1/{kind}s/bad-id", 422, says=("examples", f"{kind}-")))
    for tail in ("", "/messages", "/steps", "/usage"):
        cases.append(Case(f"malformed id: run{tail}", "GET", f"/v1/runs/bad-id{tail}", 400, says=("run-",)))
    return [
        *cases,
        Case("malformed id: send", "POST", "/v1/agents/bad-id/messages", 422, json=HELLO),
        Case("malformed id: attach", "PATCH", AGENT + "/tools/attach/bad-id", 422),
        Case("malformed id: runs of", "GET", "/v1/runs/?agent_id=bad-id", 400, says=("agent",)),
        Case("malformed id: in a body", "PATCH", AGENT, 400, json={"tool_ids": ["bad-id"]}, says=("tool",)),
        Case("malformed id: user", "GET", AGENTS, 400, headers={"user_id": "nobody"}, says=("user_id",)),
    ]


def _wrong_types() -> list[Case]:
    agents: list[dict[str, Any]] = [
        {"name": 5}, {"model": 3}, {"memory_blocks": "x"}, {"memory_blocks": [{"label": 1, "value": "x"}]},
        {"tags": "x"}, {"metadata": []}, {"tools": "x"}, {"include_base_tools": "perhaps"}, {"secrets": {"A": 1}},
        {"agent_type": "bogus"}, {"context_window_limit": -5}, {"context_window_limit": 10**30},
        {"memory_blocks": [{"label": "human", "value": "x", "limit": -1}]}, {"tool_rules": [{"type": "bogus"}]},
        {"model_settings": {"provider_type": "bogus"}}, {"initial_message_sequence": [{"role": "nobody"}]},
    ]  # fmt: skip
    sends: list[dict[str, Any]] = [
        {"input": 5}, {"messages": {}}, {"messages": ["x"]}, {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "user"}]}, {"messages": [{"content": "x"}]}, HELLO | {"max_steps": "many"},
        HELLO | {"max_steps": -1}, HELLO | {"max_steps": 10**30}, HELLO | {"stream_tokens": "perhaps"},
    ]  # fmt: skip
    others: list[tuple[str, str, Any]] = [
        ("POST", "/v1/blocks/", {"value": "x"}), ("POST", "/v1/blocks/", {"label": "x", "value": 5}),
        ("POST", "/v1/blocks/", {"label": "x", "value": "y", "limit": -1}), ("POST", "/v1/tools/", {}),
        ("PATCH", "/v1/blocks/{block}", {"tags": 1}), ("PATCH", "/v1/blocks/{block}", {"limit": "x"}),
        ("POST", "/v1/tools/", {"source_code": "def f(): pass", "name": "f"}),
        ("PUT", "/v1/tools/", {"source_code": 5}), ("PATCH", "/v1/tools/{tool}", {"return_char_limit": 0}),
        ("PATCH", AGENT, {"tags": "x"}), ("PATCH", AGENT, []), ("PATCH", AGENT + "/reset-messages", []),
    ]  # fmt: skip
    whole: list[Any] = [[], "text", None, 5, True]
    return [
        *(Case(f"wrong type: agent {body}", "POST", AGENTS, 422, json=body, says=(_first(body),)) for body in agents),
        *(Case(f"wrong type: send {body}", "POST", SEND, 422, json=body) for body in sends),
        *(Case(f"wrong type: {method} {path} {body}", method, path, 422, json=body) for method, path, body in others),
        *(Case(f"wrong type: agent is {body!r}", "POST", AGENTS, 422, json=body) for body in whole),
        *(Case(f"wrong type: send is {body!r}", "POST", SEND, 422, json=body) for body in whole),
    ]


def _first(body: dict[str, Any]) -> str:
    return next(iter(body))


def _not_json() -> list[Case]:
    bodies = {
        "nothing": b"",
        "a broken document": b'{"name": "x"',
        "two documents": b"{} {}",
        "not UTF-8": b'{"name": "\xff\xfe"}',
        "a raw NUL": b'{"name": "a\0b"}',
        "half a surrogate": b'{"name": "\\ud800"}',
        "NaN": b'{"metadata": {"x": NaN}}',
        "deep lists": b'{"metadata": {"x": ' + b"[" * 200 + b"]" * 200 + b"}}",
        "deep objects": b'{"metadata": ' + b'{"x": ' * 200 + b"1" + b"}" * 201,
        "very deep lists": b"[" * 40_000,
        "deep and closed": b"[" * 40_000 + b"]" * 40_000,
    }
    text = {"Content-Type": "text/plain"}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    return [
        *(Case(f"not JSON: {what}", "POST", AGENTS, 422, content=body) for what, body in bodies.items()),
        *(Case(f"not JSON, sent: {what}", "POST", SEND, 422, content=body) for what, body in bodies.items()),
        Case("content type: text", "POST", AGENTS, 422, json={"name": "x"}, headers=text),
        Case("content type: form", "POST", AGENTS, 422, content=b"name=x", headers=form),
        Case("content type: none", "POST", SEND, 422, json=HELLO, headers={"Content-Type": ""}),
    ]


def _agents() -> list[Case]:
    twice = [{"label": "human", "value": "a"}, {"label": "human", "value": "b"}]
    bodies: list[tuple[int, dict[str, Any], str]] = [
        (404, {"model": "kelpie/none"}, "kelpie/none"),
        (404, {"model": "nobody/none"}, "nobody/none"),
        (400, {"model": "demo"}, "model"),
        (400, {"model": "/"}, "model"),
        (422, {"embedding": "none"}, "embedding"),
        (400, {"tools": ["no_such_tool"]}, "no_such_tool"),
        (400, {"tool_ids": [f"tool-{GHOST}"]}, GHOST),
        (409, {"memory_blocks": twice}, "human"),
        (409, {"block_ids": ["<block>"], "memory_blocks": twice[:1]}, "human"),
        (400, {"name": "bad\nname"}, "name"),
        (400, {"timezone": "Nowhere/Land"}, "timezone"),
        (400, {"max_files_open": 100_000}, "max_files_open"),
        (400, {"max_tokens": 100, "max_reasoning_tokens": 200}, "max_reasoning_tokens"),
        (409, {"folder_ids": [f"source-{GHOST}"]}, "Source"),
        (422, {"agent_type": "voice_convo_agent"}, "enable_sleeptime"),
    ]
    changes: list[tuple[int, dict[str, Any], str]] = [
        (404, {"model": "kelpie/none"}, "kelpie/none"),
        (400, {"model": "demo"}, "model"),
        (400, {"tool_ids": [f"tool-{GHOST}"]}, GHOST),
        (409, {"block_ids": ["<block>", "<human>"], "name": "taken"}, "human"),
        (404, {"block_ids": [f"block-{GHOST}"]}, GHOST),
        (400, {"name": "bad\nname"}, "name"),
        (400, {"timezone": "Nowhere/Land"}, "timezone"),
        (400, {"message_ids": [f"message-{GHOST}"]}, GHOST),
    ]
    return [
        *(Case(f"new agent: {body}", "POST", AGENTS, status, json=body, says=(word,)) for status, body, word in bodies),
        *(Case(f"agent: {body}", "PATCH", AGENT, status, json=body, says=(word,)) for status, body, word in changes),
    ]


def _blocks_and_tools() -> list[Case]:
    taken = (
        'def send_message(message: str) -> str:\n    """Say.\n\n    Args:\n        message: it\n    """\n    return ""'
    )
    sources = {
        "no function": "x = 1",
        "no Python": "def f(:",
        "no docstring": "def f(x: int) -> int:\n    return x",
        "a loose annotation": 'def f(x) -> int:\n    """F.\n\n    Args:\n        x: it\n    """\n    return 1',
    }
    return [
        Case("label: attach", "PATCH", AGENT + "/core-memory/blocks/attach/{block}", 409, says=("human",)),
        Case("label: change", "PATCH", "/v1/blocks/{other}", 409, json={"label": "human"}, says=("human",)),
        Case("label: by label", "PATCH", AGENT + "/blocks/hobby", 409, json={"label": "human"}, says=("human",)),
        *(Case(f"tool: {what}", "POST", "/v1/tools/", 400, json={"source_code": s}) for what, s in sources.items()),
        *(Case(f"tool: {what}", "PUT", "/v1/tools/", 400, json={"source_code": s}) for what, s in sources.items()),
        Case("tool: a built-in's name", "POST", "/v1/tools/", 409, json={"source_code": taken}, says=("send_message",)),
        Case("tool: a built-in's name", "PUT", "/v1/tools/", 409, json={"source_code": taken}, says=("send_message",)),
    ]


def _sends() -> list[Case]:
    user = {"role": "user", "content": "hello"}
    bodies: list[tuple[int, dict[str, Any], str]] = [
        (422, {"messages": []}, "messages"),
        (422, {}, "input"),
        (422, HELLO | {"messages": [user]}, "input"),
        (400, {"input": ""}, "input"),
        (400, {"input": []}, "input"),
        (400, {"input": [{"type": "text", "text": ""}]}, "input"),
        (400, {"input": [{"type": "image"}]}, "source"),
        (400, {"input": [{"type": "sound", "data": "x"}]}, "sound"),
        (400, {"messages": [user, user | {"content": ""}]}, "content"),
        (400, {"messages": [{"type": "approval", "approve": True, "approval_request_id": "x"}]}, "approval"),
        (422, HELLO | {"stream_tokens": True}, "stream_tokens"),
        (422, HELLO | {"background": True}, "background"),
        (404, HELLO | {"override_model": "kelpie/nothing"}, "kelpie/nothing"),
        (422, HELLO | {"streaming": True}, "streaming"),  # only clients of SDK 1.x may ask for it here
        (422, {"messages": [user] * 1001}, "messages"),
    ]
    return [
        Case(f"send: {str(body)[:80]}", "POST", SEND, status, json=body, says=(word,)) for status, body, word in bodies
    ]


def _queries() -> list[Case]:
    lists = (AGENTS, "/v1/blocks/", "/v1/tools/", "/v1/runs/", "/v1/steps/", SEND, AGENT + "/tools")
    wrong = ("limit=-1", "limit=abc", f"limit={10**30}", "order=up")
    return [
        *(Case(f"query: {path}?{query}", "GET", f"{path}?{query}", 422) for path in lists for query in wrong),
        Case("query: unknown relation", "GET", AGENTS + "?include=agent.bogus", 422, says=("include",)),
        Case("query: unknown order_by", "GET", AGENTS + "?order_by=bogus", 422, says=("order_by",)),
        Case("query: runs over the most", "GET", "/v1/runs/?limit=5000", 422, says=("1000",)),
        Case("query: unknown status", "GET", "/v1/runs/?statuses=bogus", 400, says=("bogus",)),
        Case("query: unknown tool type", "GET", "/v1/tools/?tool_types=bogus", 400, says=("bogus",)),
        Case("query: unknown stop reason", "GET", AGENTS + "?last_stop_reason=bogus", 422),
        Case("query: bad label", "GET", "/v1/blocks/?label=a%20b", 422, says=("label",)),
        Case("cursor: unknown message", "GET", f"{SEND}?before=message-{GHOST}", 404, says=(GHOST,)),
        Case("cursor: malformed message", "GET", f"{SEND}?after=bogus", 404, says=("bogus",)),
    ]


def _at_the_door() -> list[Case]:
    big = b'{"name": "' + b"x" * 100_000 + b'"}'
    foreign = {
        "host": {"Host": "evil.example"},
        "host with our port": {"Host": "evil.example:8283"},
        "host like ours": {"Host": "127.0.0.1.evil.example"},
        "origin": {"Origin": "https://evil.example"},
        "origin like ours": {"Origin": "http://localhost.evil.example"},
        "origin null": {"Origin": "null"},
        "site": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
    }
    methods = (
        ("PUT", AGENTS), ("DELETE", AGENTS), ("POST", AGENT), ("PUT", SEND), ("DELETE", "/v1/models/"),
        ("POST", "/v1/runs/"), ("PATCH", SEND + f"/message-{GHOST}"), ("POST", "/v1/health/"),
    )  # fmt: skip
    return [
        Case("too large", "POST", AGENTS, 413, content=big, says=("100000", "KELPIE_BODY_BYTES_MAX")),
        Case("too large: sent", "POST", SEND, 413, content=big, says=("100000",)),
        *(Case(f"foreign {w}", "POST", AGENTS, 403, json={"name": "x"}, headers=h) for w, h in foreign.items()),
        *(Case(f"foreign {w}: read", "GET", AGENTS, 403, headers=h) for w, h in foreign.items()),
        *(Case(f"method: {method} {path}", method, path, 405) for method, path in methods),
        Case("no such route", "GET", "/v1/nothing-here/", 404),
        Case("no such route at the top", "GET", "/nothing-here", 404),
        Case("NUL: path", "GET", "/v1/agents/%00", 400, says=("NUL",)),
        Case("NUL: label", "GET", AGENT + "/core-memory/blocks/hu%00man", 400, says=("NUL",)),
        Case("NUL: query", "GET", AGENTS + "?name=a%00b", 400, says=("NUL",)),
    ]


CASES: list[Case] = [
    *_unknown_ids(), *_malformed_ids(), *_wrong_types(), *_not_json(), *_agents(), *_blocks_and_tools(), *_sends(),
    *_queries(), *_at_the_door(),
]  # fmt: skip
