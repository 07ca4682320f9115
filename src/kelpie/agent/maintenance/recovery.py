"""Recovery of the runs that no turn plays: after a crash, and after a disk that failed for a while.

Only finds them and hands them to their agents; what becomes of each is decided where its agent is loaded
(`turn.recovery`). Works for no caller in particular, so it sees the agents of every organization.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from kelpie.accounts.authentication import Authenticator
from kelpie.actors.dispatcher import Dispatcher
from kelpie.agent.inbox.run_queue import RunQueue
from kelpie.agent.live.live_agents import LiveAgents
from kelpie.agent.turn.send_request import DEFAULT_LANE
from kelpie.core.errors import AgentStopped, KelpieError
from kelpie.core.ids import AgentId
from kelpie.observe import logs
from kelpie.storage.runs import unfinished
from kelpie.world.database import Database

if TYPE_CHECKING:
    from kelpie.agent.turn.activation import Activation

AGENTS_AT_ONCE = 8

_log = logs.get("app")


class Recovery:
    """Finds unfinished runs and lets their agents resume or close them."""

    def __init__(
        self,
        database: Database,
        dispatcher: Dispatcher[Activation],
        run_queue: RunQueue,
        live_agents: LiveAgents,
        authenticator: Authenticator,
    ) -> None:
        self._database = database
        self._dispatcher = dispatcher
        self._run_queue = run_queue
        self._live_agents = live_agents
        self._authenticator = authenticator

    async def recover_all(self) -> None:
        """Resumes or closes every run that no turn plays, a few agents at a time. Raises StorageError."""
        for waiting in await self._database.read(unfinished.in_background):
            self._run_queue.submit(waiting)
        agent_ids = await self._database.read(unfinished.agents_with_unfinished)
        slots = asyncio.Semaphore(AGENTS_AT_ONCE)
        await asyncio.gather(*(self._try_agent(agent_id, slots) for agent_id in agent_ids))

    async def recover_agent(self, agent_id: AgentId) -> None:
        """Resumes the interrupted turns of one agent. Raises what loading or storing raises."""
        live = self._dispatcher.handler(agent_id)
        if live is not None:
            lanes = live.stored_runs.interrupted_lanes
        else:
            lanes = await self._dispatcher.submit(agent_id, DEFAULT_LANE, _interrupted_lanes)
        free = [lane for lane in lanes if not self._dispatcher.kept_by(agent_id, lane)]
        await asyncio.gather(*(self._dispatcher.submit(agent_id, lane, partial(_resume, lane)) for lane in free))

    def reread_everything(self) -> None:
        """Makes the agents in memory reload before they continue: a write with an unknown outcome may have happened.

        This is the one place for all resources. A client that sends such an edit again may get the answer that there is
        nothing to do, and then no agent would learn of the change by name.
        """
        _log.warning("commit_outcome_unknown", "Commit outcome unknown; reloading live agents")
        self._live_agents.forget_all_contexts()
        self._authenticator.forget()

    async def _try_agent(self, agent_id: AgentId, slots: asyncio.Semaphore) -> None:
        async with slots:
            try:
                await self.recover_agent(agent_id)
            except AgentStopped:
                return  # its turns were closed while it was loaded
            except KelpieError as error:
                _log.error(
                    "agent_recovery_failed",
                    "Interrupted turns of an agent could not be resumed; trying again later",
                    agent_id=agent_id,
                    error=str(error),
                )


async def _interrupted_lanes(activation: Activation) -> list[str]:
    return activation.stored_runs.interrupted_lanes


async def _resume(lane: str, activation: Activation) -> None:
    await activation.stored_runs.resume(lane)
