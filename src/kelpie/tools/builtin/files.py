"""`open_files`: the files, or parts of files, that the prompt of an agent shows."""

from collections.abc import Mapping, Sequence
from typing import Any

from kelpie.core.errors import ToolError
from kelpie.core.files.files import FileView
from kelpie.storage.agents import agents
from kelpie.storage.files import views
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.world.database import Tx

NAMED_MAX = 10  # files that an error names


def open_files(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Opens files, and closes those that were not used for longest when too many are open. Raises ToolError."""
    agent, requests = call.agent, list(arguments["file_requests"])
    most, _ = views.limits(agent)
    if not requests:
        raise ToolError("'file_requests' is empty; name at least one file.")
    if len(requests) > most:
        raise ToolError(f"You can have {most} files open and asked for {len(requests)}. Ask for fewer files.")
    opened = [_found(tx, call, request) for request in requests]
    closed: list[FileView] = []
    if arguments.get("close_all_others"):
        ids = {view.file.id for view, *_ in opened}
        closed = [view for view in views.of_open(tx, agent.id) if view.file.id not in ids]
        views.close(tx, agent.id, [view.file.id for view in closed])
    for place, (view, start, end) in enumerate(opened):
        # A microsecond apart, so that the order in which they were asked for is that of their age.
        views.open_file(tx, agent, view.file.id, call.now + place, start, end)
    evicted = views.evict(tx, agent, [view.file.id for view, *_ in opened])
    agents.bump(tx, agent.id)
    return Outcome(_told(opened, closed, evicted, most), touched=(agent.id,))


def _found(tx: Tx, call: CallContext, request: Mapping[str, Any]) -> tuple[FileView, int | None, int | None]:
    """A file with the first and the last line to show, counted from 1. Raises ToolError."""
    name = str(request["file_name"])
    view = views.named(tx, call.agent.id, name)
    if view is None:
        there = [each.name for each in views.every(tx, call.agent.id, NAMED_MAX + 1)]
        names = ", ".join(there[:NAMED_MAX]) + (" and others" if len(there) > NAMED_MAX else "")
        raise ToolError(f"You have no file '{name[:200]}'. Your files: {names or 'none'}.")
    offset, length = request.get("offset"), request.get("length")
    if offset is None and length is None:
        return view, None, None
    first, lines = int(offset or 0), view.file.lines
    if first < 0 or (length is not None and int(length) < 1):
        raise ToolError(f"{name}: 'offset' must be 0 or more, and 'length' 1 or more.")
    if first >= max(lines, 1):
        raise ToolError(f"{name} has {lines} lines, so there is no line at offset {first}.")
    return view, first + 1, lines if length is None else min(lines, first + int(length))


def _told(
    opened: Sequence[tuple[FileView, int | None, int | None]],
    closed: Sequence[FileView],
    evicted: Sequence[FileView],
    most: int,
) -> str:
    lines = [
        f"* Opened {view.name}" + ("" if start is None else f" (lines {start}-{end})") for view, start, end in opened
    ]
    if closed:
        lines.append(f"Closed the other files: {', '.join(view.name for view in closed)}")
    if evicted:
        names = ", ".join(view.name for view in evicted)
        lines.append(f"Closed files that you had not used for longest, because you can have {most} open: {names}")
    return "\n".join(lines)
