"""Codes of agents, their turns, runs and conversations."""

from kelpie.core.codes.code import Code

CODES = (
    Code(
        "actor_failed",
        "A bug ended the task that loads or unloads an agent. The jobs that waited for the agent failed.",
        "Report it with the traceback.",
    ),
    Code(
        "actor_unload_cancelled",
        "The server was stopped while it unloaded an agent.",
    ),
    Code(
        "actor_unload_failed",
        "An agent could not be unloaded cleanly. It is loaded anew when it is next used.",
        "Report it with the traceback.",
    ),
    Code(
        "actor_update_failed",
        "A change arrived while an agent was loading and could not be applied. The agent is loaded again.",
        "Report it with the traceback.",
    ),
    Code(
        "agent_failed",
        "An agent could not be loaded, or failed while it worked. Requests for it fail until the next load succeeds.",
        "Follow `reason`.",
    ),
    Code(
        "agent_not_loaded",
        "The agent could not be loaded. `detail` has the reason.",
        "Follow `detail`. The server tries again after `Retry-After`.",
    ),
    Code(
        "agent_recovery_failed",
        "The interrupted turns of one agent could not be resumed. The server tries again.",
        "Look at `error`; often the disk.",
    ),
    Code(
        "agent_state_changed",
        "An agent was loaded, unloaded, stopped or started.",
    ),
    Code(
        "agent_stopped",
        "The operator stopped the agent.",
        "Start it with `kelpie agents start`. See [lifecycle](lifecycle.md).",
    ),
    Code(
        "approval_expired",
        "A tool call waited longer for approval than `KELPIE_APPROVAL_SECONDS` allows and was denied.",
    ),
    Code(
        "callback_failed",
        "The URL of a run's callback did not accept it. `again` tells whether the server tries again.",
        "Check the URL of the callback.",
    ),
    Code(
        "callback_lookup_failed",
        "The callbacks that are due could not be read, or the attempt could not be recorded. The server tries again.",
        "Check the disk.",
    ),
    Code(
        "cancelled_job_abandoned",
        "A cancelled job of an agent did not stop within the time limit. The server goes on without it.",
        "Report it.",
    ),
    Code(
        "compaction_failed",
        "A context could not be compacted after a turn, because of the storage. The next turn tries again.",
        "Check the disk.",
    ),
    Code(
        "compaction_settings_invalid",
        "An agent's stored compaction settings are invalid. The defaults are used.",
        "Correct the `compaction_settings` of the agent.",
    ),
    Code(
        "context_compacted",
        "An agent's context was shortened. The facts say by how much and what it cost.",
    ),
    Code(
        "conversation_busy",
        "The conversation has a running turn. `run_id` names it.",
        "Wait until that run ends, or cancel it.",
    ),
    Code(
        "group_chat_crashed",
        "A bug ended a group chat. Its client got an error.",
        "Report it with the traceback.",
    ),
    Code(
        "history_repaired",
        "The history of a conversation was incomplete and was repaired. `done` lists the repairs.",
    ),
    Code(
        "interrupted_turn_cancelled",
        "A turn that a stop or a crash had interrupted was cancelled, so it is not resumed.",
    ),
    Code(
        "interrupted_turn_closed",
        "A turn that a stop or a crash had interrupted was ended without being resumed. `why` says the reason.",
    ),
    Code(
        "interrupted_turn_crashed",
        "A bug kept an interrupted turn from being resumed. It was closed with an error.",
        "Report it with the traceback.",
    ),
    Code(
        "interrupted_turn_resumed",
        "A turn that a stop or a crash had interrupted goes on.",
    ),
    Code(
        "pending_approval",
        (
            "Tool calls wait for an approval, or for their results from the client. `pending_request_id` names the "
            "message that asks."
        ),
        "Answer them or cancel the run. See [approvals](approvals.md).",
    ),
    Code(
        "recovery_failed",
        "A round of recovery and cleanup failed. The server tries again.",
        "Look at `error`; often the disk.",
    ),
    Code(
        "run_attempt_failed",
        "A background run failed before its end was stored. Recovery tries it again.",
        "Look at `error`; often the disk.",
    ),
    Code(
        "run_deferred",
        "A background run could not be queued now. Recovery tries it again.",
        "If it comes often, the server is overloaded.",
    ),
    Code(
        "state_observer_failed",
        "A bug in an observer of agent states. The agent is not affected.",
        "Report it with the traceback.",
    ),
    Code(
        "stream_events_not_saved",
        "Events of a background stream could not be stored. The server tries again.",
        "Check the disk.",
    ),
    Code(
        "summary_attempt_failed",
        "A model call for a summary failed. The next mode is tried.",
        "If it comes often, check the model.",
    ),
    Code(
        "summary_missing",
        "No summary could be made, so the oldest messages left the context without one. They stay in the history.",
        "Check the agent's model.",
    ),
    Code(
        "summary_model_failed",
        "The model set for summaries failed. The agent's own model is used.",
        "Check the model in the `compaction_settings`.",
    ),
    Code(
        "summary_timeout",
        "Making a summary took too long.",
        "Choose a faster model for summaries.",
    ),
    Code(
        "traces_not_written",
        "Prompts of steps could not be stored for the dashboard. The server tries again; the steps are stored.",
        "Look at `error`; often the disk.",
    ),
    Code(
        "turn_broken",
        "The turn could not be completed.",
        "List the messages of the agent. Send it again if its answer is missing.",
    ),
    Code(
        "turn_crashed",
        "A bug ended a turn. Its client got an error.",
        "Report it with the traceback.",
    ),
    Code(
        "unawaited_job_failed",
        "A job failed after its caller had gone away.",
        "Look at `error`.",
    ),
)
