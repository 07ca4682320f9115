"""The invariants: properties of the disk, and of the disk against what clients saw, that hold whatever went wrong.

A check reads the committed rows with SQL of its own, past every adapter, so that a bug in the storage package cannot
hide itself. Each raises Broken with the name of the invariant and what was seen.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from kelpie.core.conversations.runs import UNFINISHED, RunStatus, StopReason, status_for
from kelpie.sim.checks.client_history import Fate, History
from kelpie.sim.loop.errors import Broken
from kelpie.sim.ports.disk import Disk
from kelpie.sim.ports.model_provider import SeenRequest


def acknowledged_once(disk: Disk, history: History) -> None:
    """No acknowledged message is lost, and no message at all is stored twice."""
    rows: dict[str, list[str]] = defaultdict(list)
    for agent_id, content in disk.query("SELECT agent_id, content FROM messages WHERE role = 'user'"):
        rows[agent_id].append(content)
    for said in history.said:
        count = sum(said.token in content for content in rows[said.agent_id])
        if count > 1:
            raise Broken("no message is duplicated", f"{said.token} is {count} times in the history of {said.agent_id}")
        if said.fate is Fate.acknowledged and not count:
            raise Broken("no acknowledged message is lost", f"{said.token} is not in the history of {said.agent_id}")


def answers_belong(disk: Disk, history: History) -> None:
    """The answer that a client got belongs to its own message, and is in the history."""
    kept = defaultdict(list[str])
    for agent_id, content in disk.query(
        "SELECT agent_id, content || tool_calls FROM messages WHERE role = 'assistant'"
    ):
        kept[agent_id].append(content)
    for said in history.by_fate(Fate.acknowledged):
        for answer in said.answers:
            if said.token not in answer:
                raise Broken("an answer belongs to its question", f"{said.token} was answered with '{answer[:200]}'")
        if said.answers and not any(said.token in content for content in kept[said.agent_id]):
            raise Broken("a told answer is in the history", f"the answer to {said.token} is not on the disk")


def one_result_per_call(disk: Disk, _history: History) -> None:
    """Every tool call has exactly one result, unless it waits for an approval, and every result has a call."""
    calls: Counter[tuple[str, str]] = Counter()
    results: Counter[tuple[str, str]] = Counter()
    for agent_id, made, returned in disk.query("SELECT agent_id, tool_calls, tool_returns FROM messages ORDER BY seq"):
        calls.update((agent_id, call["id"]) for call in json.loads(made or "[]"))
        results.update((agent_id, result["call_id"]) for result in json.loads(returned or "[]"))
    waiting = _waiting(disk)
    for key, count in calls.items():
        if count != 1 or results[key] > 1 or not (results[key] or key in waiting):
            raise Broken("one result per tool call", f"{key} was made {count} times and has {results[key]} results")
    for key in results:
        if key not in calls:
            raise Broken("one result per tool call", f"there is a result for {key}, which nobody made")


def _waiting(disk: Disk) -> set[tuple[str, str]]:
    """The calls that rightly wait: they are the last of their conversation, and their run ended for them."""
    found: set[tuple[str, str]] = set()
    for agent_id, lane, message_id, made, reason in disk.query(
        "SELECT a.agent_id, a.conversation_id, a.message_id, m.tool_calls, r.stop_reason FROM approvals a "
        "JOIN messages m ON m.id = a.message_id LEFT JOIN runs r ON r.id = m.run_id"
    ):
        last = disk.query(
            "SELECT message_id FROM context WHERE agent_id = ? AND conversation_id = ? ORDER BY position DESC LIMIT 1",
            agent_id,
            lane,
        )
        if [row[0] for row in last] != [message_id]:
            raise Broken("what waits is the last of its conversation", f"{agent_id} went on after {message_id}")
        if reason not in (None, StopReason.requires_approval):
            raise Broken("a run that asks ends with asking", f"the run of {message_id} ended with {reason}")
        found |= {(agent_id, call["id"]) for call in json.loads(made or "[]")}
    return found


def journal_is_a_chain(disk: Disk, _history: History) -> None:
    """The steps of every turn are 0, 1, 2 ... without a gap, under epochs that never go back."""
    turns: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for agent_id, turn_id, step, epoch in disk.query(
        "SELECT agent_id, turn_id, step, epoch FROM journal ORDER BY agent_id, turn_id, step"
    ):
        turns[agent_id, turn_id].append((step, epoch))
    for key, entries in turns.items():
        if [step for step, _ in entries] != list(range(len(entries))):
            raise Broken("the journal is a prefix chain", f"{key} has the steps {[step for step, _ in entries]}")
        epochs = [epoch for _, epoch in entries]
        if epochs != sorted(epochs):
            raise Broken("the journal is a prefix chain", f"{key} has the epochs {epochs}")


def one_label_per_agent(disk: Disk, _history: History) -> None:
    """An agent has at most one block of each label, and the label it is filed under is the block's own."""
    seen: set[tuple[str, str]] = set()
    for agent_id, filed, label in disk.query(
        "SELECT a.agent_id, a.label, b.label FROM agent_blocks a LEFT JOIN blocks b ON b.id = a.block_id"
    ):
        if filed != label:
            raise Broken("one label per agent", f"{agent_id} files a block labelled '{label}' under '{filed}'")
        if (agent_id, label) in seen:
            raise Broken("one label per agent", f"{agent_id} has two blocks labelled '{label}'")
        seen.add((agent_id, label))


