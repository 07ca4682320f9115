"""Rows that must agree with each other, whatever happened: links within one organization, what belongs to a run, and
what is left of deleted conversations. Each statement finds rows that contradict others.
"""

from collections.abc import Iterator
from itertools import combinations

from sqlalchemy import Table

from kelpie.sim.checks.client_history import History
from kelpie.sim.checks.references import owners
from kelpie.sim.loop.errors import Broken
from kelpie.sim.ports.disk import Disk
from kelpie.storage.tables import metadata

_USED = ("total_tokens", "prompt_tokens", "completion_tokens", "cost_micros", "unpriced_calls")
_NOT_COMPACTED = """r.id NOT IN (SELECT turn_id FROM journal WHERE kind = 'compact')
        AND coalesce(json_extract(r.metadata, '$.run_type'), '') <> 'kelpie_compaction'
        AND r.id NOT IN (SELECT run_id FROM messages WHERE role = 'summary' AND run_id IS NOT NULL)"""
_RETURNED = """messages m, json_each(m.tool_returns) e
        LEFT JOIN tool_calls t ON t.run_id = m.run_id AND t.call_id = json_extract(e.value, '$.call_id')
        WHERE typeof(m.tool_returns) = 'text' AND m.run_id IN (SELECT id FROM runs)"""
_OTHER_TAGS = """
        SELECT t.id, t.tags FROM {0}s t WHERE (SELECT count(DISTINCT value) FROM json_each(t.tags))
        <> (SELECT count(*) FROM {0}_tags g WHERE g.{0}_id = t.id)
        OR EXISTS (SELECT 1 FROM {0}_tags g WHERE g.{0}_id = t.id
            AND g.tag NOT IN (SELECT value FROM json_each(t.tags)))"""
