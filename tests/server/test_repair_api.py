"""Mending histories that were spoilt behind the server's back: told per agent, once, and never what rightly waits."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from tests.server.rig import Puppet, called, make_agent, said

INSERT = "memory_insert"
RULE = {"type": "requires_approval", "tool_name": INSERT}
REPAIR = "/v1/kelpie/agents/repair"
NOWHERE = "message-00000000-0000-4000-8000-000000000000"
_TOOL_ROW = (
    "INSERT INTO messages (id, agent_id, seq, role, content, tool_calls, tool_returns, is_err, created_at) "
    "SELECT 'message-00000000-0000-4000-8000-00000000000' || ?, ?, max(seq) + 1, 'tool', '[]', '[]', ?, 0, 1 "
    "FROM messages WHERE agent_id = ?"
)
_SHOW_LAST = (
    "INSERT INTO context (agent_id, conversation_id, position, message_id) "
    "SELECT agent_id, '', seq, id FROM messages WHERE agent_id = ? ORDER BY seq DESC LIMIT 1"
)
_WAIT = (
    "INSERT INTO approvals (agent_id, conversation_id, message_id, runs, answers, requested_at) "
    "VALUES (?, ?, ?, ?, '[]', 1)"
)


async def make(client: httpx.AsyncClient, name: str, rules: list[Any]) -> str:
    human = [{"label": "human", "value": "Ada"}]
    agent = await make_agent(client, name=name, tools=[INSERT], tool_rules=rules, memory_blocks=human)
    return agent["id"]


async def say(client: httpx.AsyncClient, agent_id: str, **body: Any) -> dict[str, Any]:
    answer = await client.post(f"/v1/agents/{agent_id}/messages", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def noted(client: httpx.AsyncClient, puppet: Puppet, agent_id: str, word: str) -> dict[str, Any]:
    puppet.script.append(called(INSERT, json.dumps({"label": "human", "new_string": word}), f"call_{word}"))
    return await say(client, agent_id, input=f"note {word}")


def spoil(path: Path, *statements: tuple[str, tuple[Any, ...]]) -> None:
    """As somebody with an editor would: nothing checks what refers to what."""
    with closing(sqlite3.connect(path / "kelpie.db")) as database, database:
        for statement, values in statements:
            assert database.execute(statement, values).rowcount > 0


def spoil_all(path: Path, agent_id: str) -> None:
    """An open call, an id of nothing, a result of nothing, and waits for nothing here and in a thread that is gone."""
    stray = json.dumps([{"call_id": "call_stray", "name": "x", "ok": True, "text": "", "stdout": None, "stderr": None}])
    runs = json.dumps(["run-00000000-0000-4000-8000-000000000000"])
    spoil(
        path,
        ("DELETE FROM messages WHERE agent_id = ? AND role = 'tool'", (agent_id,)),
        (_TOOL_ROW, (1, agent_id, stray, agent_id)),
        (_SHOW_LAST, (agent_id,)),
        (_WAIT, (agent_id, "", NOWHERE, runs)),
        (_WAIT, (agent_id, "conv-00000000-0000-4000-8000-000000000000", NOWHERE, runs)),
    )


async def repaired(client: httpx.AsyncClient, **body: Any) -> dict[str, list[str]]:
    answer = await client.post(REPAIR, json=body)
    assert answer.status_code == 200, answer.text
    return {each["agent_id"]: each["done"] for each in answer.json()}


def sound(puppet: Puppet) -> bool:
    """Whether the last prompt had one result for each call."""
    shown = [each.message for each in puppet.asked[-1].messages]
    calls = [call.id for row in shown for call in row.tool_calls]
    return calls == [result.call_id for row in shown for result in row.tool_returns]


async def test_damage_is_mended_and_told_once_and_what_waits_is_left(
    client: httpx.AsyncClient, puppet: Puppet, tmp_path: Path
) -> None:
    spoilt, waiting, whole = [await make(client, name, rules) for name, rules in (("a", []), ("b", [RULE]), ("c", []))]
    await noted(client, puppet, spoilt, "tea")
    asked = await noted(client, puppet, waiting, "gin")
    assert asked["stop_reason"]["stop_reason"] == "requires_approval"
    await noted(client, puppet, whole, "milk")
    spoil_all(tmp_path, spoilt)
    done = await repaired(client)
    assert done[waiting] == done[whole] == []
    told = "\n".join(done[spoilt])
    assert len(done[spoilt]) == 5 and told.count("pending request was closed") == 2
    assert all(words in told for words in ("without a result", "result without a call", "missing or damaged"))
    assert await repaired(client) == {spoilt: [], waiting: [], whole: []}, "the second time there is nothing to do"
    puppet.script.append(said("still here"))
    await say(client, spoilt, input="are you there?")
    assert sound(puppet)
    shown = (await client.get(f"/v1/agents/{waiting}?include=agent.pending_approval")).json()["pending_approval"]
    assert shown["id"] == asked["messages"][0]["id"]
    ruling = {"type": "approval", "tool_call_id": "call_gin", "approve": True}
    await say(client, waiting, messages=[{"type": "approval", "approvals": [ruling]}])
    block = (await client.get(f"/v1/agents/{waiting}/core-memory/blocks/human")).json()
    assert "gin" in block["value"]


async def test_one_agent_is_mended_by_its_id(client: httpx.AsyncClient, puppet: Puppet, tmp_path: Path) -> None:
    first, second = [await make(client, name, []) for name in ("a", "b")]
    for agent_id in (first, second):
        await noted(client, puppet, agent_id, "tea")
    spoil(tmp_path, ("DELETE FROM messages WHERE role = 'tool'", ()))
    assert list(await repaired(client, agent_id=second)) == [second]
    left = await repaired(client)
    assert left[second] == [] and len(left[first]) == 2
    assert (
        await client.post(REPAIR, json={"agent_id": "agent-00000000-0000-4000-8000-000000000009"})
    ).status_code == 404
    assert (await client.post(REPAIR, json={"agent_id": "nobody"})).status_code == 400


async def test_two_calls_that_one_row_answers_need_no_repair(client: httpx.AsyncClient, puppet: Puppet) -> None:
    """The row stays in the context once, and the next messages find their places free."""
    agent_id = await make(client, "both", [])
    words = ("tea", "gin")
    calls = [called(INSERT, json.dumps({"label": "human", "new_string": word}), f"call_{word}") for word in words]
    puppet.script.append(replace(calls[0], tool_calls=tuple(call for each in calls for call in each.tool_calls)))
    await say(client, agent_id, input="note both")
    before = (await client.get(f"/v1/agents/{agent_id}")).json()["message_ids"]
    assert await repaired(client) == {agent_id: []}
    assert (await client.get(f"/v1/agents/{agent_id}")).json()["message_ids"] == before
    for word in words:
        await say(client, agent_id, input=f"and {word}")


async def test_a_wait_for_nothing_keeps_no_agent_from_answering(
    client: httpx.AsyncClient, puppet: Puppet, tmp_path: Path
) -> None:
    agent_id = await make(client, "a", [RULE])
    spoil(tmp_path, (_WAIT, (agent_id, "", NOWHERE, "[]")))
    assert (await say(client, agent_id, input="hello"))["stop_reason"]["stop_reason"] == "end_turn"
    assert await repaired(client) == {agent_id: []}


async def test_what_waits_can_be_cancelled_when_the_record_of_its_run_is_gone(
    client: httpx.AsyncClient, puppet: Puppet
) -> None:
    agent_id = await make(client, "a", [RULE])
    asked = await noted(client, puppet, agent_id, "gin")
    assert (await client.delete(f"/v1/runs/{asked['messages'][0]['run_id']}")).status_code == 200
    assert (await client.post(f"/v1/agents/{agent_id}/messages/cancel", json={})).status_code == 200
    puppet.script.append(said("still here"))
    await say(client, agent_id, input="are you there?")
    assert sound(puppet)
