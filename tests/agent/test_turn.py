"""Turns on the real storage: what is said, what is remembered, what is stored."""

from dataclasses import replace

from kelpie.core.agents.agent import AgentType, Include, NewAgent
from kelpie.core.conversations.messages import MessageQuery, Role
from kelpie.core.conversations.runs import RunQuery, RunStatus, StopReason
from kelpie.core.errors import ModelError, ModelFault
from kelpie.core.memory.blocks import NewBlock
from tests.agent.conftest import ended, rows, says


async def make(rig, **fields):
    fields.setdefault("memory_blocks", (NewBlock("human", "Name: Bob"), NewBlock("persona", "I help.")))
    return (await rig.kelpie.api().agents.create(NewAgent(**fields))).agent


async def test_a_plain_answer(rig):
    agent = await make(rig)
    rig.model.script = [says("Hello Bob")]
    events = await rig.say(agent.id, "hi")
    assert [m.text for m in rows(events)] == ["Hello Bob"]
    assert ended(events).stop_reason is StopReason.end_turn
    stored = await rig.kelpie.api().histories.messages(agent.id, MessageQuery())
    assert [(m.role, m.text) for m in stored[1:]] == [(Role.user, "hi"), (Role.assistant, "Hello Bob")]
    (run,) = await rig.kelpie.api().runs.page(RunQuery())
    assert (run.status, run.stop_reason, run.step_count) == (RunStatus.completed, StopReason.end_turn, 1)
    assert run.usage.total_tokens == 15
    view = await rig.kelpie.api().agents.get(agent.id)
    assert list(view.message_ids) == [m.id for m in stored]
    assert view.agent.last_stop_reason is StopReason.end_turn


async def test_a_memory_edit_is_visible_in_the_very_next_model_call(rig):
    agent = await make(rig)
    rig.model.script = [says("", ("memory_insert", {"label": "human", "new_string": "Likes tea"})), says("Noted")]
    events = await rig.say(agent.id, "I like tea")
    assert [m.role for m in rows(events)] == [Role.assistant, Role.tool, Role.assistant]
    assert rows(events)[1].tool_returns[0].ok
    before, after = rig.model.requests
    assert "Likes tea" not in before.system and "Likes tea" in after.system
    assert "Likes tea" in (await rig.kelpie.api().blocks.of_agent_by_label(agent.id, "human")).value


async def test_an_edit_from_outside_is_in_the_next_prompt(rig):
    agent = await make(rig)
    await rig.say(agent.id, "one")
    await rig.kelpie.api().blocks.update_by_label(agent.id, "human", {"value": "Name: Carol"})
    await rig.say(agent.id, "two")
    assert "Name: Carol" in rig.model.requests[-1].system


async def test_an_unknown_tool_is_answered_and_not_run(rig):
    agent = await make(rig)
    rig.model.script = [says("", ("core_memory_append", {"label": "human", "content": "x"})), says("sorry")]
    events = await rig.say(agent.id, "go")
    result = rows(events)[1].tool_returns[0]
    assert not result.ok and "no tool named 'core_memory_append'" in result.text
    assert (await rig.kelpie.api().blocks.of_agent_by_label(agent.id, "human")).value == "Name: Bob"


async def test_broken_arguments_are_told_to_the_model_and_never_sent_back(rig):
    agent = await make(rig)
    rig.model.script = [says("", ("memory_insert", "{not json")), says("sorry")]
    events = await rig.say(agent.id, "go")
    assert not rows(events)[1].tool_returns[0].ok
    shown = [c for p in rig.model.requests[-1].messages for c in p.message.tool_calls]
    assert [c.arguments for c in shown] == ["{}"]


async def test_a_failed_first_step_leaves_the_input_out_of_the_history(rig):
    agent = await make(rig)
    rig.model.script = [ModelError(ModelFault.server, "boom", detail="upstream said no")]
    events = await rig.say(agent.id, "hi")
    assert ended(events).stop_reason is StopReason.llm_api_error
    assert isinstance(ended(events).error, ModelError)
    stored = await rig.kelpie.api().histories.messages(agent.id, MessageQuery())
    assert [m.role for m in stored] == [Role.system]
    (run,) = await rig.kelpie.api().runs.page(RunQuery())
    assert run.status is RunStatus.failed and run.metadata["error"]["detail"] == "upstream said no"
    rig.model.script = [says("fine")]
    assert ended(await rig.say(agent.id, "hi")).stop_reason is StopReason.end_turn


