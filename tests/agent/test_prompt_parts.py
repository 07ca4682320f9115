"""Parts of a prompt: how results, calls, tools, skills and folders are shown to the model, and how a request is taken
apart again; and the pieces of a reply while it comes."""

import orjson

from kelpie.agent.events.previews import Preview
from kelpie.agent.events.turn_events import AnswerDelta, CallDelta, ThoughtDelta, TurnEvent
from kelpie.agent.prompt import rendering
from kelpie.agent.prompt.agent_types import Thoughts, TypeSpec, spec_of
from kelpie.agent.prompt.prompt_inspection import inspect_prompt
from kelpie.core.agents.agent import AgentType
from kelpie.core.agents.turn_overrides import Skill
from kelpie.core.conversations.messages import Message, Reasoning, Role, Text, ToolCall, ToolReturn
from kelpie.core.ids import AgentId, MessageId, StepId
from kelpie.llm.provider.interface import ReasoningDelta, TextDelta, ToolCallDelta

AGENT = AgentId("agent-00000000-0000-4000-8000-000000000001")
MESSAGE = MessageId("message-00000000-0000-4000-8000-000000000001")
STEP = StepId("step-00000000-0000-4000-8000-000000000001")
AT = 1_700_000_000_000_000  # 2023-11-14 22:13:20
CLASSIC, PLAIN = spec_of(AgentType.memgpt_agent), spec_of(AgentType.letta_v1_agent)


def test_a_result_says_how_it_went_when_and_with_which_arguments() -> None:
    time = "2023-11-14 10:13:20 PM UTC+0000"
    went = orjson.loads(rendering.packed_return(ToolReturn("c", "look", True, "a door"), AT))
    assert went == {"status": "OK", "message": "a door", "time": time}
    failed = ToolReturn("c", "look", False, "dark", ran_with='{"at": 2}')
    told = orjson.loads(rendering.packed_return(failed, AT))
    assert told.pop("ran_with_arguments_changed_by_a_person") == '{"at": 2}'
    assert told == {"status": "Failed", "message": "dark", "time": time}


def reply(*parts: Text | Reasoning, arguments: str = '{"at": 1}') -> Message:
    call = ToolCall("c", "look", arguments)
    return Message(MESSAGE, AGENT, Role.assistant, AT, parts, tool_calls=(call,))


def test_thoughts_go_back_to_where_the_model_wrote_them() -> None:
    own, native = Reasoning("hm", native=False), Reasoning("deep", native=True)
    shown = rendering.prepare(reply(own, native, Text("so")), CLASSIC).message
    assert CLASSIC.inner_thoughts and shown.content == (native, Text("so"))
    assert orjson.loads(shown.tool_calls[0].arguments) == {"thinking": "hm", "at": 1}
    plain = rendering.prepare(reply(own, Text("so")), PLAIN).message
    assert plain.content == (own, Text("so")) and plain.tool_calls[0].arguments == '{"at": 1}'


def test_arguments_that_are_no_object_are_shown_as_none() -> None:
    for arguments in ("{", "[1]", "7"):
        shown = rendering.prepare(reply(arguments=arguments), PLAIN).message
        assert shown.tool_calls[0].arguments == "{}", arguments
    assert rendering.read_object(" ") == {} and rendering.read_object('{"a": 1}') == {"a": 1}


def test_skills_and_instructions_of_a_client_follow_the_text() -> None:
    assert rendering.with_skills("x", ()) == "x" and rendering.with_instructions("x", None) == "x"
    skilled = rendering.with_skills("x", (Skill("pdf", "reads", "/s"), Skill("csv", "sums", "/t")))
    assert skilled.split("\n") == [
        "x",
        "",
        "<available_skills>",
        "- pdf: reads (described in /s)",
        "- csv: sums (described in /t)",
        "</available_skills>",
    ]
    told = rendering.with_instructions("x", "be kind")
    assert told == "x\n\n<client_instructions>\nbe kind\n</client_instructions>"


