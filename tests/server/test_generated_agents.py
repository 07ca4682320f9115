"""Agents made by chance: whatever is in a file is there after its import, and a second round changes nothing. A file
with a wrong value somewhere is imported or refused by name."""

import asyncio
import copy
import functools
import json
import operator
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.server.agent_file_rig import CALL, agent, agent_file, meaning, message, returned
from tests.server.rig import client_of, open_rig

FILES = 6  # of one server: to open one takes longer than to import a file
TYPES = ("letta_v1_agent", "memgpt_agent", "memgpt_v2_agent", "react_agent", "workflow_agent", "sleeptime_agent")
RULES: list[dict[str, Any]] = [
    {"type": "requires_approval", "tool_name": "price_of"},
    {"type": "max_count_per_step", "tool_name": "price_of", "max_count_limit": 2},
    {"type": "exit_loop", "tool_name": "price_of"},
    {"type": "constrain_child_tools", "tool_name": "price_of", "children": ["conversation_search"]},
]

words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
names = st.text("aZ9éß漢🦀-_.'(:", min_size=1, max_size=12)
values = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | words
keys = st.text("abcXYZ_", min_size=1, max_size=8)
metadata = st.dictionaries(keys, values | st.lists(values, max_size=3), max_size=4)


@st.composite
def blocks(draw: st.DrawFn) -> list[dict[str, Any]]:
    labels = draw(st.lists(st.text("abcdef_", min_size=1, max_size=8), unique=True, max_size=4))
    return [
        {
            "id": f"block-{number}",
            "label": label,
            "value": draw(words),
            "limit": draw(st.integers(100, 100_000)),
            "description": draw(st.none() | words),
            "read_only": draw(st.booleans()),
            "metadata": draw(metadata),
            "tags": draw(st.lists(names, unique=True, max_size=2)),
        }
        for number, label in enumerate(labels)
    ]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[str]]:
    """Whole turns, some with a call, and the ids of those that the model sees."""
    rows = [message("message-0", "system", "old")]
    starts = [1]
    for _ in range(draw(st.integers(0, 4))):
        at = len(rows)
        rows.append(message(f"message-{at}", "user", draw(words), otid=draw(st.none() | keys)))
        if draw(st.booleans()):
            call = {**CALL, "id": f"call_{at}"}
            result = draw(st.sampled_from(["success", "error"]))
            rows.append(message(f"message-{at + 1}", "assistant", draw(words), tool_calls=[call]))
            rows.append(returned(f"message-{at + 2}", draw(words), call["id"], result))
        rows.append(message(f"message-{len(rows)}", "assistant", draw(words)))
        starts.append(len(rows))
    first = draw(st.sampled_from(starts))
    return rows, [row["id"] for row in (rows[0], *rows[first:])]


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    held = draw(blocks())
    rows, context = draw(histories())
    kind = draw(st.sampled_from(TYPES))
    one = agent(
        name=draw(names),
        agent_type=kind,
        system=draw(words),
        description=draw(st.none() | words),
        metadata=draw(metadata),
        tags=draw(st.lists(names, unique=True, max_size=3)),
        timezone=draw(st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"])),
        tool_rules=draw(st.lists(st.sampled_from(RULES), unique_by=str, max_size=3)),
        secrets=dict.fromkeys(draw(st.lists(keys, unique=True, max_size=2)), ""),
        tool_exec_environment_variables={},
        message_buffer_autoclear=kind == "workflow_agent" or draw(st.booleans()),  # one of that type always does
        block_ids=[block["id"] for block in held],
        messages=rows,
        in_context_message_ids=context,
    )
    skills = draw(st.lists(st.builds(lambda name: {"name": name, "files": {"SKILL.md": "x"}}, names), max_size=1))
    return agent_file(one, blocks=held, skills=skills)


def told(document: dict[str, Any]) -> dict[str, Any]:
    """What a file says of its agent, in its own words."""
    one = document["agents"][0]
    places = {row["id"]: place for place, row in enumerate(one["messages"])}
    fields = ("name", "agent_type", "system", "description", "timezone", "message_buffer_autoclear")
    return {
        **{name: one[name] or "" for name in fields},
        "metadata": one["metadata"] or {},
        "tags": sorted(one["tags"]),
        "secrets": one["secrets"] or {},
        "rules": sorted((rule["type"], rule["tool_name"]) for rule in one["tool_rules"]),
        "blocks": [
            [block[name] or "" for name in ("label", "value", "limit", "description", "read_only")]
            for block in sorted(document["blocks"], key=lambda block: block["label"])
        ],
        "messages": [(row["role"], _said(row)) for row in one["messages"][1:]],
        "context": [places[each] for each in one["in_context_message_ids"]],
        "skills": [skill["name"] for skill in document["skills"]],
    }


def _said(row: dict[str, Any]) -> list[Any]:
    if row["tool_returns"]:
        return [orjson.loads(each["func_response"])["message"] for each in row["tool_returns"]]
    calls = [(call["id"], call["function"]) for call in row["tool_calls"] or ()]
    return [*(part["text"] for part in row["content"]), *calls]


WRONG: list[Any] = [None, True, -1, 10**30, 1.5, "", "x", "\0", [], {}, [None], ["x"], [{}], {"type": "x"}]
CHANGES = 60  # of one server


def _places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    named = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in named:
        yield (*path, name)
        yield from _places(part, (*path, name))


def _changed(document: dict[str, Any], path: tuple[str | int, ...], wrong: Any) -> dict[str, Any]:
    found = copy.deepcopy(document)
    *way, last = path
    functools.reduce(operator.getitem, way, found)[last] = wrong
    return found


async def _round(client: httpx.AsyncClient, document: dict[str, Any]) -> dict[str, Any]:
    query = {"append_copy_suffix": "false"}
    answer = await client.post("/v1/agents/import", params=query, content=orjson.dumps(document))
    assert answer.status_code == 200, answer.text
    (agent_id,) = answer.json()["agent_ids"]
    exported = await client.get(f"/v1/agents/{agent_id}/export")
    assert exported.status_code == 200, exported.text
    return exported.json()


@given(st.lists(files(), min_size=FILES, max_size=FILES))
@settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a smaller failing file would cost a minute
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_an_agent_is_the_same_after_any_number_of_rounds(documents: list[dict[str, Any]]) -> None:
    async def check(folder: str) -> None:
        async with open_rig(Path(folder)) as (kelpie, _), client_of(kelpie) as client:
            for document in documents:
                once = await _round(client, document)
                assert told(once) == told(document)
                assert meaning(await _round(client, once)) == meaning(once)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(folder))


