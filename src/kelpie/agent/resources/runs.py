"""Runs API: records of runs and steps, for clients to read."""

from collections.abc import Sequence
from dataclasses import dataclass

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.messages import Message
from kelpie.core.conversations.runs import UNFINISHED, Run, RunQuery, Step, StepQuery, Trace
from kelpie.core.errors import Conflict, NotFound
from kelpie.core.ids import AgentId, RunId, StepId
from kelpie.core.paging import Page
from kelpie.core.permissions.budgets import Budget, SpentAmount
from kelpie.core.time import Micros
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents
from kelpie.storage.conversations import messages
from kelpie.storage.runs import runs, steps, tool_calls, traces
from kelpie.world.database import Database, Tx


@dataclass(frozen=True, slots=True)
class Traced:
    """Request and response of a step's provider, with the records of the step."""

    trace: Trace
    step: Step
    agent: Agent  # as it is now
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Spending:
    """Spending of an agent: in all, and in the current period of its budget if it has one."""

    total: SpentAmount
    budget: Budget | None = None
    of_budget: SpentAmount = SpentAmount()
    frees_at: Micros | None = None

    @property
    def used_up(self) -> bool:
        return self.budget is not None and self.of_budget.exceeds(self.budget)


class Runs:
    """Runs and steps of the caller's organization."""

    def __init__(self, database: Database, caller: Caller = DEFAULT_CALLER) -> None:
        self._database = database
        self._organization = caller.organization_id

    async def get(self, run_id: RunId) -> Run:
        """Raises NotFound."""
        return await self._database.read(lambda tx: self._run(tx, run_id))

    def _run(self, tx: Tx, run_id: RunId) -> Run:
        row_ownership.run(tx, self._organization, run_id)
        return runs.get(tx, run_id)

    async def steps(self, query: StepQuery) -> list[Step]:
        return await self._database.read(lambda tx: steps.select_steps(tx, self._organization, query))

    async def step(self, step_id: StepId) -> Step:
        """Raises NotFound."""

        def read(tx: Tx) -> Step:
            row_ownership.step(tx, self._organization, step_id)
            return steps.get(tx, step_id)

        return await self._database.read(read)

    async def metrics(self, run_id: RunId) -> tuple[Run, list[str]]:
        """The run, and the ids of the tools it called. Raises NotFound."""
        return await self._database.read(lambda tx: (self._run(tx, run_id), tool_calls.tools_of(tx, run_id)))

    async def spending(self, agent_id: AgentId, now: Micros) -> Spending:
        """Spending of an agent by its recorded steps. Raises NotFound."""

        def read(tx: Tx) -> Spending:
            row_ownership.agent(tx, self._organization, agent_id)
            budget, total = agents.get(tx, agent_id).budget, steps.spent_by(tx, agent_id)
            if budget is None:
                return Spending(total)
            return Spending(total, budget, steps.spent_by(tx, agent_id, budget.begins(now)), budget.ends(now))

        return await self._database.read(read)

    async def trace(self, step_id: StepId) -> Traced | None:
        """Request and response of a step, if they are still kept and it called a provider. Raises NotFound."""

        def read(tx: Tx) -> Traced | None:
            row_ownership.step(tx, self._organization, step_id)
            step, trace = steps.get(tx, step_id), traces.find(tx, step_id)
            if trace is None:
                return None
            return Traced(trace, step, agents.get(tx, step.agent_id), tuple(messages.of_step(tx, step_id)))

        return await self._database.read(read)

    async def judge(self, step_id: StepId, feedback: str | None, tags: Sequence[str] | None) -> Step:
        """Sets what a person thinks of a step; None takes the feedback back, but leaves the tags. Raises NotFound."""

        def write(tx: Tx) -> Step:
            row_ownership.step(tx, self._organization, step_id)
            steps.set_feedback(tx, step_id, feedback, tags)
            return steps.get(tx, step_id)

        return await self._database.transact(write)

    async def set_transaction(self, step_id: StepId, transaction_id: str) -> Step:
        """Notes under which id a step was accounted for elsewhere. Raises NotFound."""

        def write(tx: Tx) -> Step:
            row_ownership.step(tx, self._organization, step_id)
            steps.set_transaction(tx, step_id, transaction_id)
            return steps.get(tx, step_id)

        return await self._database.transact(write)

    async def messages(self, run_id: RunId, page: Page) -> list[Message]:
        """The messages of a run in the order asked for. Raises NotFound for an unknown run."""

        def read(tx: Tx) -> list[Message]:
            row_ownership.run(tx, self._organization, run_id)
            return messages.get_within(tx, _slice(messages.ids_of_run(tx, run_id), page), page.bytes_max)

        return await self._database.read(read)

    async def step_messages(self, step_id: StepId, page: Page) -> list[Message]:
        """The messages of a step in the order asked for; none for a step that does not exist."""

        def read(tx: Tx) -> list[Message]:
            try:
                row_ownership.step(tx, self._organization, step_id)
            except NotFound:
                return []
            return messages.get_within(tx, _slice(messages.ids_of_step(tx, step_id), page), page.bytes_max)

        return await self._database.read(read)

    async def delete(self, run_id: RunId) -> None:
        """Deletes the record of an ended run. Raises NotFound, or Conflict while it is under way."""

        def write(tx: Tx) -> None:
            if self._run(tx, run_id).status in UNFINISHED:
                raise Conflict(f"{run_id} is still running. Wait until it ends, or cancel it.")
            runs.remove(tx, run_id)

        await self._database.transact(write)

    async def page(self, query: RunQuery) -> list[Run]:
        return await self._database.read(lambda tx: runs.select_runs(tx, self._organization, query))


def _slice(found: list[str], page: Page) -> list[str]:
    """A page of a short list of ids: the messages of one run are bounded by its steps."""
    ids = found[::-1] if page.descending else found
    start = ids.index(page.after) + 1 if page.after in ids else 0
    stop = ids.index(page.before) if page.before in ids else len(ids)
    window = ids[start:stop]
    return window if page.limit is None else window[: page.limit]
