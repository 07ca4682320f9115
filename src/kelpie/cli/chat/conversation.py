"""The conversation that a chat is in: the agent's default one, or one of its others."""

from collections.abc import Mapping, Sequence
from typing import Any

from kelpie.cli.chat.turn import Turn
from kelpie.cli.options import path
from kelpie.core.ids import DEFAULT_CONVERSATION
from kelpie.world.http.cli_client import Client, ErrorResponse
from kelpie.world.ids import RandomIds

NOT_FOUND = 404


class Conversation:
    """Reads and writes one conversation of one agent."""

    def __init__(
        self,
        client: Client,
        agent: Mapping[str, Any],
        conversation_id: str = DEFAULT_CONVERSATION,
        *,
        tokens: bool = True,
    ) -> None:
        """With `tokens`, the turns stream tokens as the model writes them, otherwise whole messages."""
        self.client = client
        self._tokens = tokens
        self.agent_id: str = agent["id"]
        self.agent_name: str = agent["name"]
        self.id = conversation_id
        self._ids = RandomIds()

    @property
    def is_default(self) -> bool:
        return self.id == DEFAULT_CONVERSATION

    def message(self, text: str) -> Turn:
        """The turn that a message of the user starts. Its id makes it safe to send twice."""
        return self._turn({"role": "user", "content": text, "otid": self._ids.uuid()})

    def answers(self, answers: Sequence[Mapping[str, Any]], *, partial: bool = False) -> Turn:
        """The turn that goes on with the answers to waiting calls."""
        return self._turn({"type": "approval", "approvals": list(answers)} | ({"partial": True} if partial else {}))

    def pending(self) -> dict[str, Any] | None:
        """The calls of this conversation that wait; none where the server cannot list them. Raises Unreachable,
        ErrorResponse."""
        try:
            found = self.client.get(path("agents", self.agent_id, "approvals"))
        except ErrorResponse as refusal:
            if refusal.status == NOT_FOUND:
                return None
            raise
        return next((each for each in found if each["conversation_id"] == self.id), None)

    def history(self, count: int) -> list[dict[str, Any]]:
        """The last messages, the oldest first. Raises Unreachable, ErrorResponse."""
        if not self.is_default:
            return self.client.get(path("conversations", self.id, "messages"), limit=count, order="desc")[::-1]
        messages = path("agents", self.agent_id, "messages")
        # The newest, but oldest first: so does Letta's API list an agent's messages.
        return self.client.get(messages, limit=count, order="desc", conversation_id=DEFAULT_CONVERSATION)[-count:]

    def start_new(self) -> None:
        """Goes on in a new conversation. Raises Unreachable, ErrorResponse."""
        self.id = self.client.post(f"/v1/conversations/?agent_id={self.agent_id}", {})["id"]

    def _turn(self, message: Mapping[str, Any]) -> Turn:
        body = {"messages": [message], "stream_tokens": self._tokens, "background": True}
        if self.is_default:
            return Turn(self.client, path("agents", self.agent_id, "messages", "stream"), body)
        return Turn(self.client, path("conversations", self.id, "messages"), body)
