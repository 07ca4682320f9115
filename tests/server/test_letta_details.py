"""Details of Letta's API that clients rely on: tools, rules and runs as Letta stores and shows them."""

import asyncio
from typing import Any

import httpx

from kelpie.core.errors import ModelError, ModelFault
from tests.server.rig import Puppet, called, make_agent, said

SQUARE = '''def square(x: int) -> int:
    """Square a number.

    Args:
        x (int): the number
    """
    return x * x
'''
SCHEMA: dict[str, Any] = {
    "name": "square",
    "description": "Square a number.",
    "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
}


async def asked(client: httpx.AsyncClient, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    answer = await client.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_the_web_tools_are_registered_and_say_why_they_cannot_do_what_they_are_asked(
    client: httpx.AsyncClient, puppet: Puppet
) -> None:
    names = ("web_search", "fetch_webpage")
    added = {tool["name"]: tool for tool in await asked(client, "POST", "/v1/tools/add-base-tools")}
    listed = {tool["name"]: tool for tool in await asked(client, "GET", "/v1/tools/?limit=100")}
    for name in names:
        assert added[name]["id"] == listed[name]["id"] and listed[name]["tool_type"] == "letta_builtin"
    agent = await make_agent(client, tools=[*names, "memory"])
    arguments = {"web_search": '{"query": "tea"}', "fetch_webpage": '{"url": "http://127.0.0.1/"}'}
    reasons = {"web_search": "the operator must set one of TAVILY_API_KEY", "fetch_webpage": "is not a public address"}
    for name in names:
        puppet.script += [called(name, arguments[name], f"call_{name}"), said("I could not.")]
        told = await asked(client, "POST", f"/v1/agents/{agent['id']}/messages", {"input": "look it up"})
        [result] = [one for one in told["messages"] if one["message_type"] == "tool_return_message"]
        assert result["status"] == "error" and reasons[name] in result["tool_return"]


async def test_equal_rules_are_stored_once(client: httpx.AsyncClient) -> None:
    child = {"type": "constrain_child_tools", "tool_name": "memory_insert"}
    given = [
        {"type": "run_first", "tool_name": "memory_insert"},
        {"type": "run_first", "tool_name": "memory_insert"},
        {**child, "children": ["a", "b"]},
        {**child, "children": ["b", "a"]},
        {**child, "children": ["b", "c"]},
    ]
    want = [("run_first", None), ("constrain_child_tools", ["a", "b"]), ("constrain_child_tools", ["b", "c"])]

    def shown(agent: dict[str, Any]) -> list[tuple[str, Any]]:
        return [(rule["type"], rule.get("children")) for rule in agent["tool_rules"]]

    made = await make_agent(client, tools=["memory_insert"], tool_rules=given, include_base_tool_rules=False)
    assert shown(await asked(client, "GET", f"/v1/agents/{made['id']}")) == want
    other = await make_agent(client, include_base_tools=False)
    assert shown(await asked(client, "PATCH", f"/v1/agents/{other['id']}", {"tool_rules": given})) == want


async def test_a_tool_that_is_registered_again_keeps_its_tags(client: httpx.AsyncClient) -> None:
    made = await asked(client, "POST", "/v1/tools/", {"source_code": SQUARE, "tags": ["math"], "return_char_limit": 9})
    for method, tags in (("POST", {}), ("PUT", {"tags": []}), ("PUT", {"tags": None})):
        again = await asked(client, method, "/v1/tools/", {"source_code": SQUARE, **tags})
        assert (again["id"], again["tags"], again["return_char_limit"]) == (made["id"], ["math"], 50_000)
    assert (await asked(client, "PUT", "/v1/tools/", {"source_code": SQUARE, "tags": ["n"]}))["tags"] == ["n"]


async def test_source_and_schema_that_come_together_name_the_same_function(client: httpx.AsyncClient) -> None:
    tool = (await asked(client, "POST", "/v1/tools/", {"source_code": SQUARE}))["id"]
    cube = SQUARE.replace("square", "cube")
    told = await asked(client, "PATCH", f"/v1/tools/{tool}", {"source_code": cube, "json_schema": SCHEMA}, 400)
    assert "'square'" in told["detail"] and "'cube'" in told["detail"]
    assert (await asked(client, "GET", f"/v1/tools/{tool}"))["source_code"] == SQUARE
    both = {"source_code": cube, "json_schema": SCHEMA | {"name": "cube"}}
    assert (await asked(client, "PATCH", f"/v1/tools/{tool}", both))["name"] == "cube"
    renamed = {"json_schema": SCHEMA | {"name": "power"}}
    assert (await asked(client, "PATCH", f"/v1/tools/{tool}", renamed))["name"] == "power"


async def test_a_missing_argument_of_a_manual_call_leaves_an_empty_output(client: httpx.AsyncClient) -> None:
    tool = await asked(client, "POST", "/v1/tools/", {"source_code": SQUARE})
    agent = await make_agent(client, tool_ids=[tool["id"]])
    path = f"/v1/agents/{agent['id']}/tools/square/run"
    for args, printed in (({}, []), ({"x": 1, "y": 2}, []), ({"x": "abc"}, None)):
        told = await asked(client, "POST", path, {"args": args})
        assert (told["status"], told["func_return"], told["stdout"]) == ("error", None, printed)
    source = {"source_code": SQUARE, "args": {}}
    assert (await asked(client, "POST", "/v1/tools/run", source))["stdout"] in ([], None)


async def test_a_blank_prompt_is_refused_before_the_model_is_asked(client: httpx.AsyncClient, puppet: Puppet) -> None:
    path = f"/v1/agents/{(await make_agent(client))['id']}/generate"
    for prompt in ("", " \n"):
        told = await asked(client, "POST", path, {"prompt": prompt}, 422)
        assert "prompt" in told["detail"] and "blank" in told["detail"]
    assert not puppet.asked
    assert (await asked(client, "POST", path, {"prompt": "hi"}))["content"] == "ok"


async def test_a_failed_run_shows_the_error_type_of_its_stream(client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = (await make_agent(client))["id"]
    for fault, kind in (
        (ModelFault.connection, "llm_error"),
        (ModelFault.rate_limit, "llm_rate_limit"),
        (ModelFault.authentication, "llm_authentication"),
    ):
        puppet.script += [ModelError(fault, "No.", hint="Try later.")] * 5
        streamed = await client.post(f"/v1/agents/{agent}/messages/stream", json={"input": "hi", "background": True})
        assert f'"error_type":"{kind}"' in streamed.text
        puppet.script.clear()
        run = (await asked(client, "GET", f"/v1/runs/?agent_id={agent}&limit=1"))[0]
        error = run["metadata"]["error"]
        assert run["status"] == "failed" and (error["error_type"], error["run_id"]) == (kind, run["id"])
        assert (error["message"], error["hint"]) == ("No.", "Try later.")


async def test_the_messages_of_a_run_are_of_the_types_that_its_client_asked_for(
    client: httpx.AsyncClient, puppet: Puppet
) -> None:
    agent = (await make_agent(client, memory_blocks=[{"label": "human", "value": "Ada"}], tools=["memory_insert"]))[
        "id"
    ]
    body = {"input": "note tea", "include_return_message_types": ["assistant_message", "tool_call_message"]}
    ways = ((f"/v1/agents/{agent}/messages", body), (f"/v1/agents/{agent}/messages/async", body))
    for path, given in ways:
        puppet.script += [called("memory_insert", '{"label": "human", "new_string": "tea"}'), said("done")]
        told = await asked(client, "POST", path, given)
        run_id = told["id"] if "id" in told else told["messages"][0]["run_id"]
        async with asyncio.timeout(20):
            while (await asked(client, "GET", f"/v1/runs/{run_id}"))["status"] != "completed":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        found = await asked(client, "GET", f"/v1/runs/{run_id}/messages")
        assert [one["message_type"] for one in found] == ["tool_call_message", "assistant_message"]
    plain = await asked(client, "POST", f"/v1/agents/{agent}/messages", {"input": "hi"})
    found = await asked(client, "GET", f"/v1/runs/{plain['messages'][0]['run_id']}/messages")
    assert "user_message" in [one["message_type"] for one in found]


async def test_routes_of_batches_and_of_the_search_cache(client: httpx.AsyncClient) -> None:
    assert await asked(client, "GET", "/v1/messages/batches") == []
    warmed = {"collection": "messages", "scope": {}}
    told = await asked(client, "POST", "/v1/_internal_search/cache-warm", warmed)
    assert (told["collection"], told["warmed"]) == ("messages", False) and told["status"]


async def test_a_constant_id_is_heard_again_after_other_words(client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = (await make_agent(client))["id"]
    path = f"/v1/agents/{agent}/messages"

    async def run_of(words: str, otid: str) -> str:
        body = {"messages": [{"role": "user", "content": words, "otid": otid}]}
        return (await asked(client, "POST", path, body))["messages"][0]["run_id"]

    first = await run_of("tick", "constant")
    assert await run_of("tick", "constant") == first, "at once it is a retry"
    await run_of("other words", "other")
    again = await run_of("tick", "constant")
    assert again != first and await run_of("tick", "constant") == again
    thread = (await asked(client, "POST", f"/v1/conversations/?agent_id={agent}", {}))["id"]
    path = f"/v1/conversations/{thread}/messages"

    async def run_in(words: str, otid: str) -> str:
        body = {"messages": [{"role": "user", "content": words, "otid": otid}], "streaming": False}
        return (await asked(client, "POST", path, body))["messages"][0]["run_id"]

    first = await run_in("tick", "constant")
    await run_in("other words", "other")
    assert await run_in("tick", "constant") == first, "in a conversation it is always a retry, as in Letta"


async def test_turns_and_attachments_move_the_time_of_an_agent(client: httpx.AsyncClient) -> None:
    first, second = [(await make_agent(client, name=name))["id"] for name in ("first", "second")]

    async def newest() -> tuple[str, str]:
        found = (await asked(client, "GET", "/v1/agents/?order_by=updated_at&order=desc"))[0]
        return found["id"], found["updated_at"]

    block = (await asked(client, "POST", "/v1/blocks/", {"label": "team", "value": "v"}))["id"]
    tool = (await asked(client, "GET", "/v1/tools/?name=memory_insert"))[0]["id"]
    before = (await newest())[1]
    for method, path, body in (
        ("POST", "/messages", {"input": "hi"}),
        ("PATCH", f"/core-memory/blocks/attach/{block}", None),
        ("PATCH", f"/core-memory/blocks/detach/{block}", None),
        ("PATCH", f"/tools/detach/{tool}", None),
        ("PATCH", f"/tools/attach/{tool}", None),
    ):
        for agent in (first, second):
            await asked(client, method, f"/v1/agents/{agent}{path}", body)
            found, at = await newest()
            assert found == agent and at > before, path
            before = at
