"""Recovery of a turn that an earlier process left unfinished: it is closed, or kept for its lane to resume.

Only decides; `stored_runs` resumes and closes.
"""

from kelpie.agent.live.live_agent import LiveAgent
from kelpie.agent.turn.stored_runs import StoredRuns
from kelpie.core.conversations.runs import RunStatus
from kelpie.storage.runs.unfinished import UnfinishedRun

CUT_SHORT = {
    "type": "interrupted",
    "message": "The server stopped before the first step of this turn. Nothing was saved. Send the message again.",
}
STOPPED = {"type": "stopped", "message": "The server stopped during this turn, and the agent has been stopped since."}
GAVE_UP = {"type": "gave_up", "message": "The turn was resumed too many times without completing."}
TAKEN_UP_MAX = 20
TOLD_FAILED = {"type": "storage", "message": "The turn could not be saved. The client received an error."}


async def settle(stored_runs: StoredRuns, live: LiveAgent, left: UnfinishedRun) -> None:
    """Closes a turn that must not continue, or keeps it for its lane. Raises StorageError."""
    run = left.run
    if live.agent.stopped:
        await stored_runs.close(left, STOPPED)
    elif run.status is RunStatus.created:
        return  # it has not begun; the run queue hands it to its lane
    elif left.taken_up >= TAKEN_UP_MAX:
        await stored_runs.close(left, GAVE_UP)
    elif left.node == live.claim.node and not run.background:
        await stored_runs.close(left, TOLD_FAILED)
    elif run.step_count == 0 and not run.background and not await _has_begun(stored_runs, left):
        await stored_runs.close(left, CUT_SHORT)
    else:
        stored_runs.keep(left)


async def _has_begun(stored_runs: StoredRuns, left: UnfinishedRun) -> bool:
    """True if a turn without a step has committed answers to waiting calls, from which it can continue."""
    return left.given.request is not None and (await stored_runs.point(left)).position.rests_on_history
