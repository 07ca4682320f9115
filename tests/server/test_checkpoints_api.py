"""Checkpoints over HTTP: create, checkpoint, wreck, restore, and everything reads back the same; what is broken or not
ours is refused by name, and nothing is changed."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kelpie.app import Kelpie
from kelpie.core.access.callers import Caller
from kelpie.core.agents.agent import NewAgent
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId, FactId, MessageId, OrganizationId
from kelpie.core.memory import checkpoint_pieces, checkpoints
from kelpie.core.memory.blocks import NewBlock
from kelpie.core.memory.facts import Entity, Fact, Link
from kelpie.storage.memory import entities, facts
from kelpie.storage.tables import metadata
from kelpie.world.database import Tx
from kelpie.world.files.uploads import DirectoryUploads
from tests.server.rig import Puppet, called, client_of, make_agent, open_rig, said


async def asked(client: httpx.AsyncClient, method: str, url: str, body: Any = None, **query: Any) -> Any:
    answer = await client.request(method, url, json=body, params=query or None)
    assert answer.status_code in (200, 204), f"{method} {url}: {answer.text}"
    return answer.json() if answer.content else None


def of(agent: dict[str, Any], rest: str) -> str:
    return f"/v1/agents/{agent['id']}/{rest}"


async def checkpoint(client: httpx.AsyncClient, agent: dict[str, Any]) -> dict[str, Any]:
    return await asked(client, "GET", of(agent, "memory/checkpoint"))


async def restore(client: httpx.AsyncClient, agent: dict[str, Any], document: Any, **query: Any) -> Any:
    return await asked(client, "POST", of(agent, "memory/restore"), document, **query)


def memory_of(document: dict[str, Any]) -> dict[str, Any]:
    """The memory without what a restore counts on: versions and times of the change."""
    memory = json.loads(json.dumps(document["memory"]))
    threads = [block for thread in memory["conversations"] for block in thread["blocks"].values()]
    for block in (*memory["blocks"], *threads):
        del block["version"], block["updated_at"], block["last_updated_by_id"]
    return memory


async def everything(kelpie: Kelpie) -> dict[str, list[Any]]:
    """Every row of every table, to see that nothing was changed."""

    def read(tx: Any) -> dict[str, list[Any]]:
        return {
            name: sorted(map(str, tx.execute(table.select())))
            for name, table in metadata.tables.items()
            if name != "nodes"
        }

    return await kelpie.world.database.read(read)


async def found(client: httpx.AsyncClient, agent: dict[str, Any], word: str) -> set[str]:
    passages = await asked(client, "GET", of(agent, "archival-memory/search"), query=word)
    messages = await asked(
        client, "POST", "/v1/messages/search", {"query": word, "agent_id": agent["id"], "search_mode": "fts"}
    )
    return {each["content"] for each in passages["results"]} | {each["message_id"] for each in messages}


async def full_agent(client: httpx.AsyncClient, puppet: Puppet) -> dict[str, Any]:
    """An agent with some of everything that is memory."""
    blocks = [
        {"label": "human", "value": "Ann, likes tea ☕", "tags": ["x"], "metadata": {"a": [1, None]}},
        {"label": "rules/hard", "value": "never", "read_only": True, "limit": 50, "description": "d"},
    ]
    agent = await make_agent(client, memory_blocks=blocks, tools=["archival_memory_insert"])
    puppet.script.extend(
        [called("archival_memory_insert", '{"content": "penguin facts", "tags": ["t"]}'), said("kept")]
    )
    await asked(client, "POST", of(agent, "messages"), {"input": "remember walrus"})
    passage = {"text": "an old giraffe", "tags": ["b", "a"], "created_at": "2001-02-03T04:05:06Z"}
    await asked(client, "POST", of(agent, "archival-memory"), passage)
    await asked(client, "PUT", of(agent, "working-memory/plan"), {"value": {"n": 1.5, "l": [None, True]}})
    await asked(client, "PUT", of(agent, "working-memory/soon"), {"value": "s", "ttl_seconds": 3600})
    thread = await asked(
        client,
        "POST",
        f"/v1/conversations/?agent_id={agent['id']}",
        {"summary": "s", "isolated_block_labels": ["human"]},
    )
    await asked(
        client, "POST", f"/v1/conversations/{thread['id']}/messages", {"input": "in a thread", "streaming": False}
    )
    await asked(client, "POST", f"/v1/conversations/{thread['id']}/fork")
    return {**agent, "thread": thread["id"]}


async def wreck(client: httpx.AsyncClient, agent: dict[str, Any]) -> None:
    """Changes or removes some of everything."""
    await asked(client, "POST", of(agent, "messages"), {"input": "said since, about a zebra"})
    await asked(
        client, "PATCH", of(agent, "core-memory/blocks/human"), {"value": "nobody", "label": "other", "tags": []}
    )
    blocks = await asked(client, "GET", of(agent, "core-memory/blocks"))
    await asked(client, "DELETE", f"/v1/blocks/{blocks[1]['id']}")
    new = await asked(client, "POST", "/v1/blocks/", {"label": "new", "value": "since"})
    await asked(client, "PATCH", of(agent, f"core-memory/blocks/attach/{new['id']}"))
    passages = await asked(client, "GET", of(agent, "archival-memory"))
    await asked(client, "DELETE", of(agent, f"archival-memory/{passages[0]['id']}"))
    await asked(client, "POST", of(agent, "archival-memory"), {"text": "a zebra since"})
    await asked(client, "PUT", of(agent, "working-memory/plan"), {"value": 2})
    await asked(client, "PUT", of(agent, "working-memory/since"), {"value": 2})
    await asked(client, "DELETE", of(agent, "working-memory/soon"))
    await asked(client, "DELETE", f"/v1/conversations/{agent['thread']}")
    await asked(client, "POST", f"/v1/conversations/?agent_id={agent['id']}", {"summary": "since"})


async def test_what_was_learnt_reads_back_the_same(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    agent = await make_agent(client, memory_blocks=[], kelpie_facts={"every_turns": 1})
    agent_id, ids = AgentId(agent["id"]), kelpie.world.ids
    old, new, later = (ids.new(FactId) for _ in range(3))
    berlin = Fact(old, agent_id, "Ann", "home", "Berlin", "Ann lives in Berlin.", 1, 1, 1, valid_until=5)
    berlin = replace(berlin, superseded_by=new, confidence=0.5, sources=(ids.new(MessageId),))
    oslo = Fact(new, agent_id, "Ann", "home", "Oslo", "Ann lives in Oslo.", 5, 6, 6, supersedes=old, link=Link.update)

    def learn(tx: Tx) -> None:
        facts.add(tx, berlin)
        facts.add(tx, oslo)
        entities.add(tx, agent_id, Entity("Ann", "person", 1, 6, ("Annie",)))

    def since(tx: Tx) -> None:
        facts.remove(tx, agent_id, new)
        facts.add(tx, Fact(later, agent_id, "Ann", "pet", "zebra", "Ann has a zebra.", 7, 7, 7))
        entities.remove(tx, agent_id, ["ann"])
        tx.exec_driver_sql("UPDATE fact_states SET through = through - 1")

    await kelpie.world.database.transact(learn)
    before = await checkpoint(client, agent)
    await kelpie.world.database.transact(since)
    assert (await restore(client, agent, before))["facts"] == 2
    assert memory_of(await checkpoint(client, agent)) == memory_of(before)
    assert await kelpie.world.database.read(lambda tx: facts.every(tx, agent_id)) == [berlin, oslo]
    found = await asked(client, "POST", of(agent, "facts/search"), {"query": "zebra Oslo", "mode": "fts"})
    assert [each["value"] for each in found["results"]] == ["Oslo"]
    for path, value, told in (
        ("memory.facts.0.link", "guess", "memory.facts[0].link: must be one of"),
        ("memory.facts.0.confidence", "high", "memory.facts[0].confidence: must be a number"),
        ("memory.facts.1.sources", ["x"], "is not an id of the form"),
        ("memory.entities.0.aliases", [1], "memory.entities[0].aliases: must be a list of texts"),
        ("memory.facts_through", -1, "memory.facts_through: must be a whole number or null"),
    ):
        document = json.loads(json.dumps(before))
        _set(path, value)(document)
        answer = await client.post(of(agent, "memory/restore"), json=sealed(document))
        assert (answer.status_code, told in answer.json()["detail"]) == (400, True), f"{path}: {answer.text}"


async def test_everything_reads_back_the_same(client: httpx.AsyncClient, puppet: Puppet, kelpie: Kelpie) -> None:
    agent = await full_agent(client, puppet)
    before = await checkpoint(client, agent)
    await wreck(client, agent)
    told = await restore(client, agent, before)
    passages, messages = len(before["memory"]["archive"]["passages"]), len(before["memory"]["messages"])
    assert (told["blocks"], told["entries"], told["passages"], told["messages"]) == (2, 2, passages, messages)
    assert (told["left"], told["lapsed"], told["conversations"]) == ([], 0, 2)
    assert memory_of(await checkpoint(client, agent)) == memory_of(before)
    assert await found(client, agent, "zebra") == set()
    assert len(await found(client, agent, "penguin giraffe walrus")) == 3
    await asked(client, "POST", of(agent, "messages"), {"input": "are you there?"})
    assert "Ann, likes tea ☕" in str(puppet.asked[-1]) and "zebra" not in str(puppet.asked[-1])
    thread = f"/v1/conversations/{agent['thread']}/messages"
    await asked(client, "POST", thread, {"input": "and here?", "streaming": False})


async def test_an_emptied_agent_comes_back_and_twice_is_once(client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = await full_agent(client, puppet)
    before = await checkpoint(client, agent)
    await asked(client, "PATCH", of(agent, "reset-messages"), {})
    archive = before["memory"]["archive"]["archive"]["id"]
    await asked(client, "DELETE", f"/v1/archives/{archive}")
    await asked(client, "DELETE", of(agent, "working-memory"))
    for block in before["memory"]["blocks"]:
        await asked(client, "DELETE", f"/v1/blocks/{block['id']}")
    for _ in range(2):
        await restore(client, agent, before)
        assert memory_of(await checkpoint(client, agent)) == memory_of(before)
    assert len(await found(client, agent, "penguin giraffe walrus")) == 3


async def test_what_nothing_was_in_is_nothing_again(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client, memory_blocks=[])
    before = await checkpoint(client, agent)
    assert before["memory"]["archive"] is None
    await asked(client, "POST", of(agent, "archival-memory"), {"text": "since"})
    await asked(client, "PUT", of(agent, "working-memory/since"), {"value": 2})
    await restore(client, agent, before)
    assert memory_of(await checkpoint(client, agent)) == memory_of(before)
    assert await asked(client, "GET", "/v1/archives/") == []


async def test_what_others_share_is_left_alone_unless_asked(client: httpx.AsyncClient) -> None:
    shared = await asked(client, "POST", "/v1/blocks/", {"label": "team", "value": "before"})
    one, two = [await make_agent(client, name=name, block_ids=[shared["id"]], memory_blocks=[]) for name in "ab"]
    archive = await asked(client, "POST", "/v1/archives/", {"name": "team's"})
    for agent in (one, two):
        await asked(client, "PATCH", of(agent, f"archives/attach/{archive['id']}"))
    await asked(client, "POST", of(one, "archival-memory"), {"text": "first"})
    document = await checkpoint(client, one)
    await asked(client, "PATCH", f"/v1/blocks/{shared['id']}", {"value": "after"})
    await asked(client, "POST", of(two, "archival-memory"), {"text": "second"})
    await asked(client, "PATCH", f"/v1/archives/{archive['id']}", {"name": "renamed"})
    await asked(client, "PATCH", of(one, f"core-memory/blocks/detach/{shared['id']}"))
    told = await restore(client, one, document)
    assert [(each["kind"], each["id"], each["agents"]) for each in told["left"]] == [
        ("block", shared["id"], 1),
        ("archive", archive["id"], 1),
    ]
    assert (await asked(client, "GET", of(one, "core-memory/blocks/team")))["value"] == "after"
    assert len(await asked(client, "GET", of(two, "archival-memory"))) == 2
    assert (await asked(client, "GET", f"/v1/archives/{archive['id']}"))["name"] == "renamed"
    told = await restore(client, one, document, overwrite_shared=True)
    assert told["left"] == []
    assert (await asked(client, "GET", f"/v1/archives/{archive['id']}"))["name"] == "team's"
    assert (await asked(client, "GET", of(two, "core-memory/blocks/team")))["value"] == "before"
    assert [each["text"] for each in await asked(client, "GET", of(two, "archival-memory"))] == ["first"]


async def test_what_only_a_companion_shares_is_the_agents_own(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client, memory_blocks=[{"label": "human", "value": "before"}], enable_sleeptime=True)
    (block,) = [
        each for each in await asked(client, "GET", of(agent, "core-memory/blocks")) if each["label"] == "human"
    ]
    assert len(await asked(client, "GET", f"/v1/blocks/{block['id']}/agents")) == 2
    document = await checkpoint(client, agent)
    await asked(client, "PATCH", f"/v1/blocks/{block['id']}", {"value": "after"})
    assert (await restore(client, agent, document))["left"] == []
    assert (await asked(client, "GET", f"/v1/blocks/{block['id']}"))["value"] == "before"


class Clock:
    at = 1_700_000_000_000_000

    def now(self) -> int:
        self.at += 1
        return self.at

    def monotonic_ns(self) -> int:
        return self.at * 1000


async def test_after_a_restore_no_version_is_given_twice(client: httpx.AsyncClient) -> None:
    one, two = [await make_agent(client, name=name) for name in "ab"]
    for key in ("z", *"aaaa"):
        entry = await asked(client, "PUT", of(one, f"working-memory/{key}"), {"value": key})
    document = await checkpoint(client, two)  # of an agent that has not come so far
    document["memory"]["working_memory"] = (await checkpoint(client, one))["memory"]["working_memory"]
    await restore(client, two, sealed(document))
    versions = [each["version"] for each in await asked(client, "GET", of(two, "working-memory"))]
    assert versions == [entry["version"], 1]
    again = await asked(client, "PUT", of(two, "working-memory/z"), {"value": "later"})
    assert again["version"] > entry["version"]


async def test_an_end_is_a_moment(tmp_path: Path) -> None:
    clock = Clock()
    async with open_rig(tmp_path, clock=clock) as (kelpie, _), client_of(kelpie) as client:
        agent = await make_agent(client)
        short = await asked(client, "PUT", of(agent, "working-memory/short"), {"value": 1, "ttl_seconds": 10})
        long = await asked(client, "PUT", of(agent, "working-memory/long"), {"value": 1, "ttl_seconds": 100})
        document = await checkpoint(client, agent)
        clock.at += 20_000_000
        told = await restore(client, agent, document)
        assert (told["entries"], told["lapsed"]) == (1, 1)
        assert await asked(client, "GET", of(agent, "working-memory")) == [long]
        again = await asked(client, "PUT", of(agent, "working-memory/short"), {"value": 1})
        assert again["version"] > max(short["version"], long["version"])
        assert (await checkpoint(client, agent))["memory"]["working_memory"][0]["key"] == "long"
        clock.at += 90_000_000
        kept = (await checkpoint(client, agent))["memory"]["working_memory"]
        assert [each["key"] for each in kept] == ["short"], "what is over by now is not saved"


async def test_an_agent_at_work_is_left_alone(client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = await make_agent(client)
    document = await checkpoint(client, agent)
    release = asyncio.Event()
    puppet.script.append(release)
    turn = asyncio.create_task(client.post(of(agent, "messages"), json={"input": "work"}))
    await asyncio.wait_for(puppet.waiting.wait(), 10)
    for answer in (
        await client.get(of(agent, "memory/checkpoint")),
        await client.post(of(agent, "memory/restore"), json=document),
    ):
        assert answer.status_code == 409 and "has an active run (run-" in answer.json()["detail"]
    release.set()
    assert (await turn).status_code == 200
    await restore(client, agent, document)


async def test_what_waits_for_a_word_waits_again(client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = await make_agent(client, tools=["working_memory_set"])
    await asked(client, "PATCH", of(agent, "tools/approval/working_memory_set"), {"requires_approval": True})
    puppet.script.append(called("working_memory_set", '{"key": "k", "value": 1}'))
    turn = await asked(client, "POST", of(agent, "messages"), {"input": "do it"})
    assert turn["stop_reason"]["stop_reason"] == "requires_approval"
    document = await checkpoint(client, agent)
    await asked(client, "PATCH", of(agent, "reset-messages"), {})
    await restore(client, agent, document)
    assert memory_of(await checkpoint(client, agent)) == memory_of(document)
    approval = {"type": "approval", "approve": True, "tool_call_id": "call_1"}
    said_yes = {"messages": [{"type": "approval", "approvals": [approval]}]}
    await asked(client, "POST", of(agent, "messages"), said_yes)
    assert (await asked(client, "GET", of(agent, "working-memory/k")))["value"] == 1


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the checksum that its content has."""
    plain = {name: value for name, value in document.items() if name != "checksum"}
    return {**plain, "checksum": checkpoints._checksum(plain)}


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place: Any = document
        for part in parents:
            place = place[part]
        place[last] = value

    return change