# Facts that were true for a time; one that was never true keeps its row.
_LASTING = "({0}.valid_until IS NULL OR {0}.valid_until > {0}.valid_from)"
_BOTH_LASTING = f"{_LASTING.format('f')} AND {_LASTING.format('g')}"
_WRONG = {
    **{
        f"a run that was not compacted has not the {name} of its steps": f"""
        SELECT r.id, json_extract(r.usage, '$.{name}'), sum(json_extract(s.usage, '$.{name}'))
        FROM runs r JOIN steps s ON s.run_id = r.id WHERE {_NOT_COMPACTED}
        GROUP BY r.id HAVING json_extract(r.usage, '$.{name}') <> sum(json_extract(s.usage, '$.{name}'))"""
        for name in _USED
    },
    "a completed run has not one step that ended it": f"""
        SELECT r.id, r.stop_reason, count(s.id) FROM runs r
        LEFT JOIN steps s ON s.run_id = r.id AND s.stop_reason = r.stop_reason
        WHERE r.status = 'completed' AND r.step_count > 0 AND r.owner <> '' AND {_NOT_COMPACTED}
        GROUP BY r.id HAVING count(s.id) <> 1""",
    "a cancelled step does not say so": """
        SELECT id, stop_reason FROM steps WHERE status = 'cancelled' AND coalesce(stop_reason, '') <> 'cancelled'""",
    "a run has ended and does not say when, or how long it took": """
        SELECT id, status FROM runs WHERE (completed_at IS NULL) <> (status IN ('created', 'running'))
        OR (completed_at IS NOT NULL AND total_duration_ns IS NULL)""",
    # A run that no lane has started is no turn: it records a compaction that a client asked for.
    "a conversation does not know its last run": """
        SELECT c.id FROM conversations c WHERE c.deleted_at IS NULL AND c.last_run_completion IS NULL AND EXISTS (
            SELECT 1 FROM runs r WHERE r.conversation_id = c.id AND r.status = 'completed' AND r.owner <> '')""",
    "an agent does not know its last run": """
        SELECT a.id, a.last_run_completion, a.last_stop_reason FROM agents a WHERE a.organization_id <> '' AND (
            (a.last_run_completion IS NULL AND EXISTS (
                SELECT 1 FROM runs r WHERE r.agent_id = a.id AND r.status = 'completed' AND r.step_count > 0
                AND r.owner <> ''))
            OR EXISTS (SELECT 1 FROM runs r WHERE r.agent_id = a.id AND r.completed_at = a.last_run_completion)
            AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.agent_id = a.id AND r.completed_at = a.last_run_completion
                AND r.stop_reason = a.last_stop_reason))""",
    "a result is recorded with other outcomes only": f"""
        SELECT m.id, t.name, group_concat(t.outcome) FROM {_RETURNED} AND t.call_id IS NOT NULL
        GROUP BY m.id, t.call_id HAVING max(json_extract(e.value, '$.ok') = (t.outcome = 'success')) = 0""",
    # A request for approval that was withdrawn keeps what a client had answered; nothing ran here.
    "a successful call is not recorded": f"""
        SELECT m.id, e.value FROM {_RETURNED} AND json_extract(e.value, '$.ok') AND t.call_id IS NULL
        AND m.step_id NOT IN (SELECT id FROM steps WHERE stop_reason = 'requires_approval')""",
    "a step is found by other tags than its own": _OTHER_TAGS.format("step"),
    "a passage is found by other tags than its own": _OTHER_TAGS.format("passage"),
    "a context has a message of another conversation": """
        SELECT x.agent_id, x.conversation_id, m.id FROM context x JOIN messages m ON m.id = x.message_id
        WHERE coalesce(m.conversation_id, '') <> x.conversation_id AND m.id NOT IN (
            SELECT message_id FROM conversation_shares s WHERE s.conversation_id = x.conversation_id)""",
    "a context shows a call that has no result and waits for none": """
        SELECT x.agent_id, x.conversation_id, m.id, e.value FROM context x JOIN messages m ON m.id = x.message_id
        JOIN json_each(m.tool_calls) e WHERE typeof(m.tool_calls) = 'text' AND m.tool_calls <> '[]'
        AND NOT EXISTS (SELECT 1 FROM approvals a
            WHERE a.agent_id = x.agent_id AND a.conversation_id = x.conversation_id)
        AND json_extract(e.value, '$.id') NOT IN (
            SELECT json_extract(r.value, '$.call_id') FROM context y JOIN messages n ON n.id = y.message_id
            JOIN json_each(n.tool_returns) r WHERE y.agent_id = x.agent_id AND y.conversation_id = x.conversation_id
            AND typeof(n.tool_returns) = 'text')""",
    "a call waits since before it was made": """
        SELECT a.agent_id FROM approvals a JOIN messages m ON m.id = a.message_id
        WHERE a.requested_at < m.created_at""",
    "a run that ended before its first step, with nothing saved, has messages": """
        SELECT r.id FROM runs r JOIN messages m ON m.run_id = r.id AND m.role <> 'summary'
        WHERE json_extract(r.metadata, '$.error.type') = 'interrupted'""",
    "a step is of another agent than its run": """
        SELECT s.id FROM steps s JOIN runs r ON r.id = s.run_id WHERE r.agent_id <> s.agent_id""",
    "a message is of another agent or conversation than its run": """
        SELECT m.id, m.conversation_id, r.conversation_id FROM messages m JOIN runs r ON r.id = m.run_id
        WHERE r.agent_id <> m.agent_id OR coalesce(r.conversation_id, '') <> coalesce(m.conversation_id, '')""",
    "a message is in the conversation of another agent": """
        SELECT m.id FROM messages m JOIN conversations c ON c.id = m.conversation_id WHERE c.agent_id <> m.agent_id""",
    "a message of another agent is shared": """
        SELECT s.message_id FROM conversation_shares s JOIN conversations c ON c.id = s.conversation_id
        JOIN messages m ON m.id = s.message_id WHERE c.agent_id <> m.agent_id""",
    "two messages have one place": "SELECT agent_id, seq FROM messages GROUP BY agent_id, seq HAVING count(*) > 1",
    "a call is recorded twice": """
        SELECT agent_id, run_id, call_id FROM tool_calls WHERE run_id IS NOT NULL AND call_id IS NOT NULL
        GROUP BY agent_id, run_id, step_id, call_id, outcome HAVING count(*) > 1 AND outcome <> 'refused'""",
    "an id of a client is of another agent's run": """
        SELECT o.otid FROM run_otids o JOIN runs r ON r.id = o.run_id WHERE r.agent_id <> o.agent_id""",
    "a deleted conversation has a context": """
        SELECT c.id FROM conversations c JOIN context x ON x.conversation_id = c.id WHERE c.deleted_at IS NOT NULL""",
    "a deleted conversation has shares": """
        SELECT c.id FROM conversations c JOIN conversation_shares x ON x.conversation_id = c.id
        WHERE c.deleted_at IS NOT NULL""",
    "a deleted conversation waits": """
        SELECT c.id FROM conversations c JOIN approvals x ON x.conversation_id = c.id WHERE c.deleted_at IS NOT NULL""",
    "a context does not begin with the instructions": """
        SELECT x.agent_id, x.conversation_id, m.role FROM context x JOIN messages m ON m.id = x.message_id
        WHERE m.role <> 'system' AND x.position = (SELECT min(position) FROM context y
            WHERE y.agent_id = x.agent_id AND y.conversation_id = x.conversation_id)""",
    "an agent has no context": """
        SELECT a.id FROM agents a WHERE a.organization_id <> ''
        AND NOT EXISTS (SELECT 1 FROM context x WHERE x.agent_id = a.id AND x.conversation_id = '')""",
    "a message is in a context twice": """
        SELECT agent_id, conversation_id, message_id FROM context
        GROUP BY agent_id, conversation_id, message_id HAVING count(*) > 1""",
    "an entry has another size than it is counted with": """
        SELECT agent_id, key FROM working_memory
        WHERE bytes <> length(CAST(key AS BLOB)) + length(CAST(value AS BLOB))""",
    "an entry is newer than the last version": """
        SELECT w.agent_id, w.key FROM working_memory w LEFT JOIN working_memory_heads h ON h.agent_id = w.agent_id
        WHERE h.version IS NULL OR w.version > h.version""",
    "a stream lacks a batch": """
        SELECT run_id FROM run_events GROUP BY run_id HAVING count(*) <> max(number) - min(number) + 1""",
    "a callback is due of a run that has none, or has not ended": """
        SELECT id FROM runs WHERE callback_due_at IS NOT NULL AND (callback_url IS NULL OR completed_at IS NULL)""",
    "a block is behind its history": """
        SELECT id FROM blocks b WHERE version <> (SELECT max(version) FROM block_history h WHERE h.block_id = b.id)""",
    "a firing waits without a time, or has a time and does not wait": """
        SELECT id, status, attempt_at FROM firings WHERE (status = 'waiting') <> (attempt_at IS NOT NULL)""",
    "a firing runs without a run": "SELECT id FROM firings WHERE status = 'running' AND run_id IS NULL",
    "a paused schedule has a next time, or a recurring one that is not paused has none": """
        SELECT id, paused, next_at FROM schedules
        WHERE (paused AND next_at IS NOT NULL) OR (recurrence IS NOT NULL AND NOT paused AND next_at IS NULL)""",
    "an agent sees a file of a folder that it does not have": """
        SELECT v.agent_id, v.file_id FROM file_views v JOIN files f ON f.id = v.file_id WHERE NOT f.removed
        AND NOT EXISTS (SELECT 1 FROM agent_folders x WHERE x.agent_id = v.agent_id AND x.folder_id = f.folder_id)""",
    "a batch has ended before one of its items": """
        SELECT i.batch_id, i.place FROM batch_items i JOIN jobs j ON j.id = i.batch_id
        WHERE i.status IN ('waiting', 'running') AND j.status NOT IN ('created', 'running')""",
    "an item of a batch runs without a run": """
        SELECT batch_id, place FROM batch_items WHERE status = 'running' AND run_id IS NULL""",
    "a template has other versions than it says": """
        SELECT t.id, t.latest, t.base FROM templates t
        WHERE t.latest <> (SELECT max(number) FROM template_versions v WHERE v.template_id = t.id)
        OR t.latest <> (SELECT count(*) FROM template_versions v WHERE v.template_id = t.id AND v.number > 0)
        OR NOT t.base BETWEEN 1 AND t.latest""",
    "a tool cannot be found": """
        SELECT id, name FROM tools WHERE id NOT IN (SELECT item_id FROM search_items WHERE kind = 'tool')""",
    "two values of one thing are true at once": f"""
        SELECT f.id, f.value, g.id, g.value FROM facts f JOIN facts g ON g.agent_id = f.agent_id AND g.id > f.id
        AND g.subject_key = f.subject_key AND g.attribute_key = f.attribute_key
        WHERE {_BOTH_LASTING} AND (f.exclusive AND g.exclusive OR f.value_key = g.value_key)
        AND f.valid_from < coalesce(g.valid_until, f.valid_from + 1)
        AND g.valid_from < coalesce(f.valid_until, g.valid_from + 1)""",
    "a fact was replaced by one that does not say so, or began at another time": f"""
        SELECT f.id FROM facts f LEFT JOIN facts g ON g.id = f.superseded_by
        WHERE f.superseded_by IS NOT NULL AND {_LASTING.format("f")}
        AND (g.id IS NULL OR g.agent_id <> f.agent_id OR g.supersedes IS NOT f.id OR g.valid_from <> f.valid_until)""",
    "an agent has two archives": "SELECT agent_id FROM agent_archives GROUP BY agent_id HAVING count(*) > 1",
}


