"""Calls to the agents in memory: what they hold has changed, or a run was stored for them.

Code that commits such a change calls this before it answers its own client, so that no model call that begins after the
answer uses older data. Must never read or write the database.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from kelpie.core.conversations.runs import Run
from kelpie.core.ids import AgentId
from kelpie.storage.runs.unfinished import StoredRun


class LoadedAgent(Protocol):
    """An agent in memory, as far as it is called from here."""

    def reload(self) -> None: ...

    def forget_context(self) -> None: ...

    def invalidate_spending(self) -> None: ...


class LoadedAgents(Protocol):
    """The dispatcher, as far as it is called from here."""

    def notify(self, key: str, note: Callable[[LoadedAgent], None]) -> bool: ...

    def notify_all(self, note: Callable[[LoadedAgent], None]) -> None: ...


class StoredRunQueue(Protocol):
    """The run queue, as far as it is called from here."""

    def submit(self, waiting: StoredRun) -> None: ...


class LiveAgents:
    """All agents in memory, of every organization. An agent that is not in memory is not loaded for it."""

    def __init__(self, loaded: LoadedAgents, run_queue: StoredRunQueue) -> None:
        self._loaded = loaded
        self._run_queue = run_queue

    def reload(self, agent_ids: Iterable[AgentId]) -> None:
        """Settings, tools or blocks of these agents have changed; they read them again before their next model call."""
        for agent_id in agent_ids:
            self._loaded.notify(agent_id, _reload)

    def reload_all(self) -> None:
        """Reloads every agent: something that all depend on has changed, such as the policy of an organization."""
        self._loaded.notify_all(_reload)

    def forget_context(self, agent_ids: Iterable[AgentId]) -> None:
        """Makes these agents reload everything: the messages that their models see have changed."""
        for agent_id in agent_ids:
            self._loaded.notify(agent_id, _forget_context)

    def forget_all_contexts(self) -> None:
        """Any history may have changed."""
        self._loaded.notify_all(_forget_context)

    def invalidate_spending(self, agent_id: AgentId) -> None:
        """Something was spent for the agent that was no step of its turns; what it has spent is counted again."""
        self._loaded.notify(agent_id, _invalidate_spending)

    def enqueue(self, runs: Iterable[Run]) -> None:
        """Hands runs that are stored to their agents, which are loaded for it."""
        for run in runs:
            self._run_queue.submit(StoredRun(run.id, run.agent_id, run.conversation_id))


def _reload(agent: LoadedAgent) -> None:
    agent.reload()


def _forget_context(agent: LoadedAgent) -> None:
    agent.forget_context()


def _invalidate_spending(agent: LoadedAgent) -> None:
    agent.invalidate_spending()