def histories_are_whole(disk: Disk, _history: History) -> None:
    """The versions of every block follow one another without a gap, and the last of them is the block."""
    kept: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for block_id, version, value in disk.query("SELECT block_id, version, value FROM block_history ORDER BY 1, 2"):
        kept[block_id].append((version, value))
    for block_id, version, value in disk.query("SELECT id, version, value FROM blocks"):
        numbers = [number for number, _ in kept[block_id]]
        if not numbers or numbers != list(range(numbers[0], numbers[-1] + 1)):
            raise Broken("a history has no gap", f"{block_id} has the versions {numbers}")
        if kept[block_id][-1] != (version, value):
            raise Broken("the end of a history is the block", f"{block_id} is not {kept[block_id][-1]}")


def context_is_whole(disk: Disk, _history: History) -> None:
    """The messages that the model would see next exist, and belong to the agent."""
    for agent_id, message_id in disk.query(
        "SELECT c.agent_id, c.message_id FROM context c "
        "LEFT JOIN messages m ON m.id = c.message_id AND m.agent_id = c.agent_id WHERE m.id IS NULL"
    ):
        raise Broken("the context is whole", f"{agent_id} would show {message_id}, which it does not have")


def runs_ended(disk: Disk, _history: History) -> None:
    """At rest no run is unfinished, and every run has a stop reason that fits its status."""
    for run_id, status, reason in disk.query("SELECT id, status, stop_reason FROM runs ORDER BY id"):
        if RunStatus(status) in UNFINISHED:
            raise Broken("every run ends", f"{run_id} is still {status}")
        if reason is None:
            raise Broken("every run ends with a stop reason", f"{run_id} is {status} without one")
        if status_for(StopReason(reason)) is not RunStatus(status):
            raise Broken("every run ends with a stop reason", f"{run_id} is {status} because of {reason}")


