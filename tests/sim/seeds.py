"""Seeds that once broke an invariant. Each is a test for ever; what it found is told beside it.

`tests/sim/mutations.py` puts many of these bugs back and sees that they are found again.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Found:
    scenario: str
    seed: int
    bug: str


FOUND = (
    Found(
        "conversations-under-storage-faults",
        1,
        "a run whose commit had failed stayed 'running' until its agent was used again: recovery ran at the start only",
    ),
    Found(
        "conversations-under-storage-faults",
        6,
        "a commit of unknown outcome that could not be looked up was told as a plain failure, which an SDK repeats",
    ),
    Found(
        "crash-at-every-journal-point",
        15,
        "after a crash between reply and results the prompt held each result twice: healed, and committed",
    ),
    Found(
        "shared-block-edits",
        4,
        "after a commit whose answer was lost, the other agents that share the edited block were not told",
    ),
    Found(
        "shared-block-edits",
        19,
        "an edit sent again after its answer was lost changed nothing any more, so the agents never heard of it",
    ),
    Found(
        "edits-in-doubt",
        14,
        "a block deleted by a commit whose answer was lost: the repeat got 404, and live agents went on showing it",
    ),
    Found(
        "turns-cut-off",
        0,
        "a turn cut off in its commit: who shared its memory was not told, and its sender was told to send it again",
    ),
    Found(
        "delete-and-reset",
        0,
        "a history emptied in the middle of a turn: the model was asked without the question, results had no call",
    ),
    Found(
        "delete-and-reset",
        126,
        "a last step of unknown outcome, and the history emptied before it was looked up: the answer was told empty",
    ),
    Found(
        "lanes-of-one-agent",
        19,
        "a conversation deleted while a tool ran outside: the call stayed in the history without a result",
    ),
    Found(
        "two-servers-one-disk",
        6,
        "memory and history were read one after the other, and another server committed in between: a prompt told of "
        "an edit that the block beside it did not have",
    ),
    Found(
        "two-servers-one-disk",
        34,
        "memory and history were read one after the other, and another server committed in between: a prompt told of "
        "an edit that the block beside it did not have",
    ),
    Found(
        "cancel-races-everything",
        2,
        "a cancel with nothing under way told the newest run as over, which had begun a moment ago",
    ),
    Found(
        "calls-that-wait",
        14,
        "calls answered in part and then cancelled: the acknowledged denial or client's result was dropped",
    ),
    Found(
        "calls-that-wait",
        78,
        "a run cancelled while its agent was closing it: the message after it was told that no such run exists",
    ),
    Found(
        "waits-that-expire",
        4,
        "a denial that was cancelled: the wait was ended on the disk only, and the live agent refused messages for it",
    ),
    Found(
        "cancel-races-everything",
        359,
        "a cancel and a recovery in one commit group, whose commit failed: the recovery took the run for ended, which "
        "it then was not, and left it running for ever",
    ),
    Found(
        "lanes-of-one-agent",
        792,
        "the checker's: an edit that its editor had given up reached the server after a later one",
    ),
    Found(
        "storage-corruption",
        11,
        "a turn was cut off after its call had been answered and the answer rotted: the call was run a second time",
    ),
    Found(
        "code-that-calls-back",
        3,
        "a tool that code had called was run, and its record failed: code was told to call it again",
    ),
    Found(
        "code-that-calls-back",
        16,
        "code was killed in the middle of an edit: the edit was written after its call had its result",
    ),
    Found(
        "code-that-calls-back",
        17,
        "code was killed while a tool ran for it: that tool's own code went on, with nobody to end it",
    ),
    Found(
        "code-that-calls-back",
        27,
        "code that waited for other code held every place of the sandbox, and all of it waited for its time-out",
    ),
    Found(
        "code-that-calls-back",
        60,
        "code that waited for agents held every place of the sandbox, and what these agents did needed one",
    ),
    Found(
        "storage-corruption",
        8,
        "a result that stood for a damaged one was damaged itself: the next one had its id, and the agent was bricked",
    ),
    Found(
        "limits-and-kept-results",
        151,
        "the scenario's own: a call by hand that a power cut took away had its place when somebody else was refused",
    ),
    Found(
        "cancel-races-everything",
        16,
        "a run cancelled while its turn was about to be resumed: the model was asked for it after the cancel was told",
    ),
    Found(
        "cancel-races-everything",
        10,
        "a run cancelled while its turn was about to be resumed: the model was asked for it after the cancel was told",
    ),
    Found(
        "background-runs-and-readers",
        1,
        "the same ids in two conversations: a message that came again was not known, and was said twice",
    ),
    Found(
        "waits-that-expire",
        843367,
        "a run that was cancelled while its lane resolved its input got another input after its end",
    ),
    Found("stop-start-restart", 536172, "starting an agent that was not stopped was not told to the live agent"),
    Found(
        "long-changes-of-memory",
        410711,
        "the scenario's own: clients took all places of a quota before the agents of the scenario were made",
    ),
    Found(
        "tools-made-anew",
        550778,
        "the scenario's own: a cell that reached its time-out after its code had finished was taken for a lost call",
    ),
)