async def test_a_failure_after_a_step_keeps_what_was_committed(rig):
    agent = await make(rig)
    rig.model.script = [
        says("", ("memory_insert", {"label": "human", "new_string": "x"})),
        ModelError(ModelFault.timeout, "slow"),
    ]
    events = await rig.say(agent.id, "hi")
    assert ended(events).error
    stored = await rig.kelpie.api().histories.messages(agent.id, MessageQuery())
    assert [m.role for m in stored[1:]] == [Role.user, Role.assistant, Role.tool]
    rig.model.script = [says("fine")]
    assert rows(await rig.say(agent.id, "again"))[-1].text == "fine"


async def test_the_step_limit_ends_a_turn(rig):
    agent = await make(rig)
    rig.model.script = [says("", ("memory_insert", {"label": "human", "new_string": str(i)})) for i in range(5)]
    events = await rig.say(agent.id, "go", max_steps=2)
    assert ended(events).stop_reason is StopReason.max_steps and ended(events).step_count == 2


async def test_no_steps_at_all(rig):
    agent = await make(rig)
    events = await rig.say(agent.id, "go", max_steps=0)
    assert rows(events) == [] and ended(events).stop_reason is StopReason.end_turn
    assert rig.model.requests == []


async def test_memgpt_answers_by_tool_and_thinks_in_an_argument(rig):
    agent = await make(rig, agent_type=AgentType.memgpt_agent)
    rig.model.script = [
        says(
            "",
            (
                "core_memory_append",
                {"thinking": "save it", "label": "human", "content": "tea", "request_heartbeat": True},
            ),
        ),
        says("", ("send_message", {"thinking": "answer", "message": "Noted"})),
    ]
    events = await rig.say(agent.id, "I like tea")
    said = rows(events)
    assert [m.role for m in said] == [Role.assistant, Role.tool, Role.assistant, Role.tool]
    assert said[0].content[0].text == "save it" and "thinking" not in said[0].tool_calls[0].arguments
    assert ended(events).stop_reason is StopReason.end_turn
    schema = rig.model.requests[0].tools[0].parameters
    assert "thinking" in schema["required"]
    heartbeat = [p.message for p in rig.model.requests[1].messages if p.message.role is Role.user][-1]
    assert '"heartbeat"' in heartbeat.text
    assert '"thinking"' in rig.model.requests[1].messages[-3].message.tool_calls[0].arguments


async def test_send_message_is_dual_mode(rig):
    agent = await make(rig, agent_type=AgentType.memgpt_agent)
    rig.model.script = [says("Just text")]
    events = await rig.say(agent.id, "hi")
    assert rows(events)[0].text == "Just text" and ended(events).stop_reason is StopReason.end_turn
    rig.model.script = [says("", ("send_message", {"message": "one"}), ("send_message", {"message": "two"}))]
    events = await rig.say(agent.id, "hi")
    assert [c.name for c in rows(events)[0].tool_calls] == ["send_message", "send_message"]
    assert all(r.ok for r in rows(events)[1].tool_returns)
    direct = await make(rig, tools=("send_message",))
    rig.model.script = [says("", ("send_message", {"message": "by tool"})), says("and directly")]
    events = await rig.say(direct.id, "hi")
    assert [m.role for m in rows(events)] == [Role.assistant, Role.tool, Role.assistant]


async def test_append_or_create_is_one_operation(rig):
    agent = await make(rig, agent_type=AgentType.memgpt_agent, memory_blocks=())
    rig.model.script = [
        says("", ("core_memory_append", {"label": "notes", "content": "first", "request_heartbeat": True})),
        says("", ("send_message", {"message": "done"})),
    ]
    await rig.say(agent.id, "note it")
    assert (await rig.kelpie.api().blocks.of_agent_by_label(agent.id, "notes")).value == "first"
    assert "first" in rig.model.requests[-1].system


