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
        "mcp-clients-and-power-cuts",
        993485,
        "an MCP client was told that its message had failed, because the disk could not say that its turn went on",
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
        539258,
        "a lane read the usage while another lane's commit was on its way back, and the commit was counted twice",
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
    Found(
        "api-model-of-turns",
        700001,
        "a history that was emptied: the other conversations of the agent lost their instructions, and "
        "compiling them again overwrote the first message of a user",
    ),
    Found(
        "one-organization-floods",
        533838,
        "the scenario's own: a job whose client has left goes on to its end, which was taken for a lost slot",
    ),
    Found(
        "api-model-of-memory",
        700007,
        "the model's own: an entry that ended between two pages of a list was missed in one direction",
    ),
    Found(
        "api-model-of-access",
        700025,
        "the model's own: a call that was denied at its end between two requests was listed in one of them",
    ),
    Found(
        "api-model-of-limits",
        700005,
        "the model's own: the status of an agent that could not be loaded is of the process and ends with it",
    ),
    Found(
        "api-model-of-access",
        800017,
        "answers to waiting calls were stored and a call had run when the disk failed: the client was told to send "
        "them again",
    ),
    Found(
        "api-model-of-memory",
        1000005,
        "the model's own: the archive that an agent got after its checkpoint was asked for after the restore",
    ),
    Found(
        "delete-and-reset",
        900004,
        "the scenario's own: a stream that had begun with a ping told only in its end that the agent is deleted",
    ),
    Found(
        "mcp-servers-that-break",
        0,
        "programs of MCP servers that were being started were not counted: more ran than mcp.processes_max; a server "
        "repeated its token in an error, and the model read it",
    ),
    Found(
        "mcp-servers-that-break",
        3,
        "an MCP server whose connection broke once while it was asked for its version was taken for one of the older "
        "generation for ever, and could not be used again",
    ),
    Found(
        "mcp-servers-that-break",
        48,
        "a call whose stream broke off was made a second time when the stream could not be asked for again",
    ),
    Found(
        "mcp-tools-that-change",
        1,
        "a change of tools was missed for good when the new list could not be read at once, or nobody listened",
    ),
    Found(
        "mcp-tools-that-change",
        1012,
        "a list of tools that was read and could not be stored was not read again, and the change was missed",
    ),
    Found(
        "mcp-tools-that-change",
        45,
        "a change of tools was missed for good when it came before the server's notifications were listened to",
    ),
    Found("mcp-tools-that-change", 5, "of two refreshes at once, the older list of tools was stored last"),
    Found(
        "mcp-tools-that-change",
        8,
        "an MCP server that was deleted while it was being connected to was connected nevertheless, and stayed so",
    ),
    Found(
        "restores-of-memory",
        8,
        "a restore that the disk interrupted changed a shared block, and the live agent that shares it was not told",
    ),
    Found(
        "mcp-tools-that-change",
        404364,
        "an MCP server that crashed and forgot the session counted as connected until the next call",
    ),
    Found(
        "mcp-tools-that-change",
        9,
        "a change of tools was missed for good when the first use of a new connection was a refresh that failed",
    ),
    Found(
        "mcp-tokens-that-end",
        0,
        "a renewal of a token ended with the call that waited for it: the new refresh token was lost",
    ),
    Found("mcp-tokens-that-end", 1, "a renewed token that could not be stored was lost"),
    Found(
        "file-uploads", 17, "agents were told of a new file only after the pause that follows a piece of a long write"
    ),
    Found(
        "lanes-of-one-agent",
        803677,
        "thoughts in tool calls were switched during a step: the history in memory kept the form of before, in which "
        "the model was then shown it",
    ),
    Found("mcp-tokens-that-end", 7, "a failing database broke off the events of a connection to an MCP server"),
    Found("projects", 3, "a live agent kept a home project that was deleted"),
    Found("projects", 791165, "the scenario insisted on a name whose first answer was lost"),
    Found("schedules-and-webhooks", 38, "the scenario counted a run that had just been fired as one that does not end"),
    Found("calls-that-wait", 49, "the scenario took a cancelled request for one that had taken answers"),
    Found("api-model-of-access", 131, "the scenario ended while an approval expired, which begins a turn"),
    Found("small-context-windows", 144637, "the check took the summary of a run for a message that it had saved"),
    Found("lanes-of-one-agent", 4, "a call that ended just before its turn was cancelled was recorded as interrupted"),
    Found(
        "api-model-of-records",
        35,
        "a provider was stored and its client was told that it was not: the time of its list of models could not be",
    ),
    Found(
        "api-model-of-records", 2, "a tool that was registered again lost its metadata and no longer needed approval"
    ),
    Found(
        "embedding-faults",
        2000014,
        "a passage was stored and its client was told that it was not: providers were unread",
    ),
    Found("vector-search-fails", 789264, "the check asked whether passages lacked a vector after they had got it"),
    Found(
        "api-model-of-turns",
        2000014,
        "the check took a compaction that a client asked for as the last turn of its conversation",
    ),
    Found("api-model-of-memory", 2000005, "the check took a text that is stored as JSON for another one"),
    Found("facts-under-faults", 2000024, "the lists were compared while facts were still extracted, each in a run"),
    Found(
        "mcp-programs-of-two-organizations",
        119342,
        "an organization that had opened every MCP program while it was alone ran calls on all of them: the next one "
        "had none",
    ),
    Found("schedules-and-webhooks", 2000024, "the scenario forgot the name that a schedule was created with"),
    Found("projects", 786128, "the check took a home that was set after its project was deleted for one that was left"),
    Found("web-searches-at-once", 57087, "the check gave a request less time to arrive than late callbacks take"),
    Found("mcp-servers-that-break", 333334, "the check gave a program less time to end than late callbacks take"),
    Found("file-uploads", 319685, "the scenario insisted on making a folder whose first answer was lost"),
    Found(
        "cancel-races-everything",
        70013,
        "the repair of a history took a row with results of two calls for the result of one, and put the row into the "
        "context a second time: later messages were refused because their place was taken",
    ),
    Found(
        "api-model-of-limits",
        20,
        "the check took a journal that the cleanup at the start had taken, a day after its run, for one that was lost",
    ),
    Found(
        "restores-of-memory",
        900000,
        "a restore in pieces told other agents of a shared block that it had changed when all pieces were written",
    ),
    Found(
        "api-model-of-access",
        147134,
        "the model's own: an approved call was expected not to run when the other call of its request expired",
    ),
)
