"""The differences that docs/letta-compatibility.md names, each beside the sentence that states it.

A test calls `stated` with the words of the page that it proves, so neither can change without the other. Differences of
turns, tools and crashes that need more than a few requests have tests of their own in the other folders.
"""

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.app import Kelpie
from kelpie.core.errors import ModelError, ModelFault
from tests.conformance.compatibility import PAGE
from tests.server.rig import Puppet, called, client_of, make_agent, open_rig, said

TEXT = re.sub(r"\s+", " ", PAGE.read_text())
NOBODY = "00000000-0000-4000-8000-00000000dead"


def stated(*words: str) -> None:
    """Fails unless the page says each of these, whatever its line breaks."""
    assert [each for each in words if each not in TEXT] == []


class Asker:
    """An HTTP client that returns the status and the JSON of an answer."""

    def __init__(self, http: httpx.AsyncClient, puppet: Puppet, kelpie: Kelpie) -> None:
        self.http = http
        self.puppet = puppet
        self.kelpie = kelpie

    async def __call__(self, method: str, path: str, body: Any = None, **params: Any) -> tuple[int, Any]:
        answer = await self.http.request(method, f"/v1/{path}", json=body, params=params)
        return answer.status_code, answer.json() if answer.content else None

    async def ok(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        status, answer = await self(method, path, body, **params)
        assert status < 300, answer
        return answer

    async def agent(self, **fields: Any) -> str:
        return (await make_agent(self.http, **fields))["id"]

    async def messages(self, agent: str) -> list[Any]:
        return await self.ok("GET", f"agents/{agent}/messages", order="asc", limit=50)

    async def send(self, agent: str, text: str = "hello") -> tuple[int, Any]:
        return await self("POST", f"agents/{agent}/messages", {"input": text})


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Asker]:
    async with open_rig(tmp_path) as (kelpie, puppet), client_of(kelpie) as http:
        yield Asker(http, puppet, kelpie)


async def test_creating_an_agent_fails_where_letta_lost_something(ask: Asker) -> None:
    stated(
        "Unknown `block_ids` return 404, unknown `message_ids` return 400, and two `memory_blocks` with the same label "
        "return 409.",
        "An invalid time zone, limit or number returns a 4xx error that names the field.",
    )
    assert (await ask("POST", "agents/", {"block_ids": [f"block-{NOBODY}"]}))[0] == 404
    agent = await ask.agent()
    assert (await ask("PATCH", f"agents/{agent}", {"message_ids": [f"message-{NOBODY}"]}))[0] == 400
    twice = [{"label": "human", "value": value} for value in ("a", "b")]
    assert (await ask("POST", "agents/", {"memory_blocks": twice}))[0] == 409
    for field, value in (("timezone", "Mars/Olympus"), ("context_window_limit", -5), ("max_tokens", -1)):
        status, answer = await ask("POST", "agents/", {field: value})
        assert 400 <= status < 500 and field in str(answer), (field, status, answer)
    assert (await ask.ok("GET", "agents/count")) == 1


async def test_old_names_and_fields_are_taken_as_stated(ask: Asker) -> None:
    stated(
        "The name of an agent may have any printable characters",
        "The handle `letta/letta-free` of old examples and agent files stands for the default model of the server",
        "The old field `project` of an agent is accepted and ignored",
        "`reasoning` and `enable_reasoner` have an effect when an agent is created, and none when it is changed",
    )
    made = await make_agent(ask.http, name="v1.2 (new): ü", model="letta/letta-free", project="p")
    assert (made["name"], made["model"]) == ("v1.2 (new): ü", "fake/model")
    quiet = await make_agent(ask.http, agent_type="memgpt_agent", reasoning=False)
    assert quiet["llm_config"]["put_inner_thoughts_in_kwargs"] is False
    again = await ask.ok("PATCH", f"agents/{quiet['id']}", {"reasoning": True})
    assert again["llm_config"] == quiet["llm_config"]


