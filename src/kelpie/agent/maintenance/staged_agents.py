"""Staged agents of this server: those that an import is writing now. The cleanup leaves them alone."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from kelpie.core.ids import AgentId


class StagedAgents:
    """The agents of all imports that are under way."""

    def __init__(self) -> None:
        self._staged: set[AgentId] = set()

    @property
    def ids(self) -> tuple[AgentId, ...]:
        return tuple(sorted(self._staged))

    @contextmanager
    def held(self, agent_ids: Sequence[AgentId]) -> Generator[None]:
        """Keeps these agents from the cleanup; after that they are published, or the cleanup deletes them."""
        self._staged.update(agent_ids)
        try:
            yield
        finally:
            self._staged.difference_update(agent_ids)
