"""Input of a run, stored until the run has ended: enough to start it again after a crash."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kelpie.core.agents.turn_overrides import TurnOverrides
from kelpie.core.conversations.agent_chain import UNCHAINED, AgentChain
from kelpie.core.conversations.approvals import ClientTool
from kelpie.core.conversations.messages import CallAnswer, NewMessage, Role
from kelpie.core.ids import MessageId, RunId
from kelpie.storage.conversations.message_rows import (
    answers_from_json,
    answers_to_json,
    content_from_json,
    content_to_json,
)
from kelpie.storage.runs.turn_overrides import override_from_json, override_to_json


@dataclass(frozen=True, slots=True)
class RunInput:
    """Input of a run: enough to start it again after a crash."""

    messages: tuple[NewMessage, ...]
    max_steps: int
    answers: tuple[CallAnswer, ...] = ()  # to calls that wait; once they were matched with `request`, to all of them
    partial: bool = False  # true if they may leave some of the calls pending
    request: MessageId | None = None
    earlier: tuple[RunId, ...] = ()  # the runs of the same turn before this one
    client_tools: tuple[ClientTool, ...] = ()
    chain: AgentChain = UNCHAINED
    override: TurnOverrides | None = None
    group_id: str | None = None  # the group that it is said in
    deltas: bool = False  # true if its stream has tokens as they come

    @property
    def otids(self) -> list[str]:
        """The ids that its client gave the messages."""
        return [message.otid for message in self.messages if message.otid is not None]


def run_input_to_json(given: RunInput) -> dict[str, Any]:
    """The stored form of a run's input."""
    stored = [
        {
            "role": m.role.value,
            "content": content_to_json(m.content),
            "name": m.name,
            "otid": m.otid,
            "sender_id": m.sender_id,
            "group_id": m.group_id,
        }
        for m in given.messages
    ]
    own = {} if given.override is None else {"override": override_to_json(given.override)}
    return {"messages": stored, "max_steps": given.max_steps, **_optional_to_json(given), **own}


def _optional_to_json(given: RunInput) -> dict[str, Any]:
    """Fields that only some turns have: answers to pending calls, tools of the client, the chain of agents."""
    found: dict[str, Any] = {}
    if given.answers:
        found["answers"], found["partial"] = answers_to_json(given.answers), given.partial
    if given.request is not None:
        found["request"] = given.request
    if given.earlier:
        found["earlier"] = list(given.earlier)
    if given.client_tools:
        found["client_tools"] = [[t.name, t.description, dict(t.parameters)] for t in given.client_tools]
    if given.chain is not UNCHAINED:
        found["chain"] = given.chain.to_json()
    if given.group_id is not None:
        found["group_id"] = given.group_id
    if given.deltas:
        found["deltas"] = True
    return found


def run_input_from_json(data: Mapping[str, Any]) -> RunInput:
    """A run's input from its stored form."""
    messages = tuple(
        NewMessage(
            Role(m["role"]), content_from_json(m["content"]), m["name"], m["otid"], m["sender_id"], m["group_id"]
        )
        for m in data["messages"]
    )
    return RunInput(
        messages,
        data["max_steps"],
        answers_from_json(data.get("answers")),
        data.get("partial", False),
        MessageId(data["request"]) if "request" in data else None,
        tuple(RunId(run_id) for run_id in data.get("earlier", ())),
        tuple(ClientTool(*tool) for tool in data.get("client_tools", ())),
        AgentChain.from_json(data["chain"]) if "chain" in data else UNCHAINED,
        override_from_json(data.get("override")),
        data.get("group_id"),
        data.get("deltas", False),
    )