WHOLE = agent_file(
    groups=[
        {"id": "group-0", "agent_ids": ["agent-0"], "manager_config": {"manager_type": "round_robin", "max_turns": 2}}
    ],
    sources=[{"id": "source-0", "name": "folder"}],
    files=[{"id": "file-0", "source_id": "source-0", "content": "text"}],
    skills=[{"name": "pdf", "files": {"SKILL.md": "x"}}],
    mcp_servers=[
        {"id": "mcp_server-0", "server_name": "s", "server_type": "sse", "server_url": "https://mcp.example/"}
    ],
)
changes = st.lists(
    st.tuples(st.sampled_from(list(_places(WHOLE))), st.sampled_from(WRONG)), min_size=CHANGES, max_size=CHANGES
)


@given(changes)
@settings(max_examples=2, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_a_file_with_a_wrong_value_is_imported_or_refused_by_name(wrong: list[tuple[Any, Any]]) -> None:
    async def check(folder: str) -> None:
        async with open_rig(Path(folder)) as (kelpie, _), client_of(kelpie) as client:
            for path, value in wrong:
                raw = json.dumps(_changed(WHOLE, path, value)).encode()
                answer = await client.post("/v1/agents/import", content=raw)
                assert answer.status_code in (200, 400), (path, value, answer.text)
                if answer.status_code == 400:
                    assert answer.json()["detail"].startswith("file"), (path, value, answer.text)
                    continue
                exported = await client.get(f"/v1/agents/{answer.json()['agent_ids'][0]}/export")
                again = await client.post("/v1/agents/import", content=exported.content)
                assert again.status_code == 200, (path, value, again.text)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(folder))