async def test_settings_of_the_model_are_kept_and_reset_as_stated(ask: Asker) -> None:
    stated(
        "Setting `context_window_limit` keeps the other model settings. Setting `max_tokens` or `parallel_tool_calls` "
        "also updates `model_settings`.",
        "Changing only the model of an agent resets `llm_config` to the defaults of the new model.",
    )
    agent = await ask.agent(max_tokens=777)
    changed = await ask.ok("PATCH", f"agents/{agent}", {"context_window_limit": 5000})
    assert (changed["llm_config"]["context_window"], changed["llm_config"]["max_tokens"]) == (5000, 777)
    changed = await ask.ok("PATCH", f"agents/{agent}", {"max_tokens": 888, "parallel_tool_calls": True})
    settings = changed["model_settings"]
    assert (settings["max_output_tokens"], settings["parallel_tool_calls"]) == (888, True)
    changed = await ask.ok("PATCH", f"agents/{agent}", {"model": "fake/model"})
    fresh = (await make_agent(ask.http))["llm_config"]
    assert {key: changed["llm_config"][key] for key in ("context_window", "max_tokens")} == {
        key: fresh[key] for key in ("context_window", "max_tokens")
    }


async def test_agents_have_the_extra_keys_and_can_be_stopped(ask: Asker) -> None:
    stated(
        "A stopped agent rejects messages with 409. `kelpie_status` shows the state of the agent",
        "`kelpie_budget`, `kelpie_permissions`, `kelpie_limits`, `kelpie_facts` and `paused_until`",
    )
    agent = await ask.agent()
    found = await ask.ok("GET", f"agents/{agent}")
    extra = {"kelpie_budget", "kelpie_permissions", "kelpie_limits", "kelpie_facts", "paused_until", "kelpie_status"}
    assert extra <= found.keys()
    await ask.ok("POST", f"agents/{agent}/stop")
    assert (await ask.send(agent))[0] == 409
    await ask.ok("POST", f"agents/{agent}/start")
    assert (await ask.send(agent))[0] == 200


async def test_agent_types_start_and_answer_as_stated(ask: Asker) -> None:
    stated(
        "A new `react_agent` starts with three messages and a `workflow_agent` with one.",
        "`memgpt_agent` may also answer in plain text",
        "Several `send_message` calls in one reply are all delivered",
        "`enable_sleeptime` works without an embedding model",
    )
    for kind, number in (("react_agent", 3), ("workflow_agent", 1)):
        assert len((await make_agent(ask.http, agent_type=kind))["message_ids"]) == number
    agent = await ask.agent(agent_type="memgpt_agent")
    ask.puppet.script.append(said("plain"))
    status, answer = await ask.send(agent)
    assert status == 200 and answer["messages"][-1]["content"] == "plain"
    one, two = (called("send_message", f'{{"message": "{word}"}}', f"call_{word}") for word in ("one", "two"))
    ask.puppet.script.append(replace(one, tool_calls=one.tool_calls + two.tool_calls))
    _, answer = await ask.send(agent)
    spoken = [each["content"] for each in answer["messages"] if each["message_type"] == "assistant_message"]
    assert spoken == ["one", "two"]
    made = await make_agent(ask.http, enable_sleeptime=True)
    assert made["multi_agent_group"]["manager_type"] == "sleeptime"


async def test_memory_and_search_behave_as_stated(ask: Asker) -> None:
    stated(
        "A memory edit, by a tool or by the API, is in the very next prompt.",
        "Blocks shown on an agent include their tags.",
        "accept `search_mode` (`hybrid`, `vector`, `fts`)",
        "the headers `X-Kelpie-Search-Mode` and `X-Kelpie-Search-Note`",
        "A passage has at most 100,000 characters, a batch at most 1,000 passages.",
    )
    block = {"label": "human", "value": "Ada", "tags": ["t"]}
    agent = await ask.agent(memory_blocks=[block], include_base_tools=False)
    assert (await ask.ok("GET", f"agents/{agent}", include="agent.blocks"))["blocks"][0]["tags"] == ["t"]
    await ask.send(agent)
    await ask.ok("PATCH", f"agents/{agent}/core-memory/blocks/human", {"value": "Ada of Rome"})
    await ask.send(agent)
    assert "Ada of Rome" in ask.puppet.asked[-1].system
    await ask.ok("POST", f"agents/{agent}/archival-memory", {"text": "The key is under the pot"})
    for mode in ("hybrid", "vector", "fts"):
        found = await ask.ok("GET", f"agents/{agent}/archival-memory/search", query="key", search_mode=mode)
        assert found["search_mode"] and (found["count"] == 1 or mode != "fts")
    answer = await ask.http.post("/v1/messages/search", json={"query": "hello"})
    assert answer.status_code == 200 and "x-kelpie-search-mode" in answer.headers
    assert (await ask("POST", f"agents/{agent}/archival-memory", {"text": "x" * 100_001}))[0] in (400, 422)
    archive = (await ask.ok("POST", "archives/", {"name": "a"}))["id"]
    many = {"passages": [{"text": "x"}] * 1001}
    assert (await ask("POST", f"archives/{archive}/passages/batch", many))[0] in (400, 422)


