"""The agent types: what each is made with, what it is shown, and how its turns go."""

import re
from pathlib import Path

import pytest

from kelpie.agent.definition import creation
from kelpie.agent.prompt.agent_types import TYPES, spec_of
from kelpie.agent.prompt.rendering import system_text
from kelpie.core.agents.agent import Agent, AgentType, ModelChoice, NewAgent, ToolRule
from kelpie.core.conversations.messages import MessageQuery, NewMessage, Reasoning, Role, Text
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId, BlockId
from kelpie.core.memory.blocks import Block, NewBlock
from kelpie.core.memory.passages import PassageQuery
from kelpie.storage.archives import archives, passage_search
from kelpie.tools.builtin import BUILTINS
from tests.agent.conftest import ended, rows, says

BY_TOOL = {"memgpt_agent", "memgpt_v2_agent", "split_thread_agent", "voice_convo_agent"}
CLASSIC = "send_message conversation_search core_memory_append core_memory_replace memory memory_apply_patch"
PAGE = Path(__file__).parents[2] / "docs" / "agent-types.md"

# Facts of the wire: tools, those that end a turn by rule and those that go on, and how many messages it starts with.
MADE = {
    "letta_v1_agent": ("conversation_search memory_replace memory_insert", "", "", 1),
    "memgpt_v2_agent": (
        "send_message conversation_search memory_replace memory_insert",
        "send_message",
        "conversation_search memory_replace memory_insert",
        4,
    ),
    "memgpt_agent": (CLASSIC, "send_message", CLASSIC.removeprefix("send_message "), 4),
    "split_thread_agent": (CLASSIC, "send_message", CLASSIC.removeprefix("send_message "), 4),
    "react_agent": ("", "", "", 3),  # 4 in Letta, which showed them a call of a tool they do not have
    "workflow_agent": ("", "", "", 1),
    "sleeptime_agent": (
        "memory_replace memory_insert memory_rethink memory_finish_edits",
        "memory_finish_edits",
        "memory_replace memory_insert memory_rethink",
        1,
    ),
    "voice_convo_agent": ("send_message search_memory", "send_message", "", 4),
    "voice_sleeptime_agent": ("store_memories rethink_user_memory finish_rethinking_memory", "", "", 1),
}


async def make(rig, agent_type, **fields):
    fields.setdefault("memory_blocks", (NewBlock("human", "Name: Bob"),))
    if agent_type == AgentType.split_thread_agent:
        fields.setdefault("system", "You are split.")
    if agent_type == AgentType.voice_convo_agent:
        fields.setdefault("enable_sleeptime", True)
    return await rig.kelpie.api().agents.create(NewAgent(agent_type=AgentType(agent_type), **fields))


# --- the table ------------------------------------------------------------------------------------------------------


def test_every_type_has_a_row_and_every_base_tool_exists():
    assert set(TYPES) == set(AgentType) == {AgentType(name) for name in MADE}
    assert all(name in BUILTINS for spec in TYPES.values() for name in (*spec.base_tools, *spec.exits))


@pytest.mark.parametrize("agent_type", [t for t in AgentType if TYPES[t].instructions is not None])
def test_the_instructions_are_short_and_name_just_the_tools_of_the_type(agent_type):
    spec = spec_of(agent_type)
    named = set(re.findall(r"`(\w+)`", spec.instructions))
    assert named == {*spec.base_tools, *(["request_heartbeat"] if spec.heartbeats else [])}
    assert len(spec.instructions) < 2000


def test_every_type_is_documented_with_its_tools():
    table = PAGE.read_text().split("| Type | Base tools |")[1].split("\n\n")[0]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    told = {cells[0].strip("`"): set(re.findall(r"`(\w+)`", cells[1])) for cells in lines}
    assert told == {agent_type.value: set(spec.base_tools) for agent_type, spec in TYPES.items()}


@pytest.mark.parametrize("agent_type", list(MADE))
async def test_what_a_type_is_made_with(rig, agent_type):
    view = await make(rig, agent_type)
    tools, exits, continues, messages = MADE[agent_type]
    assert {t.name for t in view.tools} == set(tools.split())
    rules = {(r.type, r.tool_name) for r in view.agent.tool_rules}
    assert rules == {("exit_loop", n) for n in exits.split()} | {("continue_loop", n) for n in continues.split()}
    assert len(view.message_ids) == messages
    assert view.agent.message_buffer_autoclear is (agent_type == "workflow_agent")
    stored = await rig.kelpie.api().histories.messages(view.agent.id, MessageQuery())
    spoken = (Role.tool,) if agent_type in BY_TOOL else ()
    assert [m.role for m in stored] == [Role.system, Role.assistant, *spoken, Role.user][:messages]
    called = {call.name for m in stored for call in m.tool_calls}
    assert called <= {t.name for t in view.tools}, "what a model is shown it must be able to do"
    reset = await rig.kelpie.api().histories.reset(view.agent.id, add_default_initial=True)
    assert len(reset.message_ids) == messages