def _references() -> Iterator[tuple[Table, list[tuple[str, str]]]]:
    """Tables with their columns that name a row of an organization, and the table of that row."""
    for table in metadata.tables.values():
        found = [(column, other) for column, other in owners(table) if "organization_id" in metadata.tables[other].c]
        if table.name != "organizations" and found:
            yield table, found


def _of_two_organizations() -> Iterator[tuple[str, str]]:
    """A row with an organization is of the same as what it names, and what a link names is of one organization. An
    empty one is that of an agent that is being imported or removed."""
    for table, columns in _references():
        if "organization_id" in table.c:
            for column, owner in columns:
                yield (
                    f"{table.name} are of another organization than their {owner} ({column})",
                    f"""
                    SELECT t.organization_id, o.id FROM {table.name} t JOIN {owner} o ON o.id = t.{column}
                    WHERE t.organization_id <> o.organization_id
                    AND '' NOT IN (t.organization_id, o.organization_id)""",
                )
        for (first, one), (second, other) in combinations(columns, 2):
            yield (
                f"{table.name} links two organizations ({first}, {second})",
                f"""
                SELECT l.{first}, l.{second} FROM {table.name} l JOIN {one} a ON a.id = l.{first}
                JOIN {other} b ON b.id = l.{second}
                WHERE a.organization_id <> b.organization_id AND '' NOT IN (a.organization_id, b.organization_id)""",
            )


_STATEMENTS = {**dict(_of_two_organizations()), **_WRONG}


def rows_agree(disk: Disk, _history: History) -> None:
    """No row contradicts another."""
    for what, statement in _STATEMENTS.items():
        if found := disk.query(statement):
            raise Broken("rows agree with each other", f"{what}: {found[:5]}")