class Fence:
    """Checks after every commit that no agent's epoch or version goes back. One per run."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int]] = {}

    def __call__(self, disk: Disk) -> None:
        for agent_id, epoch, version in disk.query("SELECT agent_id, epoch, version FROM agent_head"):
            before = self._last.get(agent_id, (0, 0))
            if epoch < before[0] or version < before[1]:
                raise Broken("the fence never goes back", f"{agent_id} went from {before} to {(epoch, version)}")
            self._last[agent_id] = (epoch, version)


_OPENING = (
    "id", "agent_id", "conversation_id", "background", "request_config", "callback_url", "created_at",
    "organization_id",
)  # fmt: skip
_END = (  # of a run: what stays as it is once it has ended, which is everything but what became of its callback
    "status", "stop_reason", "stop_detail", "completed_at", "usage", "step_count", "taken_up", "ttft_ns",
    "total_duration_ns", "owner", "owner_incarnation", "input", "metadata",
)  # fmt: skip
_RECORDS = f"SELECT {', '.join((*_OPENING, *_END))} FROM runs"


class EndsOnce:
    """Checks after every commit that a run keeps what it was opened with, and one that has ended its end. One per
    run."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Any, ...]] = {}
        self._openings: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._ends: dict[str, tuple[Any, ...]] = {}

    def __call__(self, disk: Disk) -> None:
        for record in disk.query(_RECORDS):
            run_id = record[0]
            if self._last.get(run_id) != record:
                self._last[run_id] = record
                self._look(run_id, record[: len(_OPENING)], record[len(_OPENING) :])

    def _look(self, run_id: str, opening: tuple[Any, ...], end: tuple[Any, ...]) -> None:
        metadata = json.loads(end[-1])
        opened, noted = self._openings.setdefault(run_id, (opening, metadata))
        if opened != opening:
            raise Broken("a run keeps what it was opened with", f"{run_id} had {opened} and has {opening}")
        if noted and not noted.items() <= metadata.items():
            raise Broken("a run keeps what it was opened with", f"{run_id} had {noted} and has {metadata}")
        if end[_END.index("completed_at")] is None and run_id not in self._ends:
            return
        if (before := self._ends.setdefault(run_id, end)) != end:
            raise Broken("a run ends once", f"{run_id} had ended as {before} and is {end}")


def streams_are_whole(disk: Disk, _history: History) -> None:
    """A stored stream ends once, and the pieces of a message in it are the message that was committed. Every life of
    its turn has segments of its own, and only what was never committed is called off.

    Where the clock went back in the middle of a run, the parts of its stream are swept at different times.
    """
    streams: dict[str, list[dict[str, Any]]] = defaultdict(list)
    segments: dict[str, list[str]] = defaultdict(list)
    for run_id, segment, events in disk.query(
        "SELECT e.run_id, e.segment, e.events FROM run_events e JOIN runs r ON r.id = e.run_id WHERE NOT EXISTS "
        "(SELECT 1 FROM run_events o WHERE o.run_id = r.id AND o.created_at > r.completed_at) ORDER BY 1, e.number"
    ):
        streams[run_id] += json.loads(events)
        if segments[run_id][-1:] != [segment]:
            segments[run_id].append(segment)
    for run_id, events in streams.items():
        kinds = [event["kind"] for event in events]
        if kinds.count("ended") != 1 or kinds[-1] != "ended":
            raise Broken("a stream has one end", f"{run_id}: {kinds}")
        if len(set(segments[run_id])) != len(segments[run_id]):
            raise Broken("a segment is of one life of its turn", f"{run_id}: {segments[run_id]}")
        committed = {event["row"]["id"] for event in events if event["kind"] == "message"}
        if wrong := [event for event in events if event["kind"] == "abandoned" and event["message_id"] in committed]:
            raise Broken("what is called off was not committed", f"{run_id}: {wrong}")
        pieces: dict[tuple[str, str], str] = defaultdict(str)  # of a message or a call in it
        for event in events:
            if event["kind"] == "answer":
                pieces[event["message_id"], ""] += event["text"]
            elif event["kind"] == "call":
                pieces[event["message_id"], event["call_id"]] += event["arguments"] or ""
            elif event["kind"] == "message" and event["previewed"]:
                _is_what_was_shown(event["row"], pieces)


def _is_what_was_shown(row: Mapping[str, Any], pieces: Mapping[tuple[str, str], str]) -> None:
    committed = {"": "".join(part.get("text", "") for part in row["content"] if part["type"] == "text")}
    committed |= {call["id"]: call["arguments"] for call in row["tool_calls"]}
    for key, text in committed.items():
        if (shown := pieces.get((row["id"], key), "")) != text:
            raise Broken("what was shown in pieces is what was committed", f"{row['id']}: {shown!r} of {text!r}")


def no_leaks(seen: Iterable[SeenRequest], secrets: Mapping[str, str], owner_of: Mapping[str, str]) -> None:
    """No agent sees another's memory: a prompt that holds a mark of one agent holds no secret of another.

    `owner_of` maps a mark that is only in an agent's own prompt to the agent, `secrets` an agent to its secret.
    """
    for request in seen:
        prompt = json.dumps(request.body)
        owners = {agent for mark, agent in owner_of.items() if mark in prompt}
        for agent, secret in secrets.items():
            if owners and agent not in owners and secret in prompt:
                raise Broken("no agent sees another's memory", f"a prompt of {sorted(owners)} holds '{secret}'")


