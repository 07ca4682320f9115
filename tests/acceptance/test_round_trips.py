"""Everything a client can say about a thing is stored, told and read back, through `letta-client` on a live server.

The fields come from the SDK's own parameters: one that is neither sent here nor excused by name fails the test. At the
end everything is removed, and no row of the database may refer to what is gone.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import Letta, NotFoundError
from letta_client.types import (
    agent_create_params,
    agent_update_params,
    archive_create_params,
    archive_update_params,
    block_create_params,
    block_update_params,
    conversation_create_params,
    conversation_update_params,
    tool_create_params,
    tool_update_params,
)
from letta_client.types.archives import passage_create_params

from kelpie.local import DATABASE_FILE
from kelpie.sim.checks.references import dangling
from tests.acceptance.served import Served, served

Shown = Mapping[str, Callable[[dict[str, Any]], Any]]

OLD_WAYS = {
    "embedding_config",
    "llm_config",
    "enable_reasoner",
    "reasoning",
    "project",
    "tool_exec_environment_variables",
}
LATER = {
    "enable_sleeptime",
    "folder_ids",
    "source_ids",
    "from_template",
    "include_default_source",
    "memory_variables",
    "template",
}
NO_MODEL = {"embedding", "embedding_chunk_size"}  # no embedding model without a provider; tests/server shows these
SOURCE = (
    'def {name}(x: int) -> int:\n    """Doubles it.\n\n    Args:\n        x (int): What.\n    """\n    return 2 * x\n'
)
OWN_BLOCK = {"isolated_block_labels": ["human"]}  # which the SDK does not know yet
SETTINGS = {"provider_type": "openai", "temperature": 0.25, "max_output_tokens": 1234, "parallel_tool_calls": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("trips")) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[Letta]:
    with Letta(base_url=server.url, api_key="none", max_retries=0, _strict_response_validation=True) as made:
        yield made


@pytest.fixture(scope="module")
def http(server: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as made:
        yield made


def said_all(params: Any, asked: Mapping[str, Any], *excused: str) -> None:
    """Every field that the SDK knows is sent, or is excused by name."""
    assert set(params.__annotations__) - set(excused) == set(asked)


def shows(answer: Any, asked: Mapping[str, Any], where: Shown | None = None) -> None:
    """The answer has what was asked for, under the same name unless `where` says otherwise."""
    told = answer if isinstance(answer, dict) else answer.to_dict(mode="json")
    found = {name: (where or {}).get(name, lambda one, name=name: one.get(name))(told) for name in asked}
    assert found == dict(asked)


def clean(server: Served) -> None:
    """Nothing in the database refers to what is not there."""
    path = Path(server.data_dir) / DATABASE_FILE
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        assert dangling(lambda statement: database.execute(statement).fetchall()) == {}


def test_a_block(server: Served, client: Letta) -> None:
    asked: dict[str, Any] = {
        "label": "round", "value": "trip", "limit": 777, "description": "d", "read_only": True, "hidden": True,
        "is_template": True, "metadata": {"a": [1, {"b": None}]}, "preserve_on_migration": True, "project_id": "p",
        "tags": ["a", "b"], "template_id": "t", "template_name": "tn", "base_template_id": "bt", "deployment_id": "de",
        "entity_id": "e",
    }  # fmt: skip
    said_all(block_create_params.BlockCreateParams, asked)
    made = client.blocks.create(**asked)
    shows(made, asked)
    shows(client.blocks.retrieve(made.id), asked)
    changed: dict[str, Any] = {
        "label": "square", "value": "way", "limit": 888, "description": "dd", "read_only": False, "hidden": False,
        "is_template": False, "metadata": {"c": 2}, "preserve_on_migration": False, "project_id": "pp",
        "tags": ["c"], "template_id": "tt", "template_name": "tntn", "base_template_id": "btbt",
        "deployment_id": "dede", "entity_id": "ee",
    }  # fmt: skip
    said_all(block_update_params.BlockUpdateParams, changed)
    one_by_one(
        asked, changed, lambda **one: client.blocks.update(made.id, **one), lambda: client.blocks.retrieve(made.id)
    )
    client.blocks.delete(made.id)
    with pytest.raises(NotFoundError):
        client.blocks.retrieve(made.id)
    clean(server)


def one_by_one(
    before: Mapping[str, Any],
    changes: Mapping[str, Any],
    update: Callable[..., Any],
    read: Callable[[], Any],
    where: Shown | None = None,
) -> None:
    """Every field is changed alone, and changes nothing else."""
    now = dict(before)
    for name, value in changes.items():
        shows(update(**{name: value}), {name: value}, where)
        now[name] = value
        shows(read(), now, where)


def test_a_tool(server: Served, client: Letta) -> None:
    schema = {
        "name": "tripper", "description": "Doubles it.",
        "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
    }  # fmt: skip
    asked: dict[str, Any] = {
        "source_code": SOURCE.format(name="tripper"), "source_type": "python", "description": "d", "tags": ["a"],
        "json_schema": schema, "args_json_schema": {"type": "object", "properties": {}}, "return_char_limit": 99,
        "pip_requirements": [{"name": "attrs", "version": "1"}], "npm_requirements": [{"name": "n", "version": "2"}],
        "default_requires_approval": True, "enable_parallel_execution": True,
    }  # fmt: skip
    said_all(tool_create_params.ToolCreateParams, asked)
    made = client.tools.create(**asked)
    shows(made, asked)
    shows(client.tools.retrieve(made.id), asked)
    other = {**schema, "description": "Halves it."}
    changed: dict[str, Any] = {
        "description": "dd", "tags": ["b", "c"], "return_char_limit": 100, "default_requires_approval": False,
        "enable_parallel_execution": False, "pip_requirements": [{"name": "p", "version": None}],
        "npm_requirements": [], "metadata": {"k": "v"}, "args_json_schema": {"type": "object"}, "json_schema": other,
        "source_type": "python", "source_code": SOURCE.format(name="tripper").replace("2", "3"),
    }  # fmt: skip
    said_all(tool_update_params.ToolUpdateParams, changed)
    where: Shown = {"metadata": lambda one: {"k": one["metadata_"].get("k")}}  # we add a fingerprint
    last = {name: changed.pop(name) for name in ("source_type", "source_code")}
    one_by_one(
        asked, changed, lambda **one: client.tools.update(made.id, **one), lambda: client.tools.retrieve(made.id), where
    )
    shows(client.tools.update(made.id, **last), last)
    shows(client.tools.retrieve(made.id), last)
    client.tools.delete(made.id)
    with pytest.raises(NotFoundError):
        client.tools.retrieve(made.id)
    clean(server)


def test_an_archive_and_its_passages(server: Served, client: Letta) -> None:
    agent = client.agents.create(model="kelpie/demo")
    asked: dict[str, Any] = {"name": "round", "description": "d"}
    said_all(archive_create_params.ArchiveCreateParams, asked, "embedding", "embedding_config")
    made = client.archives.create(**asked)
    shows(made, asked)
    shows(client.archives.retrieve(made.id), asked)
    changed = {"name": "square", "description": "dd"}
    said_all(archive_update_params.ArchiveUpdateParams, changed)
    one_by_one(
        asked, changed, lambda **one: client.archives.update(made.id, **one), lambda: client.archives.retrieve(made.id)
    )
    passage: dict[str, Any] = {
        "text": "rain", "tags": ["a", "b"], "metadata": {"k": [1]}, "created_at": "2020-01-02T03:04:05.000006Z",
    }  # fmt: skip
    said_all(passage_create_params.PassageCreateParams, passage, "archive_id")
    kept = client.archives.passages.create(made.id, **passage)
    shows(kept, passage)
    client.agents.archives.attach(made.id, agent_id=agent.id)
    (listed,) = client.agents.passages.list(agent.id)
    shows(listed, {**passage, "id": kept.id, "archive_id": made.id})
    client.archives.passages.delete(kept.id, archive_id=made.id)
    assert client.agents.passages.list(agent.id) == []
    client.archives.passages.create(made.id, text="snow", tags=["c"])
    client.archives.delete(made.id)
    with pytest.raises(NotFoundError):
        client.archives.retrieve(made.id)
    client.agents.delete(agent.id)
    clean(server)


def test_a_conversation(server: Served, client: Letta) -> None:
    agent = client.agents.create(model="kelpie/demo", memory_blocks=[{"label": "human", "value": "Ann"}])
    asked: dict[str, Any] = {
        "summary": "s", "description": "d", "model": "kelpie/demo", "model_settings": SETTINGS,
        "context_window_limit": 5000, "hidden": True,
    }  # fmt: skip
    said_all(conversation_create_params.ConversationCreateParams, asked, "agent_id")
    made = client.conversations.create(agent_id=agent.id, extra_body=OWN_BLOCK, **asked)
    where: Shown = {"model_settings": lambda one: {name: one["model_settings"][name] for name in SETTINGS}}
    asked.pop("hidden")  # a hidden one is left out of lists and nothing else tells of it
    shows(made, asked, where)
    shows(client.conversations.retrieve(made.id), asked, where)
    assert made.id not in [one.id for one in client.conversations.list(agent_id=agent.id)]
    changed: dict[str, Any] = {
        "summary": "ss", "description": "dd", "model": "kelpie/demo",
        "model_settings": {**SETTINGS, "temperature": 1.0},
        "context_window_limit": 6000, "archived": True, "last_message_at": "2020-01-02T03:04:05.000006Z",
    }  # fmt: skip
    said_all(conversation_update_params.ConversationUpdateParams, changed)
    one_by_one(
        asked,
        changed,
        lambda **one: client.conversations.update(made.id, **one),
        lambda: client.conversations.retrieve(made.id),
        where,
    )
    client.conversations.delete(made.id)
    with pytest.raises(NotFoundError):
        client.conversations.retrieve(made.id)
    clean(server)
    client.conversations.create(agent_id=agent.id, extra_body=OWN_BLOCK)
    client.agents.delete(agent.id)
    clean(server)


def test_an_identity(server: Served, client: Letta, http: httpx.Client) -> None:
    agent = client.agents.create(model="kelpie/demo")
    block = client.blocks.create(label="about", value="")
    asked: dict[str, Any] = {
        "identifier_key": "trip", "name": "Ann", "identity_type": "user", "project_id": "p",
        "agent_ids": [agent.id], "block_ids": [block.id],
        "properties": [{"key": "k", "value": {"a": 1}, "type": "json"}],
    }  # fmt: skip
    made = _sent(http, "POST", "/v1/identities/", asked)
    path = f"/v1/identities/{made['id']}"
    where: Shown = {
        "agent_ids": lambda one: [each["id"] for each in _sent(http, "GET", f"{path}/agents")],
        "block_ids": lambda one: [each["id"] for each in _sent(http, "GET", f"{path}/blocks")],
    }
    shows(made, asked, where)
    shows(_sent(http, "GET", path), asked, where)
    changed: dict[str, Any] = {"identifier_key": "other", "name": "Ben", "identity_type": "org"}
    one_by_one(asked, changed, lambda **one: _sent(http, "PATCH", path, one), lambda: _sent(http, "GET", path), where)
    assert _sent(http, "DELETE", path) is None
    assert http.get(path).status_code == 404
    clean(server)
    client.agents.delete(agent.id)
    client.blocks.delete(block.id)


def test_a_group(server: Served, client: Letta, http: httpx.Client) -> None:
    agents = [client.agents.create(model="kelpie/demo").id for _ in range(3)]
    blocks = [client.blocks.create(label=f"shared{number}", value="").id for number in range(2)]
    asked: dict[str, Any] = {
        "agent_ids": agents[:2], "description": "d", "project_id": "p", "shared_block_ids": blocks[:1], "hidden": True,
        "manager_config": {
            "manager_type": "dynamic", "manager_agent_id": agents[2], "termination_token": "END", "max_turns": 4,
        },
    }  # fmt: skip
    made = _sent(http, "POST", "/v1/groups/", asked)
    path = f"/v1/groups/{made['id']}"
    where: Shown = {"manager_config": lambda one: {name: one[name] for name in asked["manager_config"]}}
    shows(made, asked, where)
    shows(_sent(http, "GET", path), asked, where)
    changed: dict[str, Any] = {
        "description": "dd", "project_id": "pp", "agent_ids": agents[:1], "shared_block_ids": blocks[1:],
        "manager_config": {**asked["manager_config"], "termination_token": "STOP", "max_turns": 5},
    }  # fmt: skip
    one_by_one(asked, changed, lambda **one: _sent(http, "PATCH", path, one), lambda: _sent(http, "GET", path), where)
    _sent(http, "DELETE", path)
    assert http.get(path).status_code == 404
    clean(server)
    again = _sent(http, "POST", "/v1/groups/", asked)
    for agent in agents:
        client.agents.delete(agent)
    clean(server)
    assert http.get(f"/v1/groups/{again['id']}").json().get("agent_ids", []) == []
    for block in blocks:
        client.blocks.delete(block)
    clean(server)


def _sent(http: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    answer = http.request(method, path, json=body)
    assert answer.status_code == 200, f"{method} {path}: {answer.text}"
    return answer.json()


AGENT: Shown = {
    "block_ids": lambda one: sorted(each["id"] for each in one["blocks"] if each["label"] != "human"),
    "memory_blocks": lambda one: [
        {"label": each["label"], "value": each["value"]} for each in one["blocks"] if each["label"] == "human"
    ],
    "context_window_limit": lambda one: one["llm_config"]["context_window"],
    "max_tokens": lambda one: one["llm_config"]["max_tokens"],
    "parallel_tool_calls": lambda one: one["llm_config"]["parallel_tool_calls"],
    "identity_ids": lambda one: [each["id"] for each in one["identities"]],
    "secrets": lambda one: {each["key"]: each["value"] for each in one["secrets"]},
    "tool_ids": lambda one: sorted(each["id"] for each in one["tools"] if each["name"].startswith("own_")),
    "tools": lambda one: sorted(each["name"] for each in one["tools"] if each["name"] == "conversation_search"),
    "tool_rules": lambda one: [{name: rule[name] for name in ("type", "tool_name")} for rule in one["tool_rules"]],
    "model_settings": lambda one: {name: one["model_settings"][name] for name in SETTINGS},
    "compaction_settings": lambda one: {
        name: one["compaction_settings"][name] for name in ("mode", "prompt", "clip_chars", "model")
    },
}
RELATIONS = ["agent.blocks", "agent.identities", "agent.secrets", "agent.tags", "agent.tools"]


def test_an_agent(server: Served, client: Letta, http: httpx.Client) -> None:
    blocks = sorted(client.blocks.create(label=f"extra{number}", value="").id for number in range(2))
    tools = sorted(client.tools.create(source_code=SOURCE.format(name=f"own_{n}")).id for n in range(2))
    people = [
        _sent(http, "POST", "/v1/identities/", {"identifier_key": key, "name": key, "identity_type": "user"})["id"]
        for key in ("first", "second")
    ]
    asked: dict[str, Any] = {
        "agent_type": "letta_v1_agent", "name": "Round Trip", "system": "You go round.", "model": "kelpie/demo",
        "description": "d", "metadata": {"a": {"b": [1, None]}}, "tags": ["a", "b"], "hidden": True, "project_id": "p",
        "template_id": "t", "base_template_id": "bt", "block_ids": blocks[:1], "tool_ids": tools[:1],
        "tools": ["conversation_search"], "identity_ids": people[:1], "secrets": {"KEY": "value"},
        "tool_rules": [{"type": "exit_loop", "tool_name": "own_0"}], "timezone": "Europe/Lisbon",
        "context_window_limit": 20_000, "max_tokens": 1234, "parallel_tool_calls": True, "model_settings": SETTINGS,
        "response_format": {"type": "text"}, "message_buffer_autoclear": True, "max_files_open": 7,
        "per_file_view_window_char_limit": 999, "memory_blocks": [{"label": "human", "value": "Ann"}],
        "compaction_settings": {"mode": "all", "prompt": "Short.", "clip_chars": 500, "model": "kelpie/demo"},
    }  # fmt: skip
    once: dict[str, Any] = {  # what is about making it, and shows in other things
        "include_base_tools": False, "include_base_tool_rules": False, "max_reasoning_tokens": 0,
        "initial_message_sequence": [{"role": "user", "content": "hello there"}],
    }  # fmt: skip
    said_all(agent_create_params.AgentCreateParams, {**asked, **once}, *OLD_WAYS, *LATER, *NO_MODEL)
    made = client.agents.create(**asked, **once)
    shows(made, asked, AGENT)

    def read() -> Any:
        return client.agents.retrieve(made.id, include=RELATIONS)

    shows(read(), asked, AGENT)
    said = [one.content for one in client.agents.messages.list(made.id) if one.message_type == "user_message"]
    assert said == ["hello there"]
    ids = read().to_dict(mode="json")["message_ids"]
    changed: dict[str, Any] = {
        "name": "Square Way", "system": "You go straight.", "description": "dd", "metadata": {"c": 1}, "tags": ["c"],
        "hidden": False, "project_id": "pp", "template_id": "tt", "base_template_id": "btbt", "tool_ids": tools[1:],
        "identity_ids": people[1:], "secrets": {"OTHER": "x"}, "tool_rules": [], "timezone": "UTC",
        "parallel_tool_calls": False, "context_window_limit": 30_000, "max_tokens": 99,
        "response_format": {"type": "json_object"}, "message_buffer_autoclear": False, "max_files_open": 8,
        "per_file_view_window_char_limit": 1000, "message_ids": ids[:1], "block_ids": blocks[1:],
        "compaction_settings": {"mode": "sliding_window", "prompt": "Long.", "clip_chars": 600, "model": "kelpie/demo"},
        "last_run_completion": "2020-01-02T03:04:05.000006Z", "last_run_duration_ms": 12,
        "last_stop_reason": "max_steps",
    }  # fmt: skip
    said_all(agent_update_params.AgentUpdateParams, changed, *OLD_WAYS, *LATER, "embedding", "model", "model_settings")
    before = {name: value for name, value in asked.items() if name not in ("memory_blocks", "tools", "model_settings")}
    one_by_one(before, changed, lambda **one: client.agents.update(made.id, **one), read, AGENT)
    settings = {"model": "kelpie/demo", "model_settings": {**SETTINGS, "temperature": 1.0}}
    shows(client.agents.update(made.id, **settings), settings, AGENT)
    shows(read(), settings, AGENT)
    client.agents.messages.create(made.id, input="hello")
    client.agents.delete(made.id)
    with pytest.raises(NotFoundError):
        client.agents.retrieve(made.id)
    clean(server)
    for block in blocks:
        client.blocks.delete(block)
    for tool in tools:
        client.tools.delete(tool)
    clean(server)