async def test_a_failed_turn_leaves_nothing_behind(ask: Asker) -> None:
    stated(
        "so a failed model call leaves no message behind and a retry duplicates nothing. The run has the status "
        "`failed` and the error in its `metadata`.",
    )
    agent = await ask.agent()
    before = await ask.messages(agent)
    ask.puppet.script.append(ModelError(ModelFault.server, "broken"))
    assert (await ask.send(agent))[0] >= 400
    assert await ask.messages(agent) == before
    [run] = await ask.ok("GET", "runs/", agent_id=agent)
    assert (run["status"], run["metadata"]["error"]["message"]) == ("failed", "broken")
    assert (await ask.send(agent))[0] == 200
    told = [each for each in await ask.messages(agent) if each["message_type"] == "user_message"]
    assert [each["content"] for each in told] == ["hello"]


async def test_conversations_and_groups_behave_as_stated(ask: Asker) -> None:
    stated(
        "`description`, `context_window_limit`, `archived` (filter with `archive_status`; the default lists all), "
        "`hidden` (left out of lists unless `show_hidden_conversations=true`)",
        "An isolated label that the agent does not have leaves no conversation behind.",
        "A group is deleted with its manager agent.",
    )
    agent = await ask.agent()
    made = await ask.ok("POST", "conversations/", {"hidden": True}, agent_id=agent)
    assert await ask.ok("GET", "conversations/", agent_id=agent) == []
    shown = await ask.ok("GET", "conversations/", agent_id=agent, show_hidden_conversations=True)
    assert [each["id"] for each in shown] == [made["id"]]
    status, _ = await ask("POST", "conversations/", {"isolated_block_labels": ["none"]}, agent_id=agent)
    assert 400 <= status < 500
    assert len(await ask.ok("GET", "conversations/", agent_id=agent, show_hidden_conversations=True)) == 1
    described = await ask.ok("POST", "conversations/", {"description": "d"}, agent_id=agent)
    assert described["description"] == "d"
    await ask.ok("PATCH", f"conversations/{described['id']}", {"archived": True})
    assert len(await ask.ok("GET", "conversations/", agent_id=agent)) == 1
    assert await ask.ok("GET", "conversations/", agent_id=agent, archive_status="unarchived") == []
    other = await ask.agent()
    manager = {"manager_type": "supervisor", "manager_agent_id": agent}
    await ask.ok("POST", "groups/", {"agent_ids": [other], "description": "d", "manager_config": manager})
    await ask.ok("DELETE", f"agents/{agent}")
    assert await ask.ok("GET", "groups/count") == 0


async def test_runs_steps_and_cost_behave_as_stated(ask: Asker) -> None:
    stated(
        "Responses, runs and steps have `kelpie_cost_usd`.",
        "The cursors of runs follow the order of the list",
        "Deleting a run works.",
        "only if `KELPIE_TRACE_STEPS` is set, cut at `KELPIE_TRACE_BYTES_MAX`; otherwise null.",
        "Text in a step's messages is an `assistant_message`.",
    )
    agent = await ask.agent()
    for _ in range(3):
        _, answer = await ask.send(agent)
        assert "kelpie_cost_usd" in answer["usage"]
    runs = await ask.ok("GET", "runs/", agent_id=agent, order="desc")
    after = await ask.ok("GET", "runs/", agent_id=agent, order="desc", after=runs[0]["id"])
    assert [each["id"] for each in after] == [each["id"] for each in runs[1:]]
    [step] = await ask.ok("GET", f"runs/{runs[0]['id']}/steps")
    assert "kelpie_cost_usd" in runs[0] and "kelpie_cost_usd" in step
    assert await ask.ok("GET", f"steps/{step['id']}/trace") is None
    kinds = [each["message_type"] for each in await ask.ok("GET", f"steps/{step['id']}/messages")]
    assert kinds[-1] == "assistant_message"
    await ask.ok("DELETE", f"runs/{runs[0]['id']}")
    assert (await ask("GET", f"runs/{runs[0]['id']}"))[0] == 404