IMPOSSIBLE: list[tuple[str, Any, str]] = [
    ("format", "other", "is not a checkpoint"),
    ("version", 2, "has version 2"),
    ("agent_id", "agent-00000000-0000-4000-8000-00000000000f", "belongs to another agent"),
    ("memory", [], "memory: must be an object"),
    ("memory.blocks", {}, "memory.blocks: must be a list"),
    ("memory.blocks.0.value", 5, "memory.blocks[0].value: must be text"),
    ("memory.blocks.0.limit", True, "memory.blocks[0].limit: must be a whole number"),
    ("memory.blocks.0.further", 5, "memory.blocks[0].further: is an unknown field"),
    ("memory.blocks.0.metadata", [], "memory.blocks[0].metadata: must be an object"),
    ("memory.blocks.0.tags", [1], "memory.blocks[0].tags: must be a list of texts"),
    ("memory.blocks.0.id", "block-1", "is not an id of the form"),
    ("memory.blocks.1.label", "human", "memory.blocks: contains human twice"),
    ("memory.working_memory.0.key", "a\nb", "memory.working_memory[0].key: must be printable"),
    ("memory.working_memory.0.version", 2**63, "must be a whole number"),
    ("memory.working_memory.0.version", 2**63 - 1, "memory.working_memory[0].version: must be from 0 to"),
    ("memory.working_memory.0.expires_at", 2**62, "memory.working_memory[0].expires_at: must be a time"),
    ("memory.messages.0.seq", 2**63 - 1, "memory.messages[0].seq: must be from 0 to"),
    ("memory.messages.0.seq", -1, "memory.messages[0].seq: must be from 0 to"),
    ("memory.messages.0.created_at", -(2**62), "memory.messages[0].created_at: must be a time"),
    ("memory.archive.is_owner", 1, "memory.archive.is_owner: must be true or false"),
    ("memory.archive.passages.0.text", None, "passages[0].text: must not be null"),
    ("memory.archive.passages.0.metadata", "x", "passages[0].metadata: must be an object"),
    ("memory.messages.0.role", "king", "memory.messages[0].role"),
    ("memory.messages.0.content", [{"type": "text", "text": 5}], "memory.messages[0].content"),
    ("memory.messages.0.content", [{"type": "odd"}], "memory.messages[0].content"),
    ("memory.messages.1.seq", 1, "memory.messages: contains 1 twice"),
    ("memory.messages.0.tool_calls", [{"id": "a"}], "memory.messages[0].tool_calls"),
    ("memory.conversations.0.id", "conv-00000000-0000-4000-8000-00000000000f", "memory.con"),
    ("memory.contexts", {"": ["message-x"]}, "memory.contexts: refers to something that is not in the checkpoint"),
    ("memory.waiting", [{}], "memory.waiting[0].answers: is missing"),
]


