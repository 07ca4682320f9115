"""Templates: what is saved stays as it is; agents are made from one version, with their variables, all or none; what
is wrong is refused by name and leaves nothing behind."""

from typing import Any

import httpx
import pytest
from letta_client.types import (
    AgentState,
    TemplateCreateResponse,
    TemplateRollbackResponse,
    TemplateSaveResponse,
    TemplateUpdateResponse,
)
from letta_client.types.templates import AgentCreateResponse

from kelpie.app import Kelpie
from kelpie.core.agents import templates as limits
from kelpie.core.errors import StorageError
from kelpie.storage.agents import staging
from kelpie.storage.tables import metadata, template_versions
from kelpie.storage.templates import agent_variables
from kelpie.storage.templates import templates as rows
from tests.server.agent_file_rig import SOURCE, agent, agent_file
from tests.server.rig import Puppet, make_agent, said

BLOCKS = [
    {"label": "human", "value": "Name: {{name}}, ticket {{ ticket }}, {{name}} again."},
    {"label": "persona", "value": "I help."},
]
NOBODY = "identity-00000000-0000-4000-8000-000000000009"
EVERYTHING = ("agent.blocks", "agent.tools", "agent.tags", "agent.secrets", "agent.identities", "agent.managed_group")


async def done(client: httpx.AsyncClient, method: str, path: str, body: Any = None) -> Any:
    answer = await client.request(method, f"/v1/templates{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refused(client: httpx.AsyncClient, method: str, path: str, body: Any = None) -> tuple[int, str]:
    answer = await client.request(method, f"/v1/templates{path}", json=body)
    assert answer.status_code >= 400, answer.text
    return answer.status_code, answer.text


async def shown(client: httpx.AsyncClient, agent_id: str) -> dict[str, Any]:
    found = (await client.get(f"/v1/agents/{agent_id}", params={"include": EVERYTHING})).json()
    AgentState.model_validate(found)
    return found


async def made_template(client: httpx.AsyncClient, name: str = "support", **fields: Any) -> dict[str, Any]:
    """A template of an agent with two variables in its blocks and one in its instructions."""
    given = {"memory_blocks": BLOCKS, "system": "You work for {{company}}.", **fields}
    source = await make_agent(client, description="helps", **given)
    made = await done(client, "POST", "", {"type": "agent", "agent_id": source["id"], "name": name})
    TemplateCreateResponse.model_validate(made)
    return made


def file_with(value: str, **fields: Any) -> dict[str, Any]:
    document = agent_file(agent(**fields))
    document["blocks"][0]["value"] = value
    return document


def values_of(found: dict[str, Any]) -> dict[str, str]:
    return {block["label"]: block["value"] for block in found["blocks"]}


def prompt_of(puppet: Puppet) -> str:
    asked = puppet.asked[-1]
    return f"{asked.system} {[each.message.text for each in asked.messages]}"


async def everything(kelpie: Kelpie) -> dict[str, list[Any]]:
    def read(tx: Any) -> dict[str, list[Any]]:
        return {table.name: sorted(map(repr, tx.execute(table.select()))) for table in metadata.sorted_tables}

    return await kelpie.world.database.read(read)


async def test_an_agent_becomes_a_template_and_the_template_agents(client: httpx.AsyncClient, puppet: Puppet) -> None:
    made = await made_template(client, tags=["of-template"], secrets={"TOKEN": "private"})
    assert made["latest_version"] == "1" and made["name"] == "support" and made["description"] == "helps"
    assert made["template_deployment_slug"] == "default-project/support:1"
    identity = (
        await client.post("/v1/identities/", json={"identifier_key": "k", "name": "n", "identity_type": "user"})
    ).json()
    wanted = {
        "agent_name": "Ada's helper",
        "memory_variables": {"name": "Ada {{ticket}}", "ticket": "T-1", "company": "Acme"},
        "tool_variables": {"TOKEN": "t0"},
        "tags": ["mine"],
        "identity_ids": [identity["id"]],
    }
    deployed = await done(client, "POST", "/support:latest/agents", wanted)
    AgentCreateResponse.model_validate(deployed)
    assert deployed["group_id"] is None and "kelpie_notes" not in deployed
    found = await shown(client, deployed["agent_ids"][0])
    assert found["name"] == "Ada's helper" and found["system"] == "You work for Acme."
    # A variable in a value is no variable.
    assert values_of(found)["human"] == "Name: Ada {{ticket}}, ticket T-1, Ada {{ticket}} again."
    assert sorted(found["tags"]) == ["mine", "of-template"] and found["identity_ids"] == [identity["id"]]
    assert {one["key"]: one["value"] for one in found["secrets"]} == {"TOKEN": "t0"}
    assert found["base_template_id"] == made["id"] and found["deployment_id"] == deployed["deployment_id"]
    assert found["entity_id"] == "agent-0" and len(found["message_ids"]) == 1
    assert all(block["deployment_id"] == deployed["deployment_id"] for block in found["blocks"])
    listed = (await client.get("/v1/agents/", params={"base_template_id": made["id"]})).json()
    assert [one["id"] for one in listed] == deployed["agent_ids"]
    puppet.script.append(said("hello"))
    answer = await client.post(
        f"/v1/agents/{found['id']}/messages", json={"messages": [{"role": "user", "content": "hi"}]}
    )
    assert answer.status_code == 200 and "Ada" in prompt_of(puppet)


async def test_a_deployment_is_listed_and_deleted(client: httpx.AsyncClient) -> None:
    await made_template(client)
    one, two = [await done(client, "POST", "/support/agents", {}) for _ in range(2)]
    path = f"/v1/_internal_templates/deployment/{one['deployment_id']}"
    found = (await client.get(path)).json()["entities"]
    assert sorted(each["type"] for each in found) == ["agent", "block", "block"]
    gone = (await client.delete(path)).json()
    assert gone["deleted_agents"] == one["agent_ids"] and len(gone["deleted_blocks"]) == 2
    assert (await client.get(path)).json()["total_count"] == 0
    assert len((await shown(client, two["agent_ids"][0]))["blocks"]) == 2


async def test_a_copy_of_an_agent_does_not_belong_to_its_deployment(client: httpx.AsyncClient) -> None:
    await made_template(client)
    made = await done(client, "POST", "/support/agents")
    document = (await client.get(f"/v1/agents/{made['agent_ids'][0]}/export")).json()
    copy = (await client.post("/v1/agents/import", json=document)).json()["agent_ids"][0]
    await client.delete(f"/v1/_internal_templates/deployment/{made['deployment_id']}")
    assert set(values_of(await shown(client, copy))) == {"human", "persona"}


async def test_versions_are_saved_named_and_kept(client: httpx.AsyncClient) -> None:
    await made_template(client)
    document = file_with("now {{other}}")
    told = await done(client, "PATCH", "/support", {"agent_file_json": document})
    TemplateUpdateResponse.model_validate(told)
    assert "unsaved" in told["message"]

    async def human(version: str) -> str:
        made = await done(client, "POST", f"/{version}/agents", {})
        return values_of(await shown(client, made["agent_ids"][0]))["human"]

    old, new = "Name: , ticket ,  again.", "now "
    assert await human("support:latest") == await human("support:1") == await human("support") == old
    assert await human("support:current") == await human("support:dev") == new
    saved = await done(client, "POST", "/support/save", {"message": "second"})
    TemplateSaveResponse.model_validate(saved)
    assert saved["latest_version"] == "2" and await human("support:latest") == await human("support:2") == new
    assert await human("support:1") == old
    found = await done(client, "GET", "/support")
    assert [(one["version"], one["message"]) for one in found["versions"]] == [("2", "second"), ("1", None)]
    assert [one["memory_variables"] for one in found["versions"]] == [["other"], ["company", "name", "ticket"]]
    assert (await done(client, "POST", "/support/save"))["latest_version"] == "3"
    assert await human("support:3") == new


async def test_a_rollback_keeps_unsaved_changes_as_a_version(client: httpx.AsyncClient) -> None:
    await made_template(client)
    await done(client, "PATCH", "/support", {"agent_file_json": file_with("changed")})
    told = await done(client, "POST", "/support/rollback", {"version": "1"})
    TemplateRollbackResponse.model_validate(told)
    assert "version 2" in told["message"]
    found = await done(client, "GET", "/support")
    assert (found["latest_version"], found["kelpie_current_version"], found["kelpie_unsaved_changes"]) == (
        "2",
        "1",
        False,
    )
    current = await done(client, "GET", "/support:current/snapshot")
    assert {block["value"] for block in current["blocks"]} == {block["value"] for block in BLOCKS}
    # Without changes nothing is saved, and latest is what was saved last.
    told = await done(client, "POST", "/support/rollback", {"version": "latest"})
    found = await done(client, "GET", "/support")
    assert (found["latest_version"], found["kelpie_current_version"]) == ("2", "2") and "saved as" not in told[
        "message"
    ]


async def test_after_a_rollback_an_update_may_bring_the_newest_version_back(client: httpx.AsyncClient) -> None:
    await made_template(client)
    await done(client, "PATCH", "/support", {"agent_file_json": file_with("newest")})
    await done(client, "POST", "/support/rollback", {"version": "1"})
    told = await done(client, "PATCH", "/support", {"agent_file_json": file_with("newest")})
    assert "unchanged" not in told["message"]
    current = await done(client, "GET", "/support:current/snapshot")
    assert current["blocks"][0]["value"] == "newest"


async def test_an_update_saves_what_was_unsaved_if_it_is_told_to(client: httpx.AsyncClient) -> None:
    await made_template(client)
    for value in ("lost", "kept"):
        await done(client, "PATCH", "/support", {"agent_file_json": file_with(value)})
    body = {"agent_file_json": file_with("last"), "save_existing_changes": True}
    assert "version 2" in (await done(client, "PATCH", "/support", body))["message"]
    snapshots = [await done(client, "GET", f"/support:{name}/snapshot") for name in ("2", "current")]
    assert [one["blocks"][0]["value"] for one in snapshots] == ["kept", "last"]
    # The same document again is no change.
    await done(client, "POST", "/support/save")
    assert "unchanged" in (await done(client, "PATCH", "/support", {"agent_file_json": file_with("last")}))["message"]
    assert not (await done(client, "GET", "/support"))["kelpie_unsaved_changes"]


async def test_a_file_brings_its_tools(client: httpx.AsyncClient) -> None:
    secret = agent_file(agent(secrets={"CURRENCY": "private"}, tool_exec_environment_variables=None))
    made = await done(client, "POST", "", {"type": "agent_file", "agent_file": secret})
    assert made["name"].startswith("template-") and "CURRENCY" in made["kelpie_notes"][0]
    document = await done(client, "GET", f"/{made['name']}:1/snapshot")
    assert "private" not in str(document) and document["agents"][0]["messages"] == []
    tool = (await client.get("/v1/tools/", params={"name": "price_of"})).json()[0]
    changed = agent_file()
    changed["tools"][1]["source_code"] = SOURCE.replace("Price.", "Another.")
    await done(client, "PATCH", f"/{made['name']}", {"agent_file_json": changed})
    assert (await client.get(f"/v1/tools/{tool['id']}")).json()["source_code"] == SOURCE
    await done(client, "PATCH", f"/{made['name']}", {"agent_file_json": changed, "update_existing_tools": True})
    assert "Another." in (await client.get(f"/v1/tools/{tool['id']}")).json()["source_code"]
    # A tool that was deleted meanwhile is registered again with the agents that need it.
    await client.delete(f"/v1/tools/{tool['id']}")
    deployed = await done(client, "POST", f"/{made['name']}/agents")
    assert {one["name"] for one in (await shown(client, deployed["agent_ids"][0]))["tools"]} == {
        "conversation_search",
        "price_of",
    }


async def test_several_agents_and_their_group_are_one_deployment(client: httpx.AsyncClient) -> None:
    second = agent(id="agent-1", name="Bob", block_ids=["block-0"], messages=[], secrets=None)
    document = agent_file(agent(), second)
    document["blocks"][0]["value"] = "for {{name}}"
    document["groups"] = [{"id": "group-0", "agent_ids": ["agent-0", "agent-1"], "description": "g"}]
    await done(client, "POST", "", {"type": "agent_file", "agent_file": document, "name": "two"})
    first = [{"role": "user", "content": "hello"}]
    body = {"memory_variables": {"name": "Ada"}, "agent_name": "Main", "initial_message_sequence": first}
    made = await done(client, "POST", "/two:1/agents", body)
    main, other = [await shown(client, one) for one in made["agent_ids"]]
    assert (main["name"], other["name"]) == ("Main", "Bob")
    assert (len(main["message_ids"]), len(other["message_ids"])) == (2, 1)
    shared = [block["id"] for block in main["blocks"] if block["label"] == "human"]
    assert shared == [block["id"] for block in other["blocks"]] and other["blocks"][0]["value"] == "for Ada"
    group = (await client.get(f"/v1/groups/{made['group_id']}")).json()
    assert group["agent_ids"] == made["agent_ids"] and group["deployment_id"] == made["deployment_id"]
    found = (await client.get(f"/v1/_internal_templates/deployment/{made['deployment_id']}")).json()
    assert sorted(one["type"] for one in found["entities"]) == ["agent", "agent", "block", "block", "group"]


async def test_the_first_messages_are_those_of_the_type_those_given_or_none(client: httpx.AsyncClient) -> None:
    await made_template(client, agent_type="memgpt_v2_agent")
    counts: list[int] = []
    for given in (None, [], [{"role": "assistant", "content": "Welcome"}, {"role": "user", "content": "Hi"}]):
        made = await done(client, "POST", "/support/agents", {"initial_message_sequence": given})
        found = (await client.get(f"/v1/agents/{made['agent_ids'][0]}/messages", params={"order": "asc"})).json()
        counts.append(len(found))
        text = str(found[0])
        assert found[0]["message_type"] == "system_message" and "You work for ." in text, text
    assert counts[1] == 1 and counts[0] > 2 and counts[2] >= 3, counts


async def test_an_agent_is_created_from_a_template(client: httpx.AsyncClient) -> None:
    made = await made_template(client)
    body = {"from_template": made["template_deployment_slug"], "memory_variables": {"name": "Ada", "ticket": "T"}}
    found = (await client.post("/v1/agents/", json={**body, "name": "hers", "tags": ["x"]})).json()
    AgentState.model_validate(found)
    assert found["name"] == "hers" and values_of(found)["human"] == "Name: Ada, ticket T, Ada again."
    assert found["tags"] == ["x"] and "company" in found["kelpie_notes"][0]
    for extra, field in (
        ({"system": "other"}, "system"),
        ({"memory_blocks": []}, "memory_blocks"),
        ({"template": True}, "template"),
        ({"from_template": None}, "memory_variables"),
        ({"from_template": "other-project/support:1"}, "other-project"),
        ({"from_template": "support:0"}, "version"),
    ):
        answer = await client.post("/v1/agents/", json={**body, **extra})
        assert answer.status_code in (400, 404) and field in answer.text, (extra, answer.text)
    assert (await client.post("/v1/agents/", json={**body, "from_template": "unknown"})).status_code == 404


WRONG = (
    ("POST", "", {"type": "agent"}, 400, "agent_id"),
    ("POST", "", {"type": "agent", "agent_id": "agent-00000000-0000-4000-8000-000000000009"}, 404, "Agent"),
    ("POST", "", {"type": "agent_file"}, 400, "agent_file"),
    ("POST", "", {"type": "agent_file", "agent_file": {"agents": []}}, 400, "agent_file.agents"),
    ("POST", "", {"type": "agent_file", "agent_file": agent_file(), "name": "a/b"}, 400, "name"),
    ("POST", "", {"type": "agent_file", "agent_file": agent_file(), "name": "a:b"}, 400, "name"),
    ("POST", "", {"type": "agent_file", "agent_file": agent_file(), "name": "support"}, 409, "exists already"),
    ("POST", "", {"type": "agent_file", "agent_file": agent_file(agent(model="no/m"))}, 400, "agents[0]"),
    ("PATCH", "/support", {"agent_file_json": {"agents": "x"}}, 400, "agent_file_json.agents"),
    ("PATCH", "/unknown", {"agent_file_json": agent_file()}, 404, "unknown"),
    ("POST", "/support/rollback", {"version": "2"}, 404, "support:2"),
    ("POST", "/support/rollback", {"version": "current"}, 400, "saved version"),
    ("POST", "/support/rollback", {"version": "-1"}, 400, "version"),
    ("POST", "/support/rollback", {}, 422, "version"),
    ("POST", "/unknown/save", {}, 404, "unknown"),
    ("POST", "/support/save", {"message": "x" * 3_000}, 400, "message"),
    ("POST", "/support/save", {"block_reconciliation_strategy": "some"}, 422, "block_reconciliation_strategy"),
    ("DELETE", "/unknown", None, 404, "unknown"),
    ("GET", "/unknown", None, 404, "unknown"),
    ("POST", "/support:7/agents", {}, 404, "support:7"),
    ("POST", "/support:x/agents", {}, 400, "version"),
    ("POST", "/elsewhere/support:1/agents", {}, 400, "elsewhere"),
    ("POST", "/support/agents", {"memory_variables": {"nmae": "x"}}, 400, "company, name, ticket"),
    ("POST", "/support/agents", {"memory_variables": {"name": 5}}, 422, "memory_variables"),
    ("POST", "/support/agents", {"memory_variables": {"name": "x" * 100_001}}, 400, "memory_variables.name"),
    ("POST", "/support/agents", {"tool_variables": {"a=b": "x"}}, 400, "tool_variables"),
    ("POST", "/support/agents", {"identity_ids": [NOBODY]}, 409, "identity"),
    ("POST", "/support/agents", {"agent_name": "a\nb"}, 400, "name"),
)  # fmt: skip


async def test_what_is_wrong_is_refused_by_name_and_changes_nothing(kelpie: Kelpie, client: httpx.AsyncClient) -> None:
    await made_template(client)
    before = await everything(kelpie)
    for method, path, body, status, words in WRONG:
        found = await refused(client, method, path, body)
        assert found[0] == status and words in found[1], (method, path, found)
    after = await everything(kelpie)
    staged = {"agents", "agent_head", "agent_tags", "messages", "context", "removed_agents", "organization_usage"}
    assert {name for name in after if after[name] != before[name]} <= staged
    assert len((await client.get("/v1/agents/")).json()) == 1  # what a deployment staged is not seen, and is cleaned up


async def test_other_projects_are_refused(client: httpx.AsyncClient) -> None:
    await made_template(client)
    answer = await client.post("/v1/templates/support/agents", headers={"X-Project": "other"}, json={})
    assert answer.status_code == 400 and "default-project" in answer.text
    headers = {"X-Project": "default-project", "X-Project-Id": "mine"}
    made = (await client.post("/v1/templates/default-project/support:1/agents", headers=headers, json={})).json()
    assert (await shown(client, made["agent_ids"][0]))["project_id"] == "mine"


async def test_what_fails_on_the_way_leaves_nothing(
    kelpie: Kelpie, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made_template(client)

    def fails(*_: Any) -> None:
        raise StorageError("the disk fails")

    for module, name in ((staging, "publish"), (agent_variables, "write")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, fails)
            assert (await refused(client, "POST", "/support/agents"))[0] >= 500
    assert len((await client.get("/v1/agents/")).json()) == 1
    assert len((await client.get("/v1/blocks/")).json()) == 2
    with monkeypatch.context() as patch:
        patch.setattr(rows, "create", fails)
        body = {"type": "agent_file", "agent_file": agent_file(), "name": "x"}
        assert (await refused(client, "POST", "", body))[0] >= 500
    assert (await client.get("/v1/tools/", params={"name": "price_of"})).json() == []
    assert (await done(client, "POST", "/support/agents"))["agent_ids"]


async def test_a_version_that_the_disk_changed_is_not_used(kelpie: Kelpie, client: httpx.AsyncClient) -> None:
    await made_template(client)
    await done(client, "PATCH", "/support", {"agent_file_json": file_with("whole")})
    await done(client, "POST", "/support/save")
    changed = template_versions.update().where(template_versions.c.number == 1).values(document='{"agents": []}')
    await kelpie.world.database.transact(lambda tx: tx.execute(changed))
    for method, path, body in (
        ("POST", "/support:1/agents", {}),
        ("GET", "/support:1/snapshot", None),
        ("POST", "/support/rollback", {"version": "1"}),
    ):
        assert "damaged" in (await refused(client, method, path, body))[1]
    report = (await client.get("/v1/kelpie/data")).json()
    assert "version of a template" in str(report)
    assert (await done(client, "POST", "/support/agents"))["agent_ids"]
    await done(client, "DELETE", "/support")


async def test_templates_are_bounded(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    many = " ".join(f"{{{{v{n}}}}}" for n in range(limits.VARIABLES_MAX + 1))
    body = {"type": "agent_file", "agent_file": file_with(many)}
    assert (found := await refused(client, "POST", "", body))[0] == 400 and "201 variables" in found[1]
    body = {"type": "agent_file", "agent_file": file_with("{{v}}" * (limits.PLACES_MAX + 1))}
    assert (found := await refused(client, "POST", "", body))[0] == 400 and "10001 places" in found[1]
    await made_template(client)
    monkeypatch.setattr(rows, "VERSIONS_MAX", 2)
    await done(client, "POST", "/support/save")
    assert (found := await refused(client, "POST", "/support/save"))[0] == 409 and "2 versions" in found[1]
    monkeypatch.setattr(rows, "ALL_BYTES_MAX", 100)
    assert (await refused(client, "PATCH", "/support", {"agent_file_json": file_with("x")}))[0] == 409
    monkeypatch.setattr(rows, "TEMPLATES_MAX", 1)
    body = {"type": "agent_file", "agent_file": agent_file()}
    assert (found := await refused(client, "POST", "", body))[0] == 409 and "Delete one" in found[1]


async def test_a_short_text_cannot_become_a_huge_one(client: httpx.AsyncClient) -> None:
    document = file_with("{{v}}" * 1_000)
    await done(client, "POST", "", {"type": "agent_file", "agent_file": document, "name": "long"})
    body = {"memory_variables": {"v": "x" * 10_000}}
    assert (found := await refused(client, "POST", "/long/agents", body))[0] == 400 and "memory_variables" in found[1]


async def test_templates_are_listed_in_pages_and_deleted(client: httpx.AsyncClient) -> None:
    for name in ("a", "b", "c"):
        await made_template(client, name)
    first = await done(client, "GET", "?limit=2&order=asc")
    assert [one["name"] for one in first["templates"]] == ["a", "b"] and first["has_next_page"]
    rest = await done(client, "GET", f"?limit=2&order=asc&after={first['templates'][-1]['id']}")
    assert [one["name"] for one in rest["templates"]] == ["c"] and not rest["has_next_page"]
    made = await done(client, "POST", "/b/agents")
    assert await done(client, "DELETE", "/b") == {"success": True}
    assert [one["name"] for one in (await done(client, "GET", ""))["templates"]] == ["c", "a"]
    assert (await shown(client, made["agent_ids"][0]))["blocks"]  # its agents stay
    assert (await refused(client, "POST", "/b/agents"))[0] == 404


async def test_agents_are_migrated_to_a_new_version(client: httpx.AsyncClient, puppet: Puppet) -> None:
    document = file_with("first of {{name}}", system="Old of {{name}}.")
    document["blocks"].append({"id": "block-2", "label": "old", "value": "old"})
    document["agents"][0]["block_ids"] = ["block-0", "block-1", "block-2"]
    await done(client, "POST", "", {"type": "agent_file", "agent_file": document, "name": "shop"})
    body = {"memory_variables": {"name": "Ada"}, "tool_variables": {"CURRENCY": "EUR", "OWN": "1"}, "tags": ["t"]}
    made = (await done(client, "POST", "/shop/agents", body))["agent_ids"][0]
    puppet.script.append(said("hello"))
    await client.post(f"/v1/agents/{made}/messages", json={"messages": [{"role": "user", "content": "hi"}]})
    foreign = (await client.post("/v1/blocks/", json={"label": "mine", "value": "kept"})).json()
    await client.patch(f"/v1/agents/{made}/core-memory/blocks/attach/{foreign['id']}")
    before = await shown(client, made)

    changed = file_with("second of {{name}}", system="New of {{name}}.", tool_ids=["tool-0"], tool_rules=[])
    changed["blocks"].append({"id": "block-7", "label": "new", "value": "new {{name}}"})
    changed["agents"][0]["block_ids"] = ["block-0", "block-1", "block-7"]
    await done(client, "PATCH", "/shop", {"agent_file_json": changed})
    saved = await done(
        client, "POST", "/shop/save", {"migrate_agents": True, "preserve_core_memories_on_migration": True}
    )
    assert saved["kelpie_migrated_agents"] == 1
    found = await shown(client, made)
    assert found["system"] == "New of Ada." and found["name"] == before["name"] and "t" in found["tags"]
    assert [tool["name"] for tool in found["tools"]] == ["conversation_search"]
    assert values_of(found) == {
        "human": "first of Ada", "persona": "I help.", "old": "old", "mine": "kept", "new": "new Ada",
    }  # fmt: skip
    assert {one["key"]: one["value"] for one in found["secrets"]} == {"CURRENCY": "EUR"}
    assert found["message_ids"] == before["message_ids"] and found["template_id"] != before["template_id"]

    body = {"migrate_agents": True, "block_reconciliation_strategy": "reconcile-all"}
    await done(client, "POST", "/shop/save", body)
    found = await shown(client, made)
    assert values_of(found) == {"human": "second of Ada", "persona": "I help.", "mine": "kept", "new": "new Ada"}
    puppet.script.append(said("again"))
    await client.post(f"/v1/agents/{made}/messages", json={"messages": [{"role": "user", "content": "hi"}]})
    prompt = prompt_of(puppet)
    assert "New of Ada." in prompt and "second of Ada" in prompt


async def test_a_migration_leaves_blocks_of_other_deployments_alone(client: httpx.AsyncClient) -> None:
    await done(client, "POST", "", {"type": "agent_file", "agent_file": file_with("old of {{name}}"), "name": "shop"})
    made: list[str] = []
    for name in ("Ada", "Bob"):
        body = {"memory_variables": {"name": name}, "agent_name": name}
        made += (await done(client, "POST", "/shop/agents", body))["agent_ids"]
    ada, bob = [{one["label"]: one["id"] for one in (await shown(client, each))["blocks"]} for each in made]
    attached = f"/v1/agents/{made[1]}/core-memory/blocks"
    assert (await client.patch(f"{attached}/detach/{bob['human']}")).status_code == 200
    assert (await client.patch(f"{attached}/attach/{ada['human']}")).status_code == 200
    await done(client, "PATCH", "/shop", {"agent_file_json": file_with("new of {{name}}", block_ids=["block-0"])})
    saved = await done(
        client, "POST", "/shop/save", {"migrate_agents": True, "block_reconciliation_strategy": "reconcile-all"}
    )
    assert saved["kelpie_migrated_agents"] == 2
    first, second = [await shown(client, each) for each in made]
    assert values_of(first) == {"human": "new of Ada"} and values_of(second) == {"human": "new of Ada"}
    assert (await client.get(f"/v1/blocks/{bob['human']}")).json()["value"] == "old of Bob"
    for block_id in (ada["persona"], bob["persona"]):
        assert (await client.get(f"/v1/blocks/{block_id}")).status_code == 404


async def test_a_block_that_was_detached_comes_back_as_the_version_has_it(client: httpx.AsyncClient) -> None:
    await done(client, "POST", "", {"type": "agent_file", "agent_file": file_with("old"), "name": "shop"})
    (made,) = (await done(client, "POST", "/shop/agents"))["agent_ids"]
    own = {one["label"]: one["id"] for one in (await shown(client, made))["blocks"]}["human"]
    await client.patch(f"/v1/agents/{made}/core-memory/blocks/detach/{own}")
    await done(client, "PATCH", "/shop", {"agent_file_json": file_with("new")})
    await done(client, "POST", "/shop/save", {"migrate_agents": True})
    found = await shown(client, made)
    assert values_of(found) == {"human": "new", "persona": "I help."} and own in {one["id"] for one in found["blocks"]}


async def test_a_migration_leaves_agents_of_other_templates_alone(client: httpx.AsyncClient) -> None:
    made: dict[str, str] = {}
    for name in ("shop", "bank"):
        document = file_with(f"{name} of {{{{name}}}}", system=name)
        await done(client, "POST", "", {"type": "agent_file", "agent_file": document, "name": name})
        (made[name],) = (await done(client, "POST", f"/{name}/agents"))["agent_ids"]
    plain = await make_agent(client, system="plain")
    before = await shown(client, made["bank"])
    await done(client, "PATCH", "/shop", {"agent_file_json": file_with("changed", system="changed")})
    saved = await done(client, "POST", "/shop/save", {"migrate_agents": True})
    assert saved["kelpie_migrated_agents"] == 1
    assert (await shown(client, made["shop"]))["system"] == "changed"
    assert await shown(client, made["bank"]) == before
    assert (await shown(client, plain["id"]))["system"] == "plain"


async def test_a_migration_keeps_the_conversations_and_what_was_said(client: httpx.AsyncClient, puppet: Puppet) -> None:
    await done(client, "POST", "", {"type": "agent_file", "agent_file": file_with("old"), "name": "shop"})
    (made,) = (await done(client, "POST", "/shop/agents"))["agent_ids"]
    body = {"summary": "apart", "isolated_block_labels": ["human"]}
    thread = (await client.post("/v1/conversations/", params={"agent_id": made}, json=body)).json()
    path = f"/v1/conversations/{thread['id']}/messages"
    await client.post(path, json={"input": "one", "streaming": False})
    await done(client, "PATCH", "/shop", {"agent_file_json": file_with("new", system="Be new.")})
    await done(client, "POST", "/shop/save", {"migrate_agents": True})
    await client.post(path, json={"input": "two", "streaming": False})
    prompt = prompt_of(puppet)
    assert "Be new." in prompt and "one" in prompt and "old" in prompt  # its own copy of the block stays
    (copy,) = thread["isolated_block_ids"]
    assert (await client.get(f"/v1/blocks/{copy}")).json()["value"] == "old"
    assert values_of(await shown(client, made))["human"] == "new"


async def test_templates_need_the_right_key_and_belong_to_one_organization(
    kelpie: Kelpie, client: httpx.AsyncClient
) -> None:
    made = await made_template(client)
    agent_id = (await done(client, "POST", "/support/agents"))["agent_ids"][0]
    key = {}
    for name, body in (
        ("read", {"scopes": ["read"]}),
        ("write", {"scopes": ["read", "write"]}),
        ("bound", {"scopes": ["read", "write"], "agent_ids": [agent_id]}),
    ):
        key[name] = (await client.post("/v1/kelpie/keys", json={"name": name, **body})).json()["key"]

    async def status(name: str, method: str, path: str, body: Any = None) -> int:
        headers = {"Authorization": f"Bearer {key[name]}"}
        return (await client.request(method, f"/v1/templates{path}", headers=headers, json=body)).status_code

    for path in ("", "/support", "/support:1/snapshot"):
        assert [await status(name, "GET", path) for name in key] == [200, 200, 403]
    for path, body in (("/support/save", {}), ("/support/rollback", {"version": "1"}), ("/support/agents", {})):
        assert [await status(name, "POST", path, body) for name in key] == [403, 200, 403]
    assert [await status(name, "DELETE", "/support") for name in ("read", "bound")] == [403, 403]
    other = (await client.post("/v1/admin/orgs/", json={"name": "other"})).json()
    user = (await client.post("/v1/admin/users/", json={"name": "u", "organization_id": other["id"]})).json()
    headers = {"user_id": user["id"]}
    assert (await client.get("/v1/templates", headers=headers)).json()["templates"] == []
    for method, path, body in (
        ("GET", "/support", None),
        ("POST", "/support/agents", {}),
        ("DELETE", "/support", None),
        ("POST", "/support/save", {}),
    ):
        answer = await client.request(method, f"/v1/templates{path}", headers=headers, json=body)
        assert answer.status_code == 404, answer.text
    assert (await done(client, "GET", "/support"))["id"] == made["id"]


async def test_environments_describe_this_server(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/v1/environments")).json()
    assert listed["hasNextPage"] is False and [one["deviceId"] for one in listed["connections"]] == ["kelpie"]
    found = (await client.get("/v1/environments/kelpie")).json()
    assert found["organizationId"].startswith("org-") and found["metadata"]["kelpieVersion"]
    for query in ({"source": "local"}, {"limit": "0"}, {"after": "kelpie"}, {"userId": "user-1"}):
        assert (await client.get("/v1/environments", params=query)).json()["connections"] == []
    assert (await client.get("/v1/environments", params={"limit": "x"})).status_code == 422
    assert (await client.get("/v1/environments/other")).status_code == 404
    answer = await client.post("/v1/environments/kelpie/messages", json={"messages": []})
    assert answer.status_code == 404 and "/v1/agents/" in answer.json()["detail"]
