"""The chain behind a message between agents: the agents whose turns wait for its answer, and the number of hops.

It travels with every such message and is stored with the run that answers it. The server checks it before an agent
sends the next message: no agent may ask one that waits for the answer, and no two agents can keep each other busy for
ever.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kelpie.core.ids import AgentId

HOPS_MAX = 16  # messages from agent to agent that follow from one message of a person


@dataclass(frozen=True, slots=True)
class AgentChain:
    """Origin of a turn's message: the waiting agents and the number of hops."""

    waiting: tuple[AgentId, ...] = ()  # agents whose turns wait for this one, the first that asked first
    hops: int = 0

    def asked_by(self, agent_id: AgentId) -> "AgentChain":
        """The chain of a question that this agent asks and waits for."""
        return AgentChain((*self.waiting, agent_id), self.hops + 1)

    def without_waiting(self) -> "AgentChain":
        """The chain of a message whose sender does not wait for an answer."""
        return AgentChain((), self.hops + 1)

    @property
    def is_spent(self) -> bool:
        """True if the limit of hops is reached, so that a person must send the next message."""
        return self.hops >= HOPS_MAX

    def to_json(self) -> dict[str, Any]:
        return {"waiting": list(self.waiting), "hops": self.hops}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "AgentChain":
        return cls(tuple(AgentId(one) for one in data["waiting"]), data["hops"])


UNCHAINED = AgentChain()