@pytest.mark.parametrize("agent_type", list(MADE))
async def test_given_first_messages_replace_the_types_own(rig, agent_type):
    given = (NewMessage(Role.user, (Text("hi"),)), NewMessage(Role.assistant, (Text("hello"),)))
    stored = await _history(rig, await make(rig, agent_type, initial_messages=given))
    spoken = [Role.assistant, Role.tool] if agent_type in BY_TOOL else [Role.assistant]
    assert [m.role for m in stored] == [Role.system, Role.user, *spoken]
    assert [m.said for m in stored if m.role is Role.assistant] == ["hello"]
    assert len(await _history(rig, await make(rig, agent_type, initial_messages=()))) == 1


async def _history(rig, view):
    return await rig.kelpie.api().histories.messages(view.agent.id, MessageQuery())


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"agent_type": AgentType.split_thread_agent}, "system"),
        ({"agent_type": AgentType.voice_convo_agent}, "enable_sleeptime"),
    ],
)
async def test_types_that_need_something_say_what(rig, fields, field):
    with pytest.raises(InvalidInput, match=field):
        await rig.kelpie.api().agents.create(NewAgent(**fields))
    assert await rig.kelpie.api().agents.count() == 0


@pytest.mark.parametrize(
    ("agent_type", "handle", "asked", "rules"),
    [
        ("memgpt_agent", "openai/gpt-4.1", None, True),
        ("memgpt_agent", "openai/gpt-5", None, False),
        ("memgpt_v2_agent", "openai/gpt-5-mini", None, True),
        ("memgpt_v2_agent", "anthropic/claude-4-sonnet-x", None, False),
        ("sleeptime_agent", "openai/gpt-5", None, True),
        ("letta_v1_agent", "openai/gpt-4.1", None, False),
        ("letta_v1_agent", "openai/gpt-5", True, True),
        ("sleeptime_agent", "openai/gpt-4.1", False, False),
    ],
)
def test_base_rules_by_type_and_model_unless_the_maker_says(agent_type, handle, asked, rules):
    spec = spec_of(AgentType(agent_type))
    new = NewAgent(agent_type=AgentType(agent_type), include_base_tool_rules=asked)
    tools = [BUILTINS[name].row("org", 0) for name in spec.base_tools]
    assert bool(creation.rules_for(new, spec, tools, ModelChoice(handle, 8000))) is rules


# --- the prompt -----------------------------------------------------------------------------------------------------


def shown(agent_type, handle="openai/gpt-4.1", value="Name: Bob\nLikes tea"):
    agent_id = AgentId("agent-00000000-0000-4000-8000-000000000001")
    block = Block(BlockId("block-00000000-0000-4000-8000-000000000001"), "human", value, 0, 0)
    agent = Agent(agent_id, "A", AgentType(agent_type), "Be kind.", ModelChoice(handle, 8000), 0, 0)
    return system_text(agent, (block,), 0)


@pytest.mark.parametrize("agent_type", list(AgentType))
def test_memory_stands_in_the_prompt_except_where_the_type_has_none(agent_type):
    seen = agent_type not in (AgentType.react_agent, AgentType.workflow_agent)
    assert ("Name: Bob\nLikes tea" in shown(agent_type)) is seen
    assert ("<memory_blocks>" in shown(agent_type)) is seen
    assert shown(agent_type).startswith("Be kind.")


@pytest.mark.parametrize("agent_type", list(AgentType))
def test_lines_are_numbered_for_anthropic_and_three_types(agent_type):
    numbered = agent_type in (AgentType.letta_v1_agent, AgentType.memgpt_v2_agent, AgentType.sleeptime_agent)
    assert ("1→ Name: Bob\n2→ Likes tea" in shown(agent_type, "anthropic/claude-x")) is numbered
    assert "→" not in shown(agent_type)


# --- the turns ------------------------------------------------------------------------------------------------------


async def test_memgpt_v2_goes_on_by_rule_and_ends_by_speaking(rig):
    view = await make(rig, "memgpt_v2_agent")
    rig.model.script = [
        says("", ("memory_insert", {"thinking": "keep it", "label": "human", "new_string": "Likes tea"})),
        says("", ("send_message", {"thinking": "tell", "message": "Noted."})),
    ]
    events = await rig.say(view.agent.id, "I like tea")
    assert ended(events).stop_reason is StopReason.end_turn
    assert [m.role for m in rows(events)] == [Role.assistant, Role.tool, Role.assistant, Role.tool]
    assert rows(events)[0].content == (Reasoning("keep it", native=False),)
    history = await _history(rig, view)
    assert '"heartbeat"' in history[-3].text, "the server's word that it may go on"
    first, second = rig.model.requests
    assert first.tool_choice == "required"
    offered = {t.name: t.parameters for t in first.tools}
    assert "request_heartbeat" in offered["memory_insert"]["required"]
    assert "request_heartbeat" not in offered["send_message"]["properties"]
    assert "Likes tea" in second.system