def test_a_request_is_taken_apart_into_what_it_was_made_of() -> None:
    system = (
        "Be brief.\n\n<memory_blocks>\nnote\n<human>\nBob\n</human>\n<persona>\nAnn\n</persona>\n</memory_blocks>"
        "\n\n<memory_metadata>\n- Today\n</memory_metadata>\n\nEnd."
    )
    body = {
        "model": "m",
        "messages": [
            {"role": "system", "content": system},
            {"role": "user", "content": '{"type": "system_alert", "message": "told"}'},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
        ],
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}],
        "temperature": 0.5,
    }
    seen = inspect_prompt(orjson.dumps(body))
    assert seen is not None and seen.left_out == 0 and seen.options["temperature"] == 0.5
    found = [(part.kind, part.label) for part in seen.parts]
    assert [one for one in found if one[0] != "tool"] == [
        ("instructions", "system instructions"),
        ("memory", "note on memory"),
        ("memory", "block human"),
        ("memory", "block persona"),
        ("instructions", "memory_metadata"),
        ("instructions", "system instructions"),
        ("summary", "summary of removed messages"),
        ("user", "user"),
        ("assistant", "assistant"),
    ]
    assert ("tool", "look") in found and all(part.tokens > 0 for part in seen.parts)
    assert "Bob" in next(part.text for part in seen.parts if part.label == "block human")
    assert inspect_prompt(b'{"model": ') is None


Delta = TextDelta | ReasoningDelta | ToolCallDelta


def previewed(thoughts: Thoughts, *deltas: Delta, waiting: frozenset[str] = frozenset()) -> list[TurnEvent]:
    found: list[TurnEvent] = []
    preview = Preview(MESSAGE, STEP, AT, thoughts, found.append, waiting)
    assert not preview.started
    for delta in deltas:
        preview.take(delta)
    preview.finish()
    assert preview.started
    return found


def test_a_reply_is_previewed_part_by_part() -> None:
    calls = (
        ToolCallDelta(0, "c1", "look", '{"a'),
        ToolCallDelta(0, None, None, '": 1}'),
        ToolCallDelta(1, "c2", "go", ""),
    )
    head = (MESSAGE, STEP, AT)
    assert previewed(
        Thoughts.plain, ReasoningDelta("hm"), TextDelta("so"), TextDelta("!"), *calls, waiting=frozenset({"go"})
    ) == [
        ThoughtDelta(*head, 0, "hm", native=True),
        AnswerDelta(*head, 1, "so"),
        AnswerDelta(*head, 1, "!"),
        CallDelta(*head, 2, "c1", "look"),
        CallDelta(*head, 2, "c1", None, '{"a'),
        CallDelta(*head, 2, "c1", None, '": 1}'),
        CallDelta(*head, 2, "c2", "go", None, awaits=True),
    ]


def test_thoughts_and_answers_inside_of_calls_come_out_of_them() -> None:
    pieces = ('{"thinking": "h', 'm", "message": "so', '!"}')
    said = [
        ToolCallDelta(0, "c1" if not i else None, "send_message" if not i else None, p) for i, p in enumerate(pieces)
    ]
    head = (MESSAGE, STEP, AT)
    assert previewed(Thoughts.in_calls, *said) == [
        ThoughtDelta(*head, 0, "h", native=False),
        ThoughtDelta(*head, 0, "m", native=False),
        AnswerDelta(*head, 1, "so"),
        AnswerDelta(*head, 1, "!"),
    ]
    look = ToolCallDelta(0, "c1", "look", '{"thinking": "hm", "at": 1}')
    assert previewed(Thoughts.in_calls, look) == [
        ThoughtDelta(*head, 0, "hm", native=False),
        CallDelta(*head, 1, "c1", "look"),
        CallDelta(*head, 1, "c1", None, '{"at":1}'),
    ]


def test_the_types_that_think_in_calls_ask_for_it() -> None:
    def required(spec: TypeSpec, *, ends: bool) -> list[str]:
        given = {"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]}
        schema = {"description": "Looks.", "parameters": given}
        tool = type("T", (), {"name": "look", "json_schema": schema, "description": None, "tool_type": None})()
        exits = frozenset({"look"}) if ends else frozenset[str]()
        (shown,) = rendering.tool_schemas((tool,), spec, exits)  # type: ignore[arg-type]
        assert shown.description == "Looks." and list(shown.parameters["properties"]) == shown.parameters["required"]
        return list(shown.parameters["required"])

    assert required(CLASSIC, ends=False) == ["thinking", "at", "request_heartbeat"]
    assert required(CLASSIC, ends=True) == ["thinking", "at"]
    assert required(PLAIN, ends=False) == ["at"]
