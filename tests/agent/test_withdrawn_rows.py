"""The rows with which a withdrawn request is answered stand where the request does."""

from typing import Any

import pytest

from kelpie.agent.tool_calls import approval_withdrawal
from kelpie.agent.tool_calls.approval_withdrawal import withdraw
from kelpie.core.conversations.approvals import PendingCalls
from kelpie.core.conversations.messages import Awaits, Message, Role, ToolCall
from kelpie.core.ids import AgentId, ConversationId, MessageId, RunId, StepId


def test_they_are_of_its_agent_conversation_group_and_run(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, run, lane = AgentId("agent-1"), RunId("run-1"), ConversationId("conv-1")
    call = ToolCall("call_1", "look", "{}", awaits=Awaits.approval)
    place: dict[str, Any] = {"conversation_id": lane, "group_id": "group-1", "run_id": run}
    request = Message(
        MessageId("message-1"), agent, Role.approval, 1, (), tool_calls=(call,), step_id=StepId("step-1"), **place
    )
    pending = PendingCalls(agent, lane, request.id, (run,), 1)
    added: list[tuple[Message, str | None]] = []
    monkeypatch.setattr(approval_withdrawal.rows, "move", lambda *_: True)
    monkeypatch.setattr(approval_withdrawal.messages, "get_many", lambda *_: [request])
    monkeypatch.setattr(
        approval_withdrawal.messages, "append", lambda _tx, rows, shown=None: added.extend((row, shown) for row in rows)
    )
    nothing: Any = None
    assert withdraw(nothing, pending, "Gone.", 9)
    (said, said_in), (result, result_in) = added
    for row in (said, result):
        assert (row.agent_id, row.conversation_id, row.group_id, row.run_id, row.created_at) == (
            agent,
            lane,
            "group-1",
            run,
            9,
        )
    assert (said.step_id, said_in, result.step_id, result_in) == (None, None, request.step_id, lane)
    assert said.id != result.id and [each.text for each in result.tool_returns] == [
        "Error: request to call tool denied. A person did not approve this call, so it was not run. Reason: Gone."
    ]