async def test_react_uses_its_tools_and_may_answer_in_text(rig):
    view = await make(rig, "react_agent", tools=("archival_memory_insert",), include_base_tool_rules=False)
    calls = [("archival_memory_insert", {"thinking": "file it", "content": "pi is 3.14", "request_heartbeat": True})]
    rig.model.script = [says("", *calls), says("It is filed.")]
    events = await rig.say(view.agent.id, "file this")
    assert rows(events)[-1].text == "It is filed." and ended(events).stop_reason is StopReason.end_turn
    assert rig.model.requests[0].tool_choice == "auto"
    rig.model.script = [says("", ("archival_memory_insert", {"content": "e", "request_heartbeat": False}))]
    events = await rig.say(view.agent.id, "and this")
    assert [m.role for m in rows(events)] == [Role.assistant, Role.tool], "a call without a heartbeat ends the turn"


@pytest.mark.parametrize("rules", [None, False], ids=["with rules", "without rules"])
async def test_sleeptime_edits_until_it_says_that_it_is_done(rig, rules):
    view = await make(rig, "sleeptime_agent", include_base_tool_rules=rules)
    rig.model.script = [
        says("", ("memory_insert", {"thinking": "new", "label": "human", "new_string": "Likes tea"})),
        says("", ("memory_rethink", {"label": "human", "new_memory": "Bob likes tea."})),
        says("", ("memory_finish_edits", {})),
    ]
    events = await rig.say(view.agent.id, "user: I like tea")
    assert ended(events).stop_reason is StopReason.tool_rule and len(rig.model.requests) == 3
    assert (await rig.kelpie.api().blocks.of_agent_by_label(view.agent.id, "human")).value == "Bob likes tea."
    assert "request_heartbeat" not in rig.model.requests[0].tools[0].parameters["properties"]
    assert [m.role for m in await _history(rig, view)].count(Role.user) == 1, "it is not nudged"


async def test_voice_sleeptime_files_the_transcript_it_was_given(rig):
    view = await make(rig, "voice_sleeptime_agent")
    chunk = {"start_index": 1, "end_index": 2, "context": "Bob plans a trip to Oslo."}
    rig.model.script = [
        says("", ("store_memories", {"chunks": [chunk]})),
        says("", ("rethink_user_memory", {"new_memory": "Bob goes to Oslo."})),
        says("", ("finish_rethinking_memory", {})),
    ]
    events = await rig.say(view.agent.id, "user: hello\nuser: I go to Oslo\nassistant: When?\nuser: bye")
    assert all(r.ok for m in rows(events) for r in m.tool_returns), rows(events)
    assert ended(events).stop_reason is StopReason.tool_rule and len(rig.model.requests) == 3
    assert (await rig.kelpie.api().blocks.of_agent_by_label(view.agent.id, "human")).value == "Bob goes to Oslo."

    def stored(tx):
        archive = archives.archive_of(tx, view.agent.id)
        return [found.passage.text for found in passage_search.search(tx, archive, PassageQuery("Oslo"))]

    (text,) = await rig.kelpie.world.database.read(stored)
    assert text == "Bob plans a trip to Oslo.\n\nuser: I go to Oslo\nassistant: When?"


async def test_voice_convo_searches_and_speaks(rig):
    view = await make(rig, "voice_convo_agent")
    rig.model.script = [says("", ("send_message", {"message": "Oslo is lovely"}))]
    await rig.say(view.agent.id, "I go to Oslo")
    rig.model.script = [
        says("", ("search_memory", {"convo_keyword_queries": ["Oslo"], "request_heartbeat": True})),
        says("", ("send_message", {"message": "You go to Oslo."})),
    ]
    events = await rig.say(view.agent.id, "where do I go?")
    assert "I go to Oslo" in rows(events)[1].tool_returns[0].text
    assert ended(events).stop_reason is StopReason.end_turn


@pytest.mark.parametrize("own", [(), (ToolRule("run_first", "memory_insert"),)])
async def test_who_gives_an_agent_rules_is_given_those_of_the_base_tools_too(rig, own):
    view = await make(rig, "letta_v1_agent", tool_rules=own)
    base = [ToolRule("continue_loop", tool.name) for tool in view.tools] if own else []
    assert view.agent.tool_rules == (*own, *base)
