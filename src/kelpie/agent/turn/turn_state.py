"""State of a turn: its input, its rows, its usage and its position in the journal.

Only this module changes the position: code that commits something reports it here. It reads and writes nothing else.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kelpie.agent.events.turn_sink import TurnSink
from kelpie.agent.journal.commits import JournalPosition
from kelpie.agent.live.live_agent import LiveAgent, LiveConversation
from kelpie.agent.turn.approval_answers import TurnStart
from kelpie.agent.turn.dependencies import TurnDependencies
from kelpie.core.conversations.approvals import PendingCalls
from kelpie.core.conversations.messages import Message, Usage
from kelpie.core.conversations.runs import Run, RunStatus
from kelpie.core.permissions.budgets import BUDGET_KEY
from kelpie.sandbox.port import UsageMeter


class TurnState:
    """One turn of one conversation, as far as it has come."""

    __slots__ = (
        "_position",
        "context_tokens",
        "conversation",
        "dependencies",
        "input",
        "live",
        "meters",
        "new_rows",
        "rows",
        "sink",
        "step_usage",
        "waited",
    )

    def __init__(
        self,
        dependencies: TurnDependencies,
        live: LiveAgent,
        conversation: LiveConversation,
        position: JournalPosition,
        start: TurnStart,
        sink: TurnSink,
    ) -> None:
        self.dependencies = dependencies
        self.live = live
        self.conversation = conversation
        self.sink = sink
        self.input = start.input
        self._position = position
        self.rows = list(start.rows)  # of the turn in the history, which the tool rules go by
        self.new_rows: tuple[Message, ...] = ()  # the input, until the first step takes it into the history
        self.waited: PendingCalls | None = start.waited  # the calls that wait for the answers of this turn
        self.context_tokens: int | None = None
        self.step_usage = Usage()  # of the latest step
        self.meters: Mapping[str, UsageMeter] = {}  # of the calls that ran last, by their ids

    @property
    def position(self) -> JournalPosition:
        return self._position

    @property
    def run(self) -> Run:
        return self._position.run

    # --- commits: each moves the position by one -------------------------------------------------------------------

    def opened(self) -> None:
        """The commit that opens the turn is done."""
        run = self.run
        runs = run if run.status is RunStatus.running else replace(run, status=RunStatus.running)
        self._position = self._position.after(runs)

    def committed(self, run: Run, rows: tuple[Message, ...]) -> None:
        """A commit of a step is done."""
        self._position = self._position.after(run)
        self.new_rows = ()
        self.rows += rows

    def compacted(self) -> None:
        """A commit that compacted the context is done."""
        self._position = self._position.after(self.run)

    def ended(self, run: Run) -> None:
        """The commit that closes the turn is done."""
        self._position = self._position.after(run)

    # --- changes of the run, which the next commit stores ----------------------------------------------------------

    def counted(self, usage: Usage, first_ns: int) -> None:
        """A step got its reply."""
        run = self.run
        ttft = run.ttft_ns if run.ttft_ns is not None else first_ns
        self._change(replace(run, usage=run.usage + usage, step_count=run.step_count + 1, ttft_ns=ttft))
        self.step_usage = usage

    def charged(self, usage: Usage) -> None:
        """A reply was dropped; its cost was not."""
        self._change(replace(self.run, usage=self.run.usage + usage))

    def failed(self, error: Mapping[str, Any]) -> None:
        """The model gave no usable reply."""
        self._change(replace(self.run, metadata={**self.run.metadata, "error": error}))

    def out_of_budget(self, report: Mapping[str, Any], detail: str) -> None:
        """Nothing is left of a budget or limit."""
        metadata = {**self.run.metadata, BUDGET_KEY: report}
        self._change(replace(self.run, metadata=metadata, stop_detail=detail))

    def _change(self, run: Run) -> None:
        self._position = self._position.with_run(run)
