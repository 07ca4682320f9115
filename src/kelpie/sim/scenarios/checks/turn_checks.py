"""Checks of what the journal of turns has written: that runs, their inputs, their steps and their messages, the calls
and the results tell the same story. Each is made of the rows alone, so it holds whatever the faults were.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from kelpie.agent.maintenance.run_callbacks import WAITS_S
from kelpie.sim.loop.errors import Broken
from kelpie.sim.ports.disk import Disk

# What a model has said, or not: the reason is all that there is to say.
_BY_THE_MODEL = "('no_tool_call', 'invalid_tool_call', 'max_tokens_exceeded')"
_CONTRADICTIONS = {
    "a run took as long as from its beginning to its end": """
        SELECT id, created_at, completed_at, total_duration_ns FROM runs WHERE completed_at IS NOT NULL
        AND total_duration_ns <> 1000 * max(0, completed_at - created_at)""",
    "a completed run counts its steps": """
        SELECT r.id, r.step_count, count(s.id) FROM runs r
        LEFT JOIN steps s ON s.run_id = r.id AND s.status = 'success'
        WHERE r.status = 'completed' AND r.id NOT IN (SELECT turn_id FROM journal WHERE kind = 'compact')
        AND r.id NOT IN (SELECT run_id FROM messages WHERE role = 'summary' AND run_id IS NOT NULL)
        GROUP BY r.id HAVING r.step_count <> count(s.id)""",
    "a run with a step knows when its first word came": """
        SELECT id FROM runs WHERE status = 'completed' AND step_count > 0 AND ttft_ns IS NULL AND owner <> ''""",
    "a reply is of a step of its run": """
        SELECT m.id, m.run_id, s.run_id FROM messages m JOIN steps s ON s.id = m.step_id
        WHERE m.role = 'assistant' AND m.run_id IS NOT NULL AND s.run_id <> m.run_id""",
    "a reply has its step": """
        SELECT m.id, m.step_id FROM messages m JOIN runs r ON r.id = m.run_id
        WHERE m.role IN ('assistant', 'approval') AND m.tool_calls <> '[]'
        AND NOT EXISTS (SELECT 1 FROM steps s WHERE s.id = m.step_id)""",
    "an input is of the first step of its run": """
        SELECT m.id, m.run_id, m.step_id FROM messages m JOIN runs r ON r.id = m.run_id
        WHERE m.role IN ('user', 'system') AND m.otid IS NOT NULL AND (m.step_id IS NULL
            OR EXISTS (SELECT 1 FROM steps s WHERE s.id = m.step_id AND s.run_id <> m.run_id))""",
    "a step knows which model answered, and how long it took": """
        SELECT s.id, s.model_handle, s.model_endpoint, s.llm_ns, s.step_ns, s.context_window_limit FROM steps s
        WHERE s.status = 'success' AND EXISTS (SELECT 1 FROM messages m WHERE m.step_id = s.id
            AND m.role IN ('assistant', 'approval') AND m.run_id = s.run_id)
        AND (s.model_handle <> s.provider_name || '/' || s.model OR s.model_endpoint IS NULL OR s.llm_ns IS NULL
            OR s.step_ns IS NULL OR s.step_ns < s.llm_ns OR s.context_window_limit IS NULL)""",
    "a step has used what its prompt and its reply have": """
        SELECT id, usage FROM steps WHERE json_extract(usage, '$.total_tokens')
        <> json_extract(usage, '$.prompt_tokens') + json_extract(usage, '$.completion_tokens')""",
    "a step that failed says why": """
        SELECT id, stop_reason FROM steps WHERE status = 'failed' AND (coalesce(error, 'null') = 'null'
        OR stop_reason IS NULL)""",
    "a run that failed says why": f"""
        SELECT id, stop_reason, metadata FROM runs WHERE status = 'failed' AND stop_detail IS NULL
        AND stop_reason NOT IN {_BY_THE_MODEL} AND json_extract(metadata, '$.error') IS NULL""",
    "a completed run has no error": """
        SELECT id, metadata FROM runs WHERE status = 'completed' AND json_extract(metadata, '$.error') IS NOT NULL""",
    "a call is recorded with the agent of its run and its step": """
        SELECT t.number, t.agent_id FROM tool_calls t LEFT JOIN runs r ON r.id = t.run_id
        LEFT JOIN steps s ON s.id = t.step_id WHERE t.agent_id <> r.agent_id OR t.organization_id <> r.organization_id
        OR t.agent_id <> s.agent_id OR t.organization_id <> s.organization_id""",
    "a call that was refused says why": """
        SELECT number, name FROM tool_calls WHERE outcome = 'refused' AND reason IS NULL""",
    "a call counts only if it has run": """
        SELECT number, name, outcome FROM tool_calls
        WHERE counted AND outcome NOT IN ('success', 'error', 'interrupted')""",
    "a turn that was closed is over": """
        SELECT j.turn_id, k.kind FROM journal j JOIN journal k ON k.turn_id = j.turn_id AND k.agent_id = j.agent_id
        AND k.step > j.step WHERE j.kind = 'close'""",
    **{
        f"a callback of {table} comes until it is taken or given up": f"""
            SELECT id, callback_due_at, callback_attempts, callback_error FROM {table}
            WHERE callback_url IS NOT NULL AND completed_at IS NOT NULL AND (
            (callback_attempts > 0) <> (callback_sent_at IS NOT NULL)
            OR callback_due_at IS NULL AND callback_attempts = 0
            OR callback_due_at IS NULL AND callback_error IS NOT NULL AND callback_attempts <= {len(WAITS_S)}
            OR callback_due_at IS NOT NULL AND callback_attempts > 0 AND callback_error IS NULL)"""
        for table in ("runs", "jobs")
    },
    "an agent knows how long its last run took": """
        SELECT a.id, a.last_run_duration_ms, r.total_duration_ns FROM agents a
        JOIN runs r ON r.agent_id = a.id AND r.completed_at = a.last_run_completion WHERE a.organization_id <> ''
        GROUP BY a.id HAVING max(a.last_run_duration_ms = r.total_duration_ns / 1000000) = 0""",
    "a context has one summary, before what was said since": """
        SELECT x.agent_id, x.conversation_id, m.id FROM context x JOIN messages m ON m.id = x.message_id
        WHERE m.role = 'summary' AND EXISTS (SELECT 1 FROM context y JOIN messages n ON n.id = y.message_id
            WHERE y.agent_id = x.agent_id AND y.conversation_id = x.conversation_id AND y.position < x.position
            AND n.role <> 'system')""",
    "a context is in the order of the history": """
        SELECT * FROM (SELECT x.agent_id, x.conversation_id, m.id, m.seq, lag(m.seq) OVER (
            PARTITION BY x.agent_id, x.conversation_id ORDER BY x.position) AS before
        FROM context x JOIN messages m ON m.id = x.message_id WHERE m.role NOT IN ('system', 'summary'))
        WHERE seq < before""",
}

_NEWEST = {
    "an agent knows its newest run": """
        SELECT a.id, a.last_run_completion, r.id FROM agents a JOIN runs r ON r.agent_id = a.id
        WHERE a.organization_id <> '' AND r.owner <> ''
        AND r.created_at > a.last_run_completion AND r.completed_at > a.last_run_completion""",
    "a conversation knows its newest run": """
        SELECT c.id, c.last_run_completion, r.id FROM conversations c JOIN runs r ON r.conversation_id = c.id
        WHERE c.deleted_at IS NULL AND r.owner <> ''
        AND r.created_at > c.last_run_completion AND r.completed_at > c.last_run_completion""",
}


def turns_are_recorded(disk: Disk) -> None:
    """Raises Broken for rows of turns that contradict each other."""
    _nothing_contradicts(disk, _CONTRADICTIONS)
    runs = {
        run_id: json.loads(given) for run_id, given in disk.query("SELECT id, input FROM runs ORDER BY created_at, id")
    }
    _ids_are_kept(disk, runs)
    _results_stand_with_their_calls(disk)
    waits_know_their_turn(disk)
    _answers_know_their_request(disk, runs)


def newest_runs_are_known(disk: Disk) -> None:
    """Agents and conversations know their newest run. For a server whose clock never went back."""
    _nothing_contradicts(disk, _NEWEST)


def _nothing_contradicts(disk: Disk, statements: Mapping[str, str]) -> None:
    for what, statement in statements.items():
        if found := disk.query(statement):
            raise Broken(what, f"{found[:5]}")


def _ids_are_kept(disk: Disk, runs: Mapping[str, Any]) -> None:
    """The ids that a client gave its messages lead to the run that has taken a step with them."""
    known: dict[str, set[str]] = {}
    for run_id, otid in disk.query("SELECT run_id, otid FROM run_otids"):
        known.setdefault(run_id, set()).add(otid)
    for (run_id,) in disk.query("SELECT id FROM runs WHERE step_count > 0 ORDER BY id"):
        given = {one["otid"] for one in runs[run_id]["messages"] if one["otid"] is not None}
        if given != known.get(run_id, set()):
            raise Broken("a message is found by its id", f"{run_id} was given {given} and has {known.get(run_id)}")


def _calls(disk: Disk) -> Iterator[tuple[tuple[str, str], tuple[Any, ...]]]:
    """Each call by its agent and its id, with the row that makes it."""
    for seq, agent_id, lane, step_id, run_id, message_id, made in disk.query(
        "SELECT seq, agent_id, coalesce(conversation_id, ''), step_id, run_id, id, tool_calls FROM messages "
        "WHERE typeof(tool_calls) = 'text' AND tool_calls <> '[]' ORDER BY seq"
    ):
        for call in json.loads(made):
            yield (agent_id, call["id"]), (seq, lane, step_id, run_id, message_id, call["name"])


def _results_stand_with_their_calls(disk: Disk) -> None:
    """A result comes after its call, in the same conversation and step, under the same name."""
    calls = dict(_calls(disk))
    for seq, agent_id, lane, step_id, returned in disk.query(
        "SELECT seq, agent_id, coalesce(conversation_id, ''), step_id, tool_returns FROM messages "
        "WHERE typeof(tool_returns) = 'text' AND tool_returns <> '[]' ORDER BY seq"
    ):
        for result in json.loads(returned):
            made = calls.get((agent_id, result["call_id"]))
            if made is None:
                continue  # another invariant sees to it
            if made[0] >= seq or made[1] != lane or made[2] != step_id or made[5] != result["name"]:
                told = f"{result['call_id']} of {made} has the result {result['name']} at {(seq, lane, step_id)}"
                raise Broken("a result stands with its call", told)


def waits_know_their_turn(disk: Disk) -> None:
    """What waits names all runs of its turn, the one that asks last; it waits since it was asked."""
    for agent_id, lane, named, run_id, requested_at, created_at, given in disk.query(
        "SELECT a.agent_id, a.conversation_id, a.runs, r.id, a.requested_at, m.created_at, r.input FROM approvals a "
        "JOIN messages m ON m.id = a.message_id JOIN runs r ON r.id = m.run_id"
    ):
        wanted = [*json.loads(given).get("earlier", ()), run_id]
        if json.loads(named) != wanted or requested_at != created_at:
            told = f"{agent_id} {lane}: {named} and not {wanted}, since {requested_at} and not {created_at}"
            raise Broken("a wait knows the runs of its turn", told)


def _answers_know_their_request(disk: Disk, runs: Mapping[str, Any]) -> None:
    """A run that answers calls is stored with the request that it answers and with the runs before it."""
    calls, answered = dict(_calls(disk)), Counter[tuple[str, str]]()
    for agent_id, run_id, said in disk.query(
        "SELECT agent_id, run_id, answers FROM messages WHERE typeof(answers) = 'text' AND answers <> '[]' ORDER BY seq"
    ):
        for answer in json.loads(said):
            key = agent_id, answer["call_id"]
            answered[key] += 1
            if answered[key] > 1:
                raise Broken("a call is answered once", f"{key} has {answered[key]} answers")
            asked = calls.get(key)
            if asked is None or run_id not in runs or asked[3] == run_id:
                continue  # it was deleted, or the request was withdrawn
            given = runs[run_id]
            if given.get("request") != asked[4] or given.get("earlier", [])[-1:] != [asked[3]]:
                told = f"{run_id} answers {asked} and was given {given.get('request')}, {given.get('earlier')}"
                raise Broken("an answer knows its request", told)
