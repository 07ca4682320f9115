"""Send request: messages or answers for a conversation of an agent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kelpie.core.agents.turn_overrides import TurnOverrides
from kelpie.core.conversations.agent_chain import UNCHAINED, AgentChain
from kelpie.core.conversations.approvals import ClientTool
from kelpie.core.conversations.messages import CallAnswer, NewMessage
from kelpie.core.conversations.runs import MAX_STEPS_DEFAULT
from kelpie.storage.runs.input import RunInput

DEFAULT_LANE = ""  # of the conversation that every agent has
NOBODY_WAITS = "send_message_async"


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Messages for an agent to answer."""

    messages: tuple[NewMessage, ...]
    max_steps: int = MAX_STEPS_DEFAULT
    deltas: bool = False  # true if the client wants tokens as they come
    callback_url: str | None = None  # of a background send: gets a POST when the run has ended
    run_type: str = "send_message"
    answers: tuple[CallAnswer, ...] = ()  # to calls that wait; the messages come after their results
    partial: bool = False  # whether they may leave some of the calls waiting
    client_tools: tuple[ClientTool, ...] = ()
    conversation: str = ""  # in which of the agent's conversations; empty is the one it always has
    override: TurnOverrides | None = None
    alone: bool = False  # whether it is refused, instead of queued, while the conversation has a turn
    override_model: str | None = None  # a handle; it becomes the model of `override` before the turn begins
    request_config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    chain: AgentChain = UNCHAINED  # of agents, when it was one of them that sent this
    once: bool = False  # whether the same messages are refused, instead of said again, after they failed halfway
    group_id: str | None = None  # the group that it is said in, and answered to

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata of its run; that of an asynchronous send has one key more, as in Letta."""
        return {"run_type": self.run_type} | ({"lettuce": None} if self.run_type == NOBODY_WAITS else {})

    @property
    def given(self) -> RunInput:
        """The input that is stored with its run, so that it survives a crash."""
        return RunInput(
            self.messages,
            self.max_steps,
            answers=self.answers,
            partial=self.partial,
            client_tools=self.client_tools,
            chain=self.chain,
            override=self.override,
            group_id=self.group_id,
            deltas=self.deltas,
        )
