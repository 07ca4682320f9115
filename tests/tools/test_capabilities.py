"""What tools are known by: every one of ours by what is written down, others by what they are and declare."""

from dataclasses import replace

from kelpie.agent.tool_calls.approval_matching import with_client
from kelpie.core.conversations.approvals import ClientTool
from kelpie.core.ids import DEFAULT_ORGANIZATION, ToolId
from kelpie.core.permissions.tool_permissions import Capability, ToolKind
from kelpie.core.tools.tools import Tool, ToolType
from kelpie.tools.builtin import BUILTINS, RESERVED
from kelpie.tools.calls.capabilities import _OWN, subject_of

SOME = ToolId("tool-00000000-0000-4000-8000-000000000001")


def tool(tool_type: ToolType, name: str = "it", **sandbox: object) -> Tool:
    return Tool(SOME, name, tool_type, {"name": name}, 0, 0, sandbox=sandbox)


def test_every_tool_that_speaks_or_ends_is_harmless_and_no_other():
    rows = [subject_of(builtin.row(DEFAULT_ORGANIZATION, 0)) for builtin in BUILTINS.values()]
    assert {s.name for s in rows if s.harmless} == {
        "send_message",
        "pause_heartbeats",
        "memory_finish_edits",
        "finish_rethinking_memory",
    }
    assert all(s.kind is ToolKind.builtin for s in rows)
    assert {s.name for s in rows if s.capabilities == (Capability.messaging,)} == {
        name for name in BUILTINS if name.startswith("send_message_to_agent")
    }
    assert set(_OWN) <= RESERVED | {"shell", "filesystem"}


def test_what_runs_code_is_known_by_it_whatever_it_declares():
    assert subject_of(tool(ToolType.custom)).capabilities == (Capability.code,)
    found = subject_of(tool(ToolType.custom, egress=["example.org"], capabilities=["messaging"]))
    assert found.capabilities == (Capability.code, Capability.messaging, Capability.network)
    assert subject_of(tool(ToolType.custom, name="send_message")).harmless is False
    assert subject_of(tool(ToolType.custom, capabilities=[])).capabilities == (Capability.code,)


def test_others_reach_what_lies_outside():
    assert subject_of(tool(ToolType.external_mcp)).kind is ToolKind.mcp
    assert subject_of(tool(ToolType.external_mcp)).capabilities == (Capability.network,)
    (client,) = with_client((), (ClientTool("open_door", None, {}),))
    assert (subject_of(client).kind, subject_of(client).harmless) == (ToolKind.client, False)


def test_one_of_ours_that_may_reach_hosts_is_known_by_that_too():
    row = BUILTINS["run_code"].row(DEFAULT_ORGANIZATION, 0)
    reaching = subject_of(replace(row, sandbox={"egress": ["example.org"]}))
    assert reaching.capabilities == (Capability.code, Capability.network)
    assert subject_of(replace(row, sandbox={"egress": []})).capabilities == (Capability.code,)
