"""Agent files: what is exported and imported again says the same; options do what they say; what is broken is refused
by name, and nothing of it is stored."""

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from kelpie.agent.maintenance.cleanup import Cleanup
from kelpie.app import Kelpie
from kelpie.core.errors import StorageError
from kelpie.storage.agents import staging
from kelpie.storage.tables import metadata
from tests.server.agent_file_rig import SOURCE, agent, agent_file, meaning, message, packed
from tests.server.rig import Puppet, called, client_of, make_agent, open_rig, said

Rig = tuple[Kelpie, Puppet, httpx.AsyncClient]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(tmp_path) as (kelpie, puppet), client_of(kelpie) as client:
        yield kelpie, puppet, client


async def sent(client: httpx.AsyncClient, document: Any, **fields: str) -> httpx.Response:
    """Imports a file as the SDK sends it."""
    raw = document if isinstance(document, bytes) else orjson.dumps(document)
    return await client.post("/v1/agents/import", data=fields, files={"file": ("a.af", raw, "application/json")})


async def imported(client: httpx.AsyncClient, document: Any, **fields: str) -> list[str]:
    answer = await sent(client, document, **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["agent_ids"]


async def exported(client: httpx.AsyncClient, agent_id: str, **query: str) -> dict[str, Any]:
    answer = await client.get(f"/v1/agents/{agent_id}/export", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def shown(client: httpx.AsyncClient, agent_id: str) -> dict[str, Any]:
    relations = ("agent.blocks", "agent.tools", "agent.tags", "agent.secrets", "agent.pending_approval")
    return (await client.get(f"/v1/agents/{agent_id}", params={"include": relations})).json()


async def everything(kelpie: Kelpie) -> dict[str, list[Any]]:
    """Every row of every table, to see that nothing was stored."""

    def read(tx: Any) -> dict[str, list[Any]]:
        return {table.name: sorted(map(repr, tx.execute(table.select()))) for table in metadata.sorted_tables}

    return await kelpie.world.database.read(read)


async def cleaned(kelpie: Kelpie) -> None:
    await Cleanup(kelpie.world, 3600.0, kelpie.runtime.piece_size, kelpie.runtime.disk_usage).clean_up()


# --- round trips ------------------------------------------------------------------------------------------------------


async def test_an_imported_agent_is_the_one_of_the_file(rig: Rig) -> None:
    _, puppet, client = rig
    (agent_id,) = await imported(client, agent_file())
    found = await shown(client, agent_id)
    assert (found["name"], found["system"], found["tags"]) == ("Ada_copy", "You sell tea.", ["shop"])
    assert {block["label"]: block["value"] for block in found["blocks"]} == {"human": "Name: Bob", "persona": "I help."}
    assert [tool["name"] for tool in found["tools"]] == ["conversation_search", "price_of"]
    assert found["llm_config"]["context_window"] == 32_000
    assert (found["llm_config"]["temperature"], found["timezone"]) == (0.5, "Europe/Berlin")
    assert [(one["key"], one["value"]) for one in found["secrets"]] == [("CURRENCY", "")]
    assert len(found["message_ids"]) == 8
    assert found["pending_approval"]["tool_calls"][0]["tool_call_id"] == "call_2"

    deny = {"type": "approval", "approvals": [{"type": "approval", "tool_call_id": "call_2", "approve": False}]}
    answer = await client.post(f"/v1/agents/{agent_id}/messages", json={"messages": [deny]})
    assert answer.status_code == 200, answer.text
    prompt = puppet.asked[-1]
    texts = [part.text for message in prompt.messages for part in message.message.content if hasattr(part, "text")]
    assert "what does tea cost?" in texts
    assert not any("old instructions" in text for text in texts)


async def test_a_file_is_the_same_after_an_import_and_an_export(rig: Rig) -> None:
    _, _, client = rig
    (first,) = await imported(client, agent_file())
    one = await exported(client, first)
    (second,) = await imported(client, one, append_copy_suffix="false")
    assert meaning(await exported(client, second)) == meaning(one)
    assert [row["role"] for row in one["agents"][0]["messages"]] == [row["role"] for row in agent()["messages"]]
    assert json.loads(one["agents"][0]["messages"][4]["tool_returns"][0]["func_response"])["message"] == "3 EUR"


async def test_an_agent_that_has_worked_is_the_same_after_an_export_and_an_import(rig: Rig) -> None:
    _, puppet, client = rig
    tool = (await client.post("/v1/tools/", json={"source_code": SOURCE})).json()
    settings = {"kelpie_budget": {"tokens": 1000}, "secrets": {"KEY": "very secret"}}
    made = await make_agent(client, tool_ids=[tool["id"]], memory_blocks=[{"label": "human", "value": "v"}], **settings)
    puppet.script.extend([called("memory_insert", '{"label": "human", "new_string": "Ann"}'), said("Noted.")])
    await client.post(f"/v1/agents/{made['id']}/messages", json={"input": "my name is Ann"})
    one = await exported(client, made["id"])
    assert "very secret" not in json.dumps(one)
    assert one["agents"][0]["secrets"] == {"KEY": ""}
    assert one["agents"][0]["in_context_message_ids"] == [f"message-{n}" for n in range(5)]
    (second,) = await imported(client, one, append_copy_suffix="false")
    two = await exported(client, second)
    assert meaning(two) == meaning(one)
    assert two["agents"][0]["kelpie_budget"]["tokens"] == 1000
    assert "Ann" in next(block["value"] for block in two["blocks"] if block["label"] == "human")


async def test_a_companion_comes_with_its_agent(rig: Rig) -> None:
    _, _, client = rig
    made = await make_agent(client, enable_sleeptime=True, name="watched")
    one = await exported(client, made["id"])
    assert [each["name"] for each in one["agents"]] == ["watched", "watched-sleeptime"]
    assert one["groups"][0]["manager_config"]["manager_agent_id"] == "agent-0"
    ids = await imported(client, one, append_copy_suffix="false")
    assert len(ids) == 2
    assert meaning(await exported(client, ids[0])) == meaning(one)
    found = (await client.get(f"/v1/agents/{ids[0]}", params={"include": ["agent.managed_group"]})).json()
    assert found["managed_group"]["agent_ids"] == [ids[1]]


async def test_what_this_server_cannot_use_is_exported_again(rig: Rig) -> None:
    _, _, client = rig
    lacking = {"id": "tool-2", "name": "brain_scan", "tool_type": "letta_voice_sleeptime_core"}
    document = agent_file(
        agent(tool_ids=["tool-0", "tool-1", "tool-2"]),
        skills=[{"name": "pdf", "files": {"SKILL.md": "text"}, "source_url": None}],
        tools=[*agent_file()["tools"], lacking],
    )
    answer = await sent(client, document)
    assert answer.status_code == 200, answer.text
    assert any("brain_scan" in note for note in answer.json()["kelpie_notes"])
    one = await exported(client, answer.json()["agent_ids"][0])
    assert one["skills"] == document["skills"]
    assert "brain_scan" in [tool["name"] for tool in one["tools"]]
    (second,) = await imported(client, one, append_copy_suffix="false")
    assert meaning(await exported(client, second)) == meaning(one)


async def test_one_conversation_is_exported(rig: Rig) -> None:
    _, _, client = rig
    made = await make_agent(client)
    await client.post(f"/v1/agents/{made['id']}/messages", json={"input": "by default"})
    thread = (await client.post("/v1/conversations/", params={"agent_id": made["id"]}, json={})).json()["id"]
    await client.post(f"/v1/conversations/{thread}/messages", json={"input": "in the thread", "streaming": False})
    document = await exported(client, made["id"], conversation_id=thread)
    texts = json.dumps(document["agents"][0]["messages"])
    assert "in the thread" in texts
    assert "by default" not in texts
    own = await exported(client, made["id"], conversation_id="default")
    assert meaning(own) == meaning(await exported(client, made["id"]))
    (copy,) = await imported(client, document)
    listed = (await client.get(f"/v1/agents/{copy}/messages", params={"order": "asc"})).json()
    assert "in the thread" in [row.get("content") for row in listed]
    other = await make_agent(client)
    assert (await client.get(f"/v1/agents/{other['id']}/export", params={"conversation_id": thread})).status_code == 404


async def test_an_exported_conversation_has_its_own_blocks(rig: Rig) -> None:
    _, _, client = rig
    made = await make_agent(client, memory_blocks=[{"label": "human", "value": "of the agent"}])
    body = {"isolated_block_labels": ["human"]}
    thread = (await client.post("/v1/conversations/", params={"agent_id": made["id"]}, json=body)).json()
    (own,) = thread["isolated_block_ids"]
    assert (await client.patch(f"/v1/blocks/{own}", json={"value": "of the thread"})).status_code == 200
    for conversation, value in (({}, "of the agent"), ({"conversation_id": thread["id"]}, "of the thread")):
        document = await exported(client, made["id"], **conversation)
        assert [block["value"] for block in document["blocks"]] == [value]
        (copy,) = await imported(client, document)
        shown = (await client.get(f"/v1/agents/{copy}/core-memory/blocks/human")).json()
        assert shown["value"] == value


async def test_skills_of_the_client_are_in_the_file(rig: Rig) -> None:
    _, _, client = rig
    made = await make_agent(client)
    skills = [{"name": "pdf", "files": {"SKILL.md": "Read it."}, "source_url": None}]
    body = {"skills": skills, "scrub_messages": True}
    document = (await client.post(f"/v1/agents/{made['id']}/export", json=body)).json()
    assert (document["skills"], document["agents"][0]["messages"]) == (skills, [])
    answer = (await sent(client, document)).json()
    assert any("Skills" in note for note in answer["kelpie_notes"])
    assert (await exported(client, answer["agent_ids"][0]))["skills"] == skills


# --- options ----------------------------------------------------------------------------------------------------------


async def test_the_fields_of_the_form_change_the_agent(rig: Rig) -> None:
    _, _, client = rig
    (agent_id,) = await imported(
        client,
        agent_file(),
        name="Ben",
        secrets='{"CURRENCY": "USD", "MORE": "x"}',
        model="fake/model",
        strip_messages="true",
        project_id="p1",
    )
    found = await shown(client, agent_id)
    assert (found["name"], found["project_id"], found["model"]) == ("Ben", "p1", "fake/model")
    assert {one["key"]: one["value"] for one in found["secrets"]} == {"CURRENCY": "USD", "MORE": "x"}
    assert len(found["message_ids"]) == 1
    old = {"override_name": "Old", "env_vars_json": '{"CURRENCY": "EUR"}', "override_model_handle": "fake/model"}
    (agent_id,) = await imported(client, agent_file(), **old)
    found = await shown(client, agent_id)
    assert (found["name"], found["model"], found["secrets"][0]["value"]) == ("Old", "fake/model", "EUR")


async def test_tools_are_found_by_name_and_replaced_only_if_wanted(rig: Rig) -> None:
    _, _, client = rig
    mine = SOURCE.replace("return item", "return item + '!'")
    tool = (await client.post("/v1/tools/", json={"source_code": mine})).json()
    (kept,) = await imported(client, agent_file(), override_existing_tools="false")
    assert {one["id"] for one in (await shown(client, kept))["tools"]} >= {tool["id"]}
    assert (await client.get(f"/v1/tools/{tool['id']}")).json()["source_code"] == mine
    (replaced,) = await imported(client, agent_file())
    assert {one["id"] for one in (await shown(client, replaced))["tools"]} >= {tool["id"]}
    assert (await client.get(f"/v1/tools/{tool['id']}")).json()["source_code"] == SOURCE


async def test_handles_of_old_files_are_mapped_with_a_note(rig: Rig) -> None:
    _, _, client = rig
    given = agent(llm_config={"model": "letta-free", "handle": "letta/letta-free", "context_window": 30_000})
    answer = await sent(client, agent_file(given | {"embedding_config": None, "embedding": "letta/letta-free"}))
    assert answer.status_code == 200, answer.text
    assert (await shown(client, answer.json()["agent_ids"][0]))["model"] == "fake/model"
    assert any("letta/letta-free" in note for note in answer.json()["kelpie_notes"])


async def test_another_model_has_its_own_settings(rig: Rig) -> None:
    _, _, client = rig
    config = {"handle": "elsewhere/other", "model": "other", "context_window": 8_000, "temperature": 0.2}
    given = agent(llm_config={**config, "max_tokens": 77, "reasoning_effort": "high", "parallel_tool_calls": True})
    (other,) = await imported(client, agent_file(given), model="fake/model")
    (plain,) = await imported(client, agent_file(agent(llm_config=None)), model="fake/model")
    shown_other, shown_plain = await shown(client, other), await shown(client, plain)
    assert shown_other["llm_config"]["context_window"] == 8_000
    for name in ("temperature", "max_tokens", "reasoning_effort", "parallel_tool_calls"):
        assert shown_other["llm_config"][name] == shown_plain["llm_config"][name], name
    assert shown_other["model_settings"] == shown_plain["model_settings"]


async def test_gzip_is_accepted_and_offered(rig: Rig) -> None:
    _, _, client = rig
    packed = gzip.compress(orjson.dumps(agent_file()))
    (agent_id,) = await imported(client, packed)
    answer = await client.post(
        "/v1/agents/import", content=packed, headers={"content-type": "application/json", "content-encoding": "gzip"}
    )
    assert answer.status_code == 200, answer.text
    url = f"/v1/agents/{agent_id}/export"
    plain = await client.get(url, headers={"accept-encoding": "identity"})
    packed_answer = await client.get(url, headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert packed_answer.headers["content-encoding"] == "gzip"
    assert meaning(packed_answer.json()) == meaning(plain.json())
    assert plain.text.startswith('{\n  "agents": [')


async def test_files_that_are_encoded_in_another_way_are_imported(rig: Rig) -> None:
    _, _, client = rig
    raw = orjson.dumps(agent_file())
    await imported(client, orjson.dumps(raw.decode()))  # twice
    for marked in (b"\xef\xbb\xbf" + raw, gzip.compress(b"\xef\xbb\xbf" + raw)):
        await imported(client, marked)
    refused = await client.post("/v1/agents/import", content=raw, headers={"content-encoding": "br"})
    assert (refused.status_code, "gzip" in refused.text) == (400, True)


async def test_files_of_the_first_format_are_imported(rig: Rig) -> None:
    """Their times have no zone, their messages no ids, and of a group they have only the id."""
    _, _, client = rig
    at = "2025-04-01T03:47:27.514261"
    call = {"id": "c1", "type": "function", "function": {"name": "send_message", "arguments": '{"message": "hi"}'}}

    def row(role: str, text: str, **more: Any) -> dict[str, Any]:
        same = {"group_id": None, "model": "m", "name": None, "tool_calls": [], "tool_returns": [], "updated_at": at}
        return {"role": role, "content": [{"type": "text", "text": text}], "created_at": at, **same, **more}

    legacy = {
        "agent_type": "memgpt_agent",
        "name": "Old",
        "system": "You sell tea.",
        "version": "0.6.45",
        "llm_config": {"model": "model", "handle": "fake/model", "context_window": 30_000},
        "core_memory": [{"label": "human", "value": "Bob", "limit": 5_000, "metadata_": {}, "created_at": at}],
        "messages": [
            row("system", "old"),
            row("user", '{"type": "user_message", "message": "hello", "time": "2025-04-01 03:47:27 AM UTC+0000"}'),
            row("assistant", "I greet.", tool_calls=[call]),
            row("tool", packed(None), tool_call_id="c1", name="send_message"),
        ],
        "in_context_message_indices": [0, 1, 2, 3],
        "multi_agent_group": "group-1",
        "metadata_": {"team": "shop"},
        "tags": [{"tag": "old"}],
        "tools": [
            {"name": "price_of", "source_code": SOURCE, "tool_type": "custom", "source_type": "python"},
            {"name": "send_message", "source_code": None, "tool_type": "letta_core", "source_type": "python"},
        ],
        "tool_exec_environment_variables": [{"key": "K", "value": "", "created_at": at}],
        "tool_rules": [{"tool_name": "send_message", "type": "exit_loop"}],
    }
    answer = await sent(client, legacy)
    assert answer.status_code == 200, answer.text
    assert any("group" in note for note in answer.json()["kelpie_notes"])
    (agent_id,) = answer.json()["agent_ids"]
    found = await shown(client, agent_id)
    assert (found["tags"], found["blocks"][0]["value"], len(found["message_ids"])) == (["old"], "Bob", 4)
    assert ([tool["name"] for tool in found["tools"]], found["metadata"]) == (
        ["price_of", "send_message"],
        {"team": "shop"},
    )
    listed = (await client.get(f"/v1/agents/{agent_id}/messages", params={"order": "asc"})).json()
    assert [(each["message_type"], each.get("content")) for each in listed if "content" in each][1:] == [
        ("user_message", "hello"),
        ("assistant_message", "hi"),
    ]
    assert {each["date"] for each in listed} == {"2025-04-01T03:47:27+00:00"}
    one = await exported(client, agent_id)
    (second,) = await imported(client, one, append_copy_suffix="false")
    assert meaning(await exported(client, second)) == meaning(one)
    refused = await client.get(f"/v1/agents/{agent_id}/export", params={"use_legacy_format": "true"})
    assert (refused.status_code, refused.json()["detail"]) == (400, "Legacy format is not supported")


# --- long and broken files --------------------------------------------------------------------------------------------


async def test_a_file_with_a_thousand_messages(rig: Rig) -> None:
    """tests/conformance/test_bounded.py has fifty thousand."""
    client, count = rig[2], 1_000
    rows = [message("message-0", "system", "old")]
    rows += [message(f"message-{n}", "user" if n % 2 else "assistant", f"line {n}") for n in range(1, count)]
    (agent_id,) = await imported(client, agent_file(agent(messages=rows)))
    document = await exported(client, agent_id)
    assert len(document["agents"][0]["messages"]) == count
    assert [row["content"][0]["text"] for row in document["agents"][0]["messages"][1:]] == [
        f"line {n}" for n in range(1, count)
    ]
    assert document["agents"][0]["in_context_message_ids"] == [f"message-{n}" for n in range(count)]


BROKEN: list[tuple[Any, str]] = [
    (b"", "file"),
    (b"not json", "Corrupted"),
    (orjson.dumps(agent_file())[:-40], "cut off"),
    (gzip.compress(orjson.dumps(agent_file()))[:-30], "incomplete"),
    (b"\x1f\x8b" + b"x" * 40, "decompressed"),
    (b"[]", "object"),
    ({}, "file.agents"),
    ({"agents": []}, "file.agents"),
    ({"agents": [1]}, "file.agents[0]"),
    ({"agents": {}, "x": 1}, "file.agents"),
    (agent_file(agent(id=7)), "file.agents[0].id"),
    (agent_file(agent(), agent()), "same id"),
    (agent_file(agent(block_ids=["block-9"])), "block-9"),
    (agent_file(agent(tool_ids=["tool-9"])), "tool-9"),
    (agent_file(agent(in_context_message_ids=["message-9"])), "message-9"),
    (agent_file(agent(in_context_message_ids=["message-0", ""])), "in_context_message_ids"),
    (agent_file(agent(in_context_message_ids=["message-1"])), "role system"),
    (
        agent_file(agent(llm_config={"model": "m", "handle": "fake/model", "response_format": [None]})),
        "agents[0].llm_config.response_format",
    ),
    (agent_file(agent(messages=[message("message-0", "wizard", "x")])), "wizard"),
    (agent_file(agent(messages=[message("message-0", "system", "x", content=[{"type": "poem"}])])), "poem"),
    (agent_file(agent(messages=[message("message-0", "system", "x", created_at="yesterday")])), "is not a time"),
    (
        agent_file(agent(messages=[message("message-0", "system", "x", content=["x"])])),
        "'content' must be a list of objects",
    ),
    (agent_file(agent(messages=[{"id": "message-0"}])), "'role' is missing"),
    (agent_file(agent(messages=[message("message-0", "system", "x", tool_calls=[{"id": "c"}])])), "'name' is missing"),
    (agent_file(agent(name="a\nb")), "name"),
    (agent_file(agent(timezone="Mars/Olympus")), "timezone"),
    (agent_file(agent(agent_type="robot")), "agent_type"),
    (agent_file(agent(llm_config={"model": "m", "handle": "nobody/m"})), "nobody/m"),
    (agent_file(blocks=[{"id": "block-0"}, {"id": "block-1", "label": "x"}]), "blocks[0]"),
    (
        agent_file(
            agent(block_ids=["block-0", "block-1"]), blocks=[{"id": f"block-{n}", "label": "x"} for n in (0, 1)]
        ),
        "x",
    ),
    (agent_file(tools=[{"id": "tool-0", "name": "t", "tool_type": "spell"}]), "spell"),
    (
        agent_file(
            tools=[{"id": f"tool-{n}", "name": "t", "tool_type": "custom", "source_code": "def ("} for n in (0, 1)]
        ),
        "tools[0].source_code",
    ),
    (agent_file(tools=[tool | {"name": f"{tool['name']}_2"} for tool in agent_file()["tools"]]), "must be 'price_of'"),
    (agent_file(groups=[{"id": "group-0", "agent_ids": ["agent-9"]}]), "agent-9"),
    (agent_file(groups=[{"id": "group-0", "manager_config": {"manager_type": "king"}}]), "groups[0].manager_config"),
    (agent_file(groups=[{"id": "g", "manager_config": {"manager_type": "round_robin", "max_turns": -1}}]), "max_turns"),
    (agent_file(files=[{"id": "file-0", "source_id": ["x"]}]), "files[0].source_id"),
    (agent_file(agent(files_agents=[{"file_id": {}}])), "files_agents[0].file_id"),
    (agent_file(blocks=[{"id": f"block-{n}", "label": str(n)} for n in range(1_001)]), "1000"),
    (b'{"agents": ' + b"[" * 5_000 + b"]" * 5_000 + b"}", "file"),
]


async def test_a_broken_file_is_refused_by_name_and_nothing_is_stored(rig: Rig) -> None:
    kelpie, _, client = rig
    before = await everything(kelpie)
    for document, named in BROKEN:
        answer = await sent(client, document)
        assert answer.status_code == 400, f"{str(document)[:80]}: {answer.text}"
        assert named in answer.text, answer.text
    for fields in ({"secrets": "x"}, {"strip_messages": "maybe"}, {"embedding": "x"}, {"model": "nobody/m"}):
        assert (await sent(client, agent_file(), **fields)).status_code == 400
    nothing = await client.post("/v1/agents/import", data={"name": "x"}, files={"other": b"y"})
    assert (nothing.status_code, "file" in nothing.text) == (400, True)
    await cleaned(kelpie)
    assert await everything(kelpie) == before


async def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with open_rig(tmp_path, upload_bytes_max=1_000) as (kelpie, _), client_of(kelpie) as client:
        answer = await sent(client, agent_file())
        assert answer.status_code == 413, answer.text
        assert "KELPIE_UPLOAD_BYTES_MAX" in answer.text
        made = await make_agent(client, system="x" * 2_000)
        refused = await client.get(f"/v1/agents/{made['id']}/export")
        assert refused.status_code == 409, refused.text


async def test_an_import_that_fails_at_its_end_leaves_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    kelpie, _, client = rig
    before = await everything(kelpie)

    def fail(*_: Any) -> None:
        raise StorageError("the disk is gone")

    monkeypatch.setattr(staging, "publish", fail)
    answer = await sent(client, agent_file())
    assert answer.status_code >= 500, answer.text
    assert (await client.get("/v1/agents/")).json() == []
    await cleaned(kelpie)
    assert await everything(kelpie) == before
