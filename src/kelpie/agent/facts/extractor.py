"""Fact extraction: for agents that have it enabled, a model reads the messages since the last extraction.

It works beside the turns and never in them. The facts, the progress and the cost are one commit, so a crash neither
loses nor doubles any of them. It spends from the agent's budget, and does nothing while the agent is paused.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import cached_property

from kelpie.actors.periodic import PeriodicWorker
from kelpie.agent.facts.model_prompt import is_spoken
from kelpie.agent.live.live_agents import LiveAgents
from kelpie.agent.live.pauses import Pauses
from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.messages import Message
from kelpie.core.errors import KelpieError, ModelError, ModelFault, NotFound
from kelpie.core.memory.facts import FACTS_MAX, FactState
from kelpie.core.permissions.policies import NO_POLICY, Policy, warrant
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.llm.routing.models import Models
from kelpie.memory.embeddings import Embeddings
from kelpie.observe import logs
from kelpie.storage.agents import agents, policies
from kelpie.storage.conversations import fact_progress
from kelpie.storage.memory import facts
from kelpie.storage.runs import steps
from kelpie.world.database import Tx
from kelpie.world.lazy_imports import lazily
from kelpie.world.world import World

with lazily:
    from kelpie.agent.facts import fact_commit as _fact_commit
    from kelpie.agent.facts import model_answer as _model_answer
    from kelpie.agent.facts import model_question as _model_question

LOOK_EVERY_S = 30.0  # when no turn has ended and woken the worker
AT_ONCE = 4
ROWS_MAX = 100  # messages that are looked at in one go
ROWS_MIN = 4
CHARS_MAX = 24_000
RETRY_S = 10.0  # after the first failure, then twice as long each time
RETRY_S_MAX = 600.0
REFUSED_MAX = 8  # times that a model refuses the same messages before they are left out: by then they are few
RESTING_S = 60.0  # until it is asked again whether an agent may work
ERROR_CHARS_MAX = 300

_REFUSED = (ModelFault.bad_request, ModelFault.context_overflow)

_log = logs.get("facts")


@dataclass(frozen=True, slots=True)
class _Piece:
    """Messages of an agent to extract facts from; `hindered` is the reason why it cannot be done now."""

    agent: Agent
    said: tuple[Message, ...]
    hindered: str | None = None


class FactExtractor:
    """The background work on facts of one server."""

    def __init__(
        self,
        world: World,
        models: Models,
        embeddings: Embeddings,
        pauses: Pauses,
        live_agents: LiveAgents,
        policy: Policy = NO_POLICY,
    ) -> None:
        self._world = world
        self._models = models
        self._pauses = pauses
        self._embeddings = embeddings
        self._live_agents = live_agents
        self._policy = policy
        self._worker = PeriodicWorker(self._round, failed=_report, retry_s=LOOK_EVERY_S)

    @cached_property
    def _fact_commit(self) -> _fact_commit.FactCommit:
        return _fact_commit.FactCommit(self._world, self._embeddings)

    def wake(self) -> None:
        """Looks for agents that are due now: a turn of an agent with facts has ended."""
        self._worker.wake()

    async def run(self) -> None:
        """Never returns."""
        await self._worker.run()

    async def _round(self) -> float:
        return 0.0 if await self.work() else LOOK_EVERY_S

    async def work(self) -> bool:
        """Extracts from some messages of each of a few agents; False when no agent is due. Raises StorageError."""
        now = self._world.clock.now()
        due = await self._world.database.read(lambda tx: fact_progress.due(tx, now, AT_ONCE))
        done = await asyncio.gather(*(self._look(state) for state in due), return_exceptions=True)
        for failure in filter(None, done):
            raise failure
        return bool(due)

    async def _look(self, state: FactState) -> None:
        now = self._world.clock.now()
        piece = await self._world.database.read(lambda tx: self._piece(tx, state, now))
        if piece is None:
            return
        resting = None if self._pauses.until(piece.agent) is None else "The agent is paused."
        if (hindered := resting or piece.hindered or await self._unpriced(piece.agent)) is not None:
            await self._put_off(state, RESTING_S, hindered)
            return
        if not piece.said:
            await self._put_off(state, RETRY_S, None)
            return
        heard = tuple(message for message in piece.said if is_spoken(message))
        after = replace(state, through=piece.said[-1].seq, failures=0, not_before=0, last_error=None)
        if not heard:
            await self._world.database.transact(lambda tx: fact_progress.change(tx, state, after))
            return
        await self._read(state, after, piece.agent, heard)

    async def _read(self, state: FactState, after: FactState, agent: Agent, heard: tuple[Message, ...]) -> None:
        question = _model_question.Question(self._world, self._models.of(agent.organization_id), agent)
        try:
            reading = await question.ask(await self._fact_commit.before(agent, heard))
        except ModelError as error:
            if error.kind in _REFUSED and state.failures >= REFUSED_MAX:
                after = self._left_out(state, after, error)
                await self._world.database.transact(lambda tx: fact_progress.change(tx, state, after))
                return
            wait_s = min(RETRY_S * 2.0**state.failures, RETRY_S_MAX)
            _log.warning(
                "fact_extraction_deferred",
                "Fact extraction deferred: the model call failed",
                agent_id=agent.id,
                error=str(error),
                again_s=wait_s,
            )
            await self._put_off(state, wait_s, str(error))
            return
        except _model_question.Unusable as error:
            after = self._left_out(state, after, error)
            reading = _model_question.Reading(_model_answer.ExtractedFacts(), (), (), error.calls)
        after = replace(after, extractions=state.extractions + 1, last_at=self._world.clock.now())
        await self._fact_commit.commit(agent, state, after, reading)
        self._live_agents.invalidate_spending(agent.id)

    def _left_out(self, state: FactState, after: FactState, error: Exception) -> FactState:
        _log.warning(
            "fact_extraction_skipped",
            "Part of a conversation skipped by fact extraction",
            agent_id=state.agent_id,
            error=str(error),
        )
        return replace(after, skipped=state.skipped + 1, last_error=str(error)[:ERROR_CHARS_MAX])

    def _piece(self, tx: Tx, state: FactState, now: Micros) -> _Piece | None:
        """None when the agent is gone or has it switched off."""
        try:
            agent = agents.get(tx, state.agent_id)
        except NotFound:
            return None
        if agent.facts is None or not agent.facts.enabled:
            return None
        if (hindered := self._hindered(tx, agent, now)) is not None:
            return _Piece(agent, (), hindered)
        # A model that failed was perhaps given too much.
        rows = max(ROWS_MAX >> min(state.failures, 8), ROWS_MIN)
        return _Piece(agent, _within(fact_progress.messages_since(tx, state, rows)))

    def _hindered(self, tx: Tx, agent: Agent, now: Micros) -> str | None:
        if agent.stopped:
            return "The agent is stopped."
        if facts.count(tx, agent.id) >= FACTS_MAX:
            return f"The agent already has {FACTS_MAX} facts, which is the limit. Delete some."
        budget, policy = agent.budget, policies.policy_of(tx, agent.organization_id)
        hourly = warrant(self._policy, policy, agent.permits, agent.quota).quota.budget
        if hourly is not None and steps.spent_by(tx, agent.id, hourly.begins(now)).exceeds(hourly):
            return "The agent has used up its tokens for this hour."
        if budget is None:
            return None
        spent = steps.spent_by(tx, agent.id, budget.begins(now))
        return "The agent's budget is used up." if spent.exceeds(budget) else None

    async def _unpriced(self, agent: Agent) -> str | None:
        """Why the agent's budget in money cannot be enforced; None when it can, or has none. Raises StorageError."""
        if agent.budget is None or agent.budget.micros is None:
            return None
        handle = (agent.facts.model if agent.facts else None) or agent.model.handle
        models = self._models.of(agent.organization_id)
        await models.load(handle)
        if models.prices.of(handle) is not None:
            return None
        return f"The price of {handle} is unknown, so the agent's budget cannot be enforced."

    async def _put_off(self, state: FactState, seconds: float, error: str | None) -> None:
        until: Micros = self._world.clock.now() + int(seconds * MICROS_PER_SECOND)
        failed = error is not None and seconds != RESTING_S
        later = replace(
            state,
            not_before=until,
            failures=state.failures + failed,
            last_error=state.last_error if error is None else error[:ERROR_CHARS_MAX],
        )
        await self._world.database.transact(lambda tx: fact_progress.change(tx, state, later))


def _report(error: KelpieError) -> None:
    _log.warning("fact_extraction_failed", "Fact extraction failed; trying again later", error=str(error))


def _within(said: list[Message]) -> tuple[Message, ...]:
    """The first messages, as many as a model gets in one call, and at least one."""
    kept, chars = list[Message](), 0
    for message in said:
        chars += len(message.said) if is_spoken(message) else 0
        if kept and chars > CHARS_MAX:
            break
        kept.append(message)
    return tuple(kept)