_AGENT_OF = (
    "(SELECT coalesce(nullif(a.organization_id, ''), g.organization_id) FROM agents a "
    "LEFT JOIN removed_agents g ON g.agent_id = a.id WHERE a.id = t.agent_id)"
)
_BLOCK_OF = "(SELECT b.organization_id FROM blocks b WHERE b.id = t.block_id)"
_MEASURED = {  # the owner and the size of every counted row
    "agents": ("t.organization_id", ("system", "description", "metadata")),
    "messages": (_AGENT_OF, ("content", "tool_calls", "tool_returns", "answers")),
    "passages": ("t.organization_id", ("text", "tags", "metadata")),
    "blocks": ("t.organization_id", ("value", "description", "metadata")),
    "block_history": (_BLOCK_OF, ("value", "fields")),
    "facts": (_AGENT_OF, ("subject", "attribute", "value", "statement")),
    "working_memory": (_AGENT_OF, ("key", "value")),
    "tools": ("t.organization_id", ("description", "source_code", "json_schema")),
    "runs": ("t.organization_id", ("input", "metadata", "request_config")),
    "agent_file_parts": (_AGENT_OF, ("document",)),
    "template_versions": ("t.organization_id", ("document",)),
    "agent_variables": (_AGENT_OF, ("memory_variables",)),
    "client_turns": ("t.organization_id", ("request",)),
    "folders": ("t.organization_id", ("description", "instructions", "metadata")),
    "files": ("t.organization_id", ("name", "original_name", "error")),
    "file_passages": ("t.organization_id", ("text",)),
    "schedules": ("t.organization_id", ("said",)),
}

# A packed text begins with its size.
_SIZE = "coalesce(CASE typeof({0}) WHEN 'blob' THEN CAST({0} AS INTEGER) ELSE length(CAST({0} AS BLOB)) END, 0)"


def usage_is_counted(disk: Disk, _history: History) -> None:
    """The usage of every organization is what its rows say."""
    rows: dict[str, Counter[str]] = {}
    sizes: Counter[str] = Counter()
    for name, (owner, columns) in _MEASURED.items():
        size = " + ".join(_SIZE.format(f"t.{column}") for column in columns)
        found = disk.query(f"SELECT {owner}, count(*), sum({size}) FROM {name} t GROUP BY 1")
        rows[name] = Counter({organization: count for organization, count, _ in found})
        sizes.update({organization: total for organization, _, total in found if organization})
    counted = "SELECT organization_id, agents, messages, files, bytes FROM organization_usage"
    for organization, *kept in disk.query(counted):
        right = [*(rows[name][organization] for name in ("agents", "messages", "files")), sizes[organization]]
        if kept != right:
            raise Broken("usage is what the rows say", f"{organization} has {right} and is counted with {kept}")


_LEFT_OVER = {
    "an archive that is half deleted": "SELECT id FROM archives WHERE removed",
    "a folder that is half deleted": "SELECT id FROM folders WHERE removed",
    "a file that is half deleted": "SELECT id FROM files WHERE removed",
    "the text of a file that could not be read": (
        "SELECT DISTINCT p.file_id FROM file_passages p JOIN files f ON f.id = p.file_id WHERE f.status = 'error'"
    ),
    "a scope that is half deleted": "SELECT kind, scope FROM search_removed",
}


def nothing_is_left_over(disk: Disk, _history: History) -> None:
    """At rest every deleted agent and archive is gone with all its rows, and no change of memory is half done."""
    for what, statement in _LEFT_OVER.items():
        if found := disk.query(statement):
            raise Broken("long writes come to an end", f"{what}: {found}")
    for table in ("removed_agents", "memory_changes", "memory_change_parts"):
        if found := disk.query(f"SELECT agent_id FROM {table}"):
            raise Broken("long writes come to an end", f"{table} still has {found}")


AT_REST = (
    acknowledged_once,
    answers_belong,
    one_result_per_call,
    journal_is_a_chain,
    one_label_per_agent,
    histories_are_whole,
    context_is_whole,
    runs_ended,
    usage_is_counted,
    nothing_is_left_over,
    streams_are_whole,
)