async def test_tools_and_servers_behave_as_stated(ask: Asker) -> None:
    stated(
        "Updating a tool without `enable_parallel_execution` keeps its value, and `metadata_.tool_hash` follows the "
        "source",
        "The code and schema of a built-in tool cannot be changed (409), and its name is reserved.",
        "`localhost` and addresses in unusual notation are rejected like other non-public addresses.",
        "There is no configuration until you create one, and its `sandbox_dir` is null unless you set it.",
        "A `child_arg_nodes` entry that is not a child returns 422.",
    )
    source = 'def shout(text: str) -> str:\n    """Shouts.\n\n    Args:\n        text: words\n    """\n    return text'
    tool = await ask.ok("POST", "tools/", {"source_code": source, "enable_parallel_execution": True})
    newer = await ask.ok("PATCH", f"tools/{tool['id']}", {"source_code": source + ".upper()"})
    assert newer["enable_parallel_execution"] is True
    assert newer["metadata_"]["tool_hash"] != tool["metadata_"]["tool_hash"]
    [builtin] = await ask.ok("GET", "tools/", name="core_memory_append")
    assert (await ask("PATCH", f"tools/{builtin['id']}", {"source_code": source}))[0] == 409
    taken = source.replace("shout", "core_memory_append")
    assert 400 <= (await ask("POST", "tools/", {"source_code": taken}))[0] < 500
    config = {"mcp_server_type": "stdio", "command": "true", "args": []}
    server = await ask.ok("POST", "mcp-servers/", {"server_name": "s", "config": config})
    assert await ask.ok("GET", f"mcp-servers/{server['id']}/tools") == []
    for host in ("localhost", "127.1", "0x7f.1"):
        http = {"mcp_server_type": "streamable_http", "server_url": f"http://{host}/mcp"}
        assert (await ask("POST", "mcp-servers/", {"server_name": "h", "config": http}))[0] == 422, host
    assert await ask.ok("GET", "sandbox-config/") == []
    made = await ask.ok("POST", "sandbox-config/local/default")
    assert made["config"]["sandbox_dir"] is None
    rule = {"type": "constrain_child_tools", "tool_name": "a", "children": ["b"], "child_arg_nodes": [{"name": "c"}]}
    assert (await ask("POST", "agents/", {"tool_rules": [rule]}))[0] == 422


async def test_access_behaves_as_stated(ask: Asker) -> None:
    stated(
        "Without a password, a server on the loopback address refuses requests from web pages of other sites (403).",
        "An organization can only be deleted when it is empty.",
        "`PUT /v1/identities/` creates the identity if its key is new",
        "An `identifier_key` has 1 to 500 characters.",
    )
    answer = await ask.http.get("/v1/agents/", headers={"Origin": "https://elsewhere.example"})
    assert answer.status_code == 403
    organization = (await ask.ok("POST", "admin/orgs/", {"name": "o"}))["id"]
    await ask.ok("POST", "admin/users/", {"name": "u", "organization_id": organization})
    assert 400 <= (await ask("DELETE", "admin/orgs/", org_id=organization))[0] < 500
    identity = {"identifier_key": "i", "name": "n", "identity_type": "user"}
    assert (await ask.ok("PUT", "identities/", identity))["identifier_key"] == "i"
    for key in ("", "x" * 501):
        assert (await ask("PUT", "identities/", identity | {"identifier_key": key}))[0] == 422


async def test_requests_are_limited_as_stated(ask: Asker) -> None:
    stated(
        "A request may name at most 1,000 blocks, tools, identities, rules, tags or keys, and 10,000 messages.",
        "A `limit` above 10,000 returns 422. `limit=0` for agents means at most 10,000.",
        "A `budget_tokens` below 1,024 returns 422.",
    )
    for field in ("tags", "block_ids", "tool_ids", "identity_ids"):
        status, answer = await ask("POST", "agents/", {field: ["x"] * 1001})
        assert status == 422 and field in str(answer), (field, status)
    assert (await ask("GET", "agents/", limit=10_001))[0] == 422
    assert (await ask("GET", "agents/", limit=0))[0] == 200
    thinking = {"provider_type": "anthropic", "thinking": {"type": "enabled", "budget_tokens": 1000}}
    assert (await ask("POST", "agents/", {"model_settings": thinking}))[0] == 422
