"""Messages between agents: the text that the receiver reads, and the checks before one is sent.

The receiver learns its sender and what becomes of its answer. An agent that waits for the answer is never asked, and
one message of a user leads to a bounded number of messages between agents.
"""

from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.agent_chain import HOPS_MAX, AgentChain
from kelpie.core.conversations.messages import NewMessage, Role, Text
from kelpie.core.errors import InvalidId, ToolError
from kelpie.core.ids import AgentId

CHARS_MAX = 100_000  # of one message; a longer one belongs into a block or an archive that both see


def question(sender: Agent, words: str) -> NewMessage:
    """A message whose sender waits for the answer."""
    return _letter(sender, "It is waiting for your reply; your next message is returned to it.", words)


def notice(sender: Agent, words: str) -> NewMessage:
    """A message whose sender does not wait."""
    return _letter(sender, "It is not waiting for a reply. To answer, send it a message with a tool.", words)


def _letter(sender: Agent, remark: str, words: str) -> NewMessage:
    text = f"[Message from the agent '{sender.name}' ({sender.id}). {remark}]\n{words}"
    return NewMessage(Role.user, (Text(text),), name=sender.name, sender_id=sender.id)


def address(text: str) -> AgentId:
    """The receiving agent. Raises ToolError for an invalid id of an agent."""
    try:
        return AgentId.parse(text.strip())
    except InvalidId as error:
        raise ToolError(f"Nothing was sent: 'other_agent_id' must be the id of an agent: {error.remedy}.") from error


def words(text: str) -> str:
    """The text of the message. Raises ToolError when it is empty or too long."""
    if not text.strip():
        raise ToolError("Nothing was sent: 'message' is empty.")
    if len(text) > CHARS_MAX:
        raise ToolError(f"Nothing was sent: 'message' has {len(text)} characters, and the limit is {CHARS_MAX}.")
    return text


def refuse_endless(chain: AgentChain) -> None:
    """Raises ToolError when one message of a user has led to too many between agents."""
    if chain.is_spent:
        raise ToolError(
            f"Nothing was sent: agents have already exchanged {HOPS_MAX} messages since the last message from a "
            "person, which is the limit. Finish your turn with the information you have."
        )


def refuse_ring(chain: AgentChain, sender: AgentId, other: AgentId) -> None:
    """Raises ToolError when the receiver waits for this very answer."""
    if other == sender:
        raise ToolError("Nothing was sent: this is your own id.")
    if other in chain.waiting:
        raise ToolError(
            f"Nothing was sent: {other} is waiting for your answer, so it cannot reply to a question. "
            "Answer with what you have, and say what you still need to know."
        )