async def test_a_shared_block_edited_by_one_agent_is_in_the_others_next_prompt(rig):
    block = await rig.kelpie.api().blocks.create(NewBlock("shared", "old"))
    one = await make(rig, block_ids=(block.id,))
    two = await make(rig, block_ids=(block.id,))
    await rig.say(two.id, "warm up")
    rig.model.script = [says("", ("memory_replace", {"label": "shared", "old_string": "old", "new_string": "new"}))]
    await rig.say(one.id, "change it")
    await rig.say(two.id, "look")
    assert ">\nnew\n<" in rig.model.requests[-1].system


async def test_everything_is_there_after_a_restart(rig):
    agent = await make(rig)
    rig.model.script = [says("", ("memory_insert", {"label": "human", "new_string": "Likes tea"})), says("Noted")]
    await rig.say(agent.id, "I like tea")
    before = await rig.kelpie.api().agents.get(agent.id)
    history = await rig.kelpie.api().histories.messages(agent.id, MessageQuery())
    await rig.stop()
    await rig.start()
    after = await rig.kelpie.api().agents.get(agent.id)
    assert (after.agent, after.blocks, after.tools, after.message_ids) == (
        before.agent, before.blocks, before.tools, before.message_ids
    )  # fmt: skip
    assert await rig.kelpie.api().histories.messages(agent.id, MessageQuery()) == history
    rig.model.script = [says("Tea it is")]
    await rig.say(agent.id, "what do I like?")
    assert "Likes tea" in rig.model.requests[-1].system
    assert len(rig.model.requests[-1].messages) == 5


async def test_reset_empties_history_and_the_agent_goes_on(rig):
    agent = await make(rig)
    await rig.say(agent.id, "hi")
    view = await rig.kelpie.api().histories.reset(agent.id, False)
    assert len(view.message_ids) == 1
    await rig.say(agent.id, "again")
    assert [p.message.text for p in rig.model.requests[-1].messages] == ["again"]
    assert len(await rig.kelpie.api().histories.messages(agent.id, MessageQuery())) == 3


async def test_a_listing_has_relations_only_when_asked(rig):
    agent = await make(rig, tags=("a",), secrets={"K": "v"})
    bare = await rig.kelpie.api().agents.get(agent.id, Include())
    assert (bare.blocks, bare.tools, bare.secrets) == ((), (), ())
    full = await rig.kelpie.api().agents.get(agent.id)
    assert {b.label for b in full.blocks} == {"human", "persona"} and full.secrets[0].value == "v"


async def test_deleting_an_agent_leaves_nothing_behind(rig):
    agent = await make(rig, tools=("archival_memory_insert",))
    rig.model.script = [says("", ("archival_memory_insert", {"content": "a fact"})), says("done")]
    await rig.say(agent.id, "file it")
    await rig.kelpie.api().agents.delete(agent.id)

    def left(tx):
        tables = (
            "agents",
            "agent_head",
            "messages",
            "context",
            "runs",
            "steps",
            "journal",
            "archives",
            "passages",
            "search_items WHERE kind <> 'tool'",  # the server's own tools stay
            "search_segments",
            "search_postings",
        )
        return {t: n for t in tables if (n := tx.exec_driver_sql(f"SELECT count(*) FROM {t}").scalar())}

    assert await rig.kelpie.world.database.read(left) == {}


async def test_what_was_said_by_tool_can_be_searched(rig):
    agent = await make(rig, agent_type=AgentType.memgpt_agent)
    rig.model.script = [says("", ("send_message", {"message": "The walrus is blue"}))]
    await rig.say(agent.id, "colour?")
    rig.model.script = [
        says("", ("conversation_search", {"query": "walrus", "request_heartbeat": True})),
        says("", ("send_message", {"message": "blue"})),
    ]
    events = await rig.say(agent.id, "again?")
    assert "The walrus is blue" in rows(events)[1].tool_returns[0].text


async def test_what_create_answers_is_what_is_read_back(rig):
    block = await rig.kelpie.api().blocks.create(NewBlock("extra", "e", tags=("t",)))
    fields = NewAgent(
        memory_blocks=(NewBlock("human", "h", tags=("b", "a")), NewBlock("persona", "p")),
        tools=("archival_memory_insert",),
        tags=("z", "a"),
        secrets={"B": "2", "A": "1"},
        description="d",
        metadata={"k": 1},
    )
    for new in (fields, replace(fields, block_ids=(block.id,))):
        made = await rig.kelpie.api().agents.create(new)
        assert await rig.kelpie.api().agents.get(made.agent.id) == made