async def test_a_document_that_cannot_be_is_refused_by_name(
    client: httpx.AsyncClient, puppet: Puppet, kelpie: Kelpie
) -> None:
    agent = await full_agent(client, puppet)
    raw = (await client.get(of(agent, "memory/checkpoint"))).content
    before = await everything(kelpie)
    for path, value, told in IMPOSSIBLE:
        document = json.loads(raw)
        _set(path, value)(document)
        answer = await client.post(of(agent, "memory/restore"), json=sealed(document))
        assert (answer.status_code, told in answer.json()["detail"]) == (400, True), f"{path}: {answer.text}"
    assert await everything(kelpie) == before


async def test_a_document_that_was_changed_or_cut_is_refused(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    agent = await make_agent(client, memory_blocks=[{"label": "human", "value": "Ann"}])
    raw = (await client.get(of(agent, "memory/checkpoint"))).content
    before = await everything(kelpie)
    for broken, told in (
        (raw.replace(b"Ann", b"Bob"), "does not match its checksum"),
        (raw[:-10], "is not valid JSON"),
        (b"", "is not valid JSON"),
        (b"[]", "is not a checkpoint"),
        (b'{"agents": []}', "is not a checkpoint"),
    ):
        answer = await client.post(of(agent, "memory/restore"), content=broken)
        assert (answer.status_code, told in answer.json()["detail"]) == (400, True), answer.text
    assert await everything(kelpie) == before
    other = await make_agent(client, name="two")
    answer = await client.post(of(other, "memory/restore"), content=raw)
    assert answer.status_code == 400 and f"another agent, {agent['id']}" in answer.json()["detail"]
    pretty = json.dumps(json.loads(raw), indent=3, sort_keys=True)
    await asked(client, "PUT", of(agent, "working-memory/x"), {"value": 1})
    assert (await client.post(of(agent, "memory/restore"), content=pretty)).status_code == 200


async def test_a_label_that_is_taken_refuses_the_whole(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    shared = await asked(client, "POST", "/v1/blocks/", {"label": "team", "value": "v"})
    own = [{"label": "mine", "value": "v"}]
    one = await make_agent(client, block_ids=[shared["id"]], memory_blocks=own)
    await make_agent(client, name="two", block_ids=[shared["id"]], memory_blocks=[])
    document = await checkpoint(client, one)
    await asked(client, "PATCH", of(one, f"core-memory/blocks/detach/{shared['id']}"))
    await asked(client, "PATCH", f"/v1/blocks/{shared['id']}", {"label": "mine"})
    await asked(client, "PUT", of(one, "working-memory/x"), {"value": 1})
    before = await everything(kelpie)
    answer = await client.post(of(one, "memory/restore"), json=document)
    assert answer.status_code == 409 and "'mine'" in answer.json()["detail"]
    assert await everything(kelpie) == before


async def test_a_label_that_another_block_of_the_agent_has_got_is_given_back(client: httpx.AsyncClient) -> None:
    one = await make_agent(client, memory_blocks=[{"label": "mine", "value": "v"}])
    document = await checkpoint(client, one)
    (block,) = await asked(client, "GET", of(one, "core-memory/blocks"))
    await asked(client, "PATCH", f"/v1/blocks/{block['id']}", {"label": "other"})
    new = await asked(client, "POST", "/v1/blocks/", {"label": "mine", "value": "since"})
    await asked(client, "PATCH", of(one, f"core-memory/blocks/attach/{new['id']}"))
    await restore(client, one, document)
    (after,) = await asked(client, "GET", of(one, "core-memory/blocks"))
    assert (after["id"], after["label"], after["value"]) == (block["id"], "mine", "v")


async def test_a_block_of_another_organization_is_not_attached(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    other = await asked(client, "POST", "/v1/admin/orgs/", {"name": "other"})
    theirs = kelpie.api(Caller(organization_id=OrganizationId(other["id"])))
    secret = await theirs.agents.create(NewAgent(name="theirs", memory_blocks=(NewBlock("theirs", "a secret"),)))
    one = await make_agent(client, memory_blocks=[{"label": "mine", "value": "v"}])
    document = await checkpoint(client, one)
    document["memory"]["blocks"][0]["id"] = secret.blocks[0].id
    before = await everything(kelpie)
    for query, status in (({}, 404), ({"overwrite_shared": "true"}, 409)):
        answer = await client.post(of(one, "memory/restore"), json=sealed(document), params=query)
        assert answer.status_code == status and "a secret" not in answer.text
        assert await everything(kelpie) == before


async def test_a_memory_that_could_not_be_sent_back_is_not_given_out(tmp_path: Path) -> None:
    async with open_rig(tmp_path, upload_bytes_max=20_000) as (kelpie, _), client_of(kelpie) as client:
        agent = await make_agent(client)
        for _ in range(3):
            await asked(client, "POST", of(agent, "archival-memory"), {"text": "x" * 9000})
        answer = await client.get(of(agent, "memory/checkpoint"))
        assert answer.status_code == 409 and "KELPIE_UPLOAD_BYTES_MAX" in answer.json()["detail"]


TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1, max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
MEMORIES = st.fixed_dictionaries(
    {
        "blocks": st.dictionaries(TEXT, TEXT, max_size=3),
        "entries": st.dictionaries(TEXT.filter(lambda key: key.strip("./")), VALUES, max_size=4),
        "passages": st.lists(st.tuples(TEXT, st.lists(TEXT, max_size=2)), max_size=4),
        "said": st.lists(TEXT, max_size=2),
    }
)


@pytest.fixture
async def rig_client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with open_rig(tmp_path) as (kelpie, _), client_of(kelpie) as client:
        yield client


async def _fill(client: httpx.AsyncClient, agent: dict[str, Any], memory: dict[str, Any]) -> None:
    for key, value in memory["entries"].items():
        await asked(client, "PUT", of(agent, f"working-memory/{quote(key, safe='')}"), {"value": value})
    for text, tags in memory["passages"]:
        await asked(client, "POST", of(agent, "archival-memory"), {"text": text, "tags": tags})
    for text in memory["said"]:
        await asked(client, "POST", of(agent, "messages"), {"input": text})


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(first=MEMORIES, then=MEMORIES)
async def test_any_memory_comes_back(rig_client: httpx.AsyncClient, first: Any, then: Any) -> None:
    client = rig_client
    blocks = [{"label": label, "value": value} for label, value in first["blocks"].items()]
    agent = await make_agent(client, memory_blocks=blocks)
    await _fill(client, agent, first)
    raw = (await client.get(of(agent, "memory/checkpoint"))).content
    for block in await asked(client, "GET", of(agent, "core-memory/blocks")):
        await asked(client, "PATCH", f"/v1/blocks/{block['id']}", {"value": f"not {block['value']}"})
    await _fill(client, agent, then)
    assert (await client.post(of(agent, "memory/restore"), content=raw)).status_code == 200
    assert memory_of(await checkpoint(client, agent)) == memory_of(orjson.loads(raw))
    await asked(client, "POST", of(agent, "messages"), {"input": "still there?"})


# --- what costs more than its size --------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [60, 70, 254, 255, 600, 1023, 1100])
async def test_a_document_nested_to_any_depth_is_refused(client: httpx.AsyncClient, depth: int) -> None:
    agent = await make_agent(client)
    head = f'{{"format":"{checkpoints.FORMAT}","version":1,"agent_id":"{agent["id"]}","memory":'
    raw = head.encode() + b'{"x":' * depth + b"1" + b"}" * depth + b"}"
    answer = await client.post(of(agent, "memory/restore"), content=raw)
    assert answer.status_code == 400 and "checkpoint" in answer.json()["detail"]


async def test_an_author_of_another_organization_is_replaced(client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = await full_agent(client, puppet)
    other = await asked(client, "POST", "/v1/admin/orgs/", {"name": "other"})
    stranger = (await asked(client, "POST", "/v1/admin/users/", {"name": "s", "organization_id": other["id"]}))["id"]
    document = await checkpoint(client, agent)
    memory, gone = document["memory"], "agent-00000000-0000-4000-8000-00000000000e"  # nobody's: kept as it is
    block, passage = memory["blocks"][0], memory["archive"]["passages"][0]
    ours = block["created_by_id"]
    block["created_by_id"], memory["archive"]["archive"]["last_updated_by_id"] = stranger, stranger
    passage["created_by_id"], passage["last_updated_by_id"] = stranger, gone
    for held in (block, passage):
        held["id"] = held["id"][:-4] + ("0000" if held["id"][-4:] != "0000" else "1111")  # so that they are made anew
    await restore(client, agent, sealed(document))
    after = (await checkpoint(client, agent))["memory"]
    assert stranger not in json.dumps(after) and gone in json.dumps(after["archive"])
    assert {each["created_by_id"] for each in after["blocks"]} == {ours}


async def test_metadata_in_a_document_has_the_limits_of_other_requests(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client, memory_blocks=[{"label": "one", "value": "x"}])
    for metadata_, told in (({"a": "x" * 70_000}, "65536"), ({"a": [[]] * 6000}, "5000 values")):
        document = await checkpoint(client, agent)
        document["memory"]["blocks"][0]["metadata"] = metadata_
        answer = await client.post(of(agent, "memory/restore"), json=sealed(document))
        assert answer.status_code == 400
        assert "memory.blocks[0].metadata" in answer.json()["detail"] and told in answer.json()["detail"]


async def test_an_upload_has_its_own_limit_and_leaves_no_file(tmp_path: Path) -> None:
    async with open_rig(tmp_path, upload_bytes_max=3_000_000, json_bytes_max=1000) as (kelpie, _):
        kelpie.world = replace(kelpie.world, uploads=DirectoryUploads(tmp_path))
        kelpie.runtime = replace(kelpie.runtime, world=kelpie.world)
        async with client_of(kelpie) as client:
            agent = await make_agent(client)
            for size, status, told in ((2_900_000, 400, "not valid JSON"), (3_100_000, 413, "KELPIE_UPLOAD_BYTES_MAX")):
                answer = await client.post(of(agent, "memory/restore"), content=b"x" * size)
                assert answer.status_code == status and told in answer.json()["detail"]
            await restore(client, agent, await checkpoint(client, agent))
    assert list((tmp_path / "uploads").iterdir()) == []


def test_a_document_is_written_in_pieces_as_it_would_be_in_one() -> None:
    rows = [{"b": 1, "a": ["é", {}, []]}, [], {}, None, "\u2028", 1.5]
    document = {"memory": {"z": rows, "archive": {"passages": rows, "0": {}}, "é": [], "a": {}}, "format": "x"}
    for option in (0, orjson.OPT_SORT_KEYS):
        assert b"".join(checkpoints._written(document, 4, option)) == orjson.dumps(document, option=option)


def test_the_pieces_of_a_document_make_the_same_document() -> None:
    rows = [{"id": number, "text": "x" * 300} for number in range(2000)]
    memory = {"blocks": rows, "archive": {"archive": {}, "passages": rows[:3]}, "messages": [], "contexts": {"": []}}
    plain = {"format": checkpoints.FORMAT, "version": checkpoints.VERSION, "memory": memory}
    raw = orjson.dumps({**plain, "checksum": checkpoints._checksum(plain)})
    assert checkpoint_pieces.joined(checkpoint_pieces.answer(raw)) == plain
    memory["blocks"] = [{"x": [1] * 50_001}]
    wide = checkpoint_pieces.answer(orjson.dumps(sealed(plain)))
    with pytest.raises(InvalidInput, match="more than 50000 values"):
        checkpoint_pieces.joined(wide)
