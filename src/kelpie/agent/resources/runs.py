"""Runs API: records of runs and steps, for clients to read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kelpie.agent.journal.trace_buffer import TraceBuffer
from kelpie.agent.prompt.prompt_inspection import InspectedPrompt, inspect_prompt
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.messages import Message, NewMessage
from kelpie.core.conversations.runs import UNFINISHED, JournalEntry, Run, RunQuery, Step, StepQuery, Trace
from kelpie.core.errors import Conflict, NotFound
from kelpie.core.ids import AgentId, RunId, StepId
from kelpie.core.paging import Page
from kelpie.core.permissions.budgets import Budget, SpentAmount
from kelpie.core.time import Micros
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents
from kelpie.storage.conversations import messages
from kelpie.storage.runs import backlog, journal_keys, runs, steps, tool_calls, traces, unfinished
from kelpie.world.database import Database, Tx

JOURNAL_MAX = 1000  # commits of one run that are shown


@dataclass(frozen=True, slots=True)
class Traced:
    """Request and response of a step's provider, with the records of the step."""

    trace: Trace
    step: Step
    agent: Agent  # as it is now
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class StepPrompt:
    """A step with its stored request, and the parts of that if it is whole."""

    step: Step
    trace: Trace | None
    prompt: InspectedPrompt | None

    @property
    def is_cut_off(self) -> bool:
        return self.trace is not None and self.trace.request_bytes > len(self.trace.request)


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


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run with what is known around it."""

    run: Run
    agent_name: str
    recoveries: int  # number of times it was resumed after a server had stopped
    active_at: Micros  # of its last commit
    journal: tuple[JournalEntry, ...] = ()
    given: tuple[NewMessage, ...] = ()


class Runs:
    """Runs and steps of the caller's organization."""

    def __init__(self, database: Database, unwritten: TraceBuffer | None, caller: Caller = DEFAULT_CALLER) -> None:
        """`unwritten` are the traces that are not stored yet."""
        self._database = database
        self._unwritten = unwritten
        self._organization = caller.organization_id

    async def get(self, run_id: RunId) -> Run:
        """Raises NotFound."""
        return await self._database.read(lambda tx: self._run(tx, run_id))

    def _run(self, tx: Tx, run_id: RunId) -> Run:
        row_ownership.run(tx, self._organization, run_id)
        return runs.get(tx, run_id)

    async def records(self, query: RunQuery) -> list[RunRecord]:
        """Runs with the names of their agents and their last activity."""

        def read(tx: Tx) -> list[RunRecord]:
            found = runs.select_runs(tx, self._organization, query)
            return _records(tx, found)

        return await self._database.read(read)

    async def record(self, run_id: RunId) -> RunRecord:
        """A run with its journal and its input. Raises NotFound."""

        def read(tx: Tx) -> RunRecord:
            run = self._run(tx, run_id)
            commits = journal_keys.entries(tx, run.agent_id, run.id, JOURNAL_MAX)
            given = unfinished.given(tx, run_id).messages
            return replace(_records(tx, [run])[0], journal=tuple(commits), given=given)

        return await self._database.read(read)

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

        unwritten = self._unwritten_of(step_id)

        def read(tx: Tx) -> Traced | None:
            row_ownership.step(tx, self._organization, step_id)
            step, trace = steps.get(tx, step_id), unwritten or traces.find(tx, step_id)
            if trace is None:
                return None
            return Traced(trace, step, agents.get(tx, step.agent_id), tuple(messages.of_step(tx, step_id)))

        return await self._database.read(read)

    async def prompt(self, step_id: StepId) -> StepPrompt:
        """The prompt of a step, as far as it is stored. Raises NotFound."""

        unwritten = self._unwritten_of(step_id)

        def read(tx: Tx) -> StepPrompt:
            row_ownership.step(tx, self._organization, step_id)
            trace = unwritten or traces.find(tx, step_id)
            whole = trace is not None and trace.request_bytes <= len(trace.request)
            prompt = inspect_prompt(trace.request) if trace is not None and whole else None
            return StepPrompt(steps.get(tx, step_id), trace, prompt)

        return await self._database.read(read)

    def _unwritten_of(self, step_id: StepId) -> Trace | None:
        return None if self._unwritten is None else self._unwritten.find(step_id)

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
            return messages.page_of_run(tx, run_id, page)

        return await self._database.read(read)

    async def step_messages(self, step_id: StepId, page: Page) -> list[Message]:
        """The messages of a step in the order asked for; none for a step that does not exist."""

        def read(tx: Tx) -> list[Message]:
            try:
                row_ownership.step(tx, self._organization, step_id)
            except NotFound:
                return []
            return messages.page_of_step(tx, step_id, page)

        return await self._database.read(read)

    async def delete(self, run_id: RunId) -> None:
        """Deletes the record of an ended run. Raises NotFound, or Conflict while it is under way."""

        def write(tx: Tx) -> None:
            if self._run(tx, run_id).status in UNFINISHED:
                raise Conflict(f"{run_id} is still running. Wait until it ends, or cancel it.")
            runs.remove(tx, run_id)

        await self._database.transact(write)

    async def backlog(self, *, everywhere: bool = False) -> list[backlog.Backlog]:
        """Runs that wait or are under way, by state; `everywhere`: of all organizations."""
        organization = None if everywhere else self._organization
        return await self._database.read(lambda tx: backlog.backlog(tx, organization))

    async def page(self, query: RunQuery) -> list[Run]:
        return await self._database.read(lambda tx: runs.select_runs(tx, self._organization, query))


def _records(tx: Tx, found: Sequence[Run]) -> list[RunRecord]:
    names = agents.names(tx, sorted({run.agent_id for run in found}))
    started, active = runs.taken_up(tx, [run.id for run in found]), journal_keys.latest(tx, found)
    return [
        RunRecord(
            run,
            names.get(run.agent_id, ""),
            max(started.get(run.id, 0) - run.background, 0),
            run.completed_at or active.get(run.id, run.created_at),
        )
        for run in found
    ]
