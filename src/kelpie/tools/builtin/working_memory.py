"""The tools of working memory: an agent sets, reads, lists, changes and deletes values under keys of its own.

Each runs inside the journal's commit, so that a crash neither counts twice nor loses a count.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from kelpie.core.dates import dates
from kelpie.core.errors import ToolError
from kelpie.core.memory.working_memory import KEEP, Append, Change, EntryQuery, Increment, Merge, WorkingMemoryEntry
from kelpie.core.paging import Page
from kelpie.memory import working_memory
from kelpie.memory.working_memory import Place
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.world.database import Tx

LIST_DEFAULT = 20
LIST_MAX = 100
PREVIEW_CHARS = 500  # of a value in a list; `working_memory_get` shows all of it

_CHANGES = {"increment": Increment, "append": Append, "merge": Merge}


def working_memory_set(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Raises InvalidInput, Conflict."""
    key, ttl, version = arguments["key"], arguments.get("ttl_seconds"), arguments.get("if_version")
    return _entry_text(call, working_memory.put(tx, _place(call), key, arguments["value"], ttl, version), "Stored")


def working_memory_get(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Raises ToolError when there is no such entry."""
    entry = working_memory.find(tx, _place(call), arguments["key"])
    if entry is None:
        raise ToolError(
            f"Working memory has no entry '{arguments['key'][:100]}': it was never set, was deleted, or has expired."
        )
    return Outcome(orjson.dumps(_listed_entry(call, entry)).decode())


def working_memory_list(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Entries by key, or the newest first when a time is asked for. Raises ToolError."""
    zone = dates.zone_of(call.agent.timezone)
    asked = [(name, arguments.get(name)) for name in ("updated_from", "updated_to")]
    since, until = dates.bounds(asked[0], asked[1], zone, call.now)
    limit = arguments.get("limit") or LIST_DEFAULT
    if not 1 <= limit <= LIST_MAX:
        raise ToolError(f"'limit' must be from 1 to {LIST_MAX}.")
    by_time = since is not None or until is not None
    query = EntryQuery(
        Page(limit + 1, arguments.get("after"), None, by_time, "updated_at" if by_time else "key"),
        arguments.get("prefix") or "",
        updated_after=None if since is None else since - 1,
        updated_before=None if until is None else until + 1,
    )
    found = working_memory.listed(tx, _place(call), query)
    shown = [_preview(call, entry) for entry in found[:limit]]
    more = {"more_after": found[limit - 1].key} if len(found) > limit else {}
    return Outcome(orjson.dumps({"entries": shown, **more}).decode())


def working_memory_update(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Raises ToolError, InvalidInput, Conflict, and NotFound where there is only an expiry to change."""
    ttl = arguments.get("ttl_seconds")
    change = _change(arguments)
    if change is None and ttl is None:
        raise ToolError("Nothing was changed: give 'increment', 'append', 'merge' or 'ttl_seconds'.")
    version = arguments.get("if_version")
    entry = working_memory.update(tx, _place(call), arguments["key"], change, KEEP if ttl is None else ttl, version)
    return Outcome(orjson.dumps(_preview(call, entry)).decode())


def working_memory_delete(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Raises NotFound."""
    entry = working_memory.delete(tx, _place(call), arguments["key"])
    return Outcome(f"Deleted '{entry.key}'.")


def _place(call: CallContext) -> Place:
    return Place(call.agent.id, call.now, call.working_memory)


def _change(arguments: Mapping[str, Any]) -> Change | None:
    given = [name for name in _CHANGES if name in arguments]
    if len(given) > 1:
        raise ToolError(f"Nothing was changed: make one change at a time, not {' and '.join(given)}.")
    return _CHANGES[given[0]](arguments[given[0]]) if given else None


def _entry_text(call: CallContext, entry: WorkingMemoryEntry, done: str) -> Outcome:
    ends = (
        f", until {dates.format_moment(entry.expires_at, dates.zone_of(call.agent.timezone))}"
        if entry.expires_at
        else ""
    )
    return Outcome(f"{done} under '{entry.key}' (version {entry.version}{ends}).")


def _listed_entry(call: CallContext, entry: WorkingMemoryEntry) -> dict[str, Any]:
    zone = dates.zone_of(call.agent.timezone)
    ends = {"expires_at": dates.format_moment(entry.expires_at, zone)} if entry.expires_at is not None else {}
    times = {
        "created_at": dates.format_moment(entry.created_at, zone),
        "updated_at": dates.format_moment(entry.updated_at, zone),
    }
    return {"key": entry.key, "value": entry.value, "version": entry.version, **times, **ends}


def _preview(call: CallContext, entry: WorkingMemoryEntry) -> dict[str, Any]:
    text = orjson.dumps(entry.value).decode()
    if len(text) <= PREVIEW_CHARS:
        return _listed_entry(call, entry)
    return {**_listed_entry(call, entry), "value": f"{text[:PREVIEW_CHARS]}…", "cut": True}
