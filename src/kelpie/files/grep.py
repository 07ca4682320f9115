"""`grep_files`: lines of an agent's files that match a pattern, page by page.

The pattern is used in a worker process with a limit on time. The files are read some at a time, so that the memory it
takes is bounded.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from kelpie.core.errors import Overloaded, ToolError
from kelpie.core.files.files import FileView
from kelpie.core.tools.tools import Tool
from kelpie.storage.files import passages, views
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.world.database import Tx
from kelpie.world.workers.port import WorkerFailed, WorkerFault, WorkerProgram
from kelpie.world.world import World

PAGE = 20
FILES_MAX = 1_000
CONTEXT_LINES_MAX = 20
PATTERN_CHARS_MAX = 1_000
BATCH_CHARS = 8 * 1024 * 1024
MEGABYTE = 1024 * 1024
PROGRAM = WorkerProgram("kelpie.files.grep_program", cpu_s=10, wall_s=60.0, memory_bytes=1024 * MEGABYTE)


@dataclass(frozen=True, slots=True)
class _Match:
    file: str
    line: int
    first: int
    lines: Sequence[str]

    @property
    def shown(self) -> str:
        numbered = enumerate(self.lines, self.first)
        marked = [f"{'>' if number == self.line else ' '} {number}: {line}" for number, line in numbered]
        return "\n".join([f"=== {self.file}:{self.line} ===", *marked])


class GrepFiles:
    """The tool `grep_files` of one server."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def __call__(self, tool: Tool, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
        """The matches on a page. Raises ToolError."""
        pattern = _text(arguments, "pattern")
        context = _number(arguments, "context_lines", 1, CONTEXT_LINES_MAX)
        offset = _number(arguments, "offset", 0, None)
        database, agent = self._world.database, call.agent
        seen = await database.read(lambda tx: views.every(tx, agent.id, FILES_MAX + 1))
        if not seen:
            raise ToolError("You have no files to search. Ask the user to attach a folder with files.")
        wanted = await self._included(call, arguments.get("include"), seen[:FILES_MAX])
        counts: dict[str, int] = {}
        matches: list[_Match] = []
        for batch in _batches(wanted):
            names, texts = [view.name for view in batch], await database.read(lambda tx, some=batch: _read(tx, some))
            asked = {"pattern": pattern, "context": context, "take": PAGE - len(matches), "texts": texts}
            asked["skip"] = max(0, offset - sum(counts.values()))
            found = await self._ask(call, asked)
            counts |= dict(zip(names, found["counts"], strict=True))
            matches += [
                _Match(names[each["file"]], each["line"], each["first"], each["lines"]) for each in found["shown"]
            ]
        used = [view.file.id for view in wanted if counts.get(view.name)]
        if used:
            await database.transact(lambda tx: views.use(tx, agent.id, used, call.now))
        more = len(seen) > FILES_MAX
        return Outcome(_told(pattern, counts, matches, offset, more))

    async def _included(self, call: CallContext, include: Any, seen: Sequence[FileView]) -> list[FileView]:
        if include is None or include == "":
            return list(seen)
        asked = {"pattern": _checked("include", str(include)), "names": [view.name for view in seen]}
        names = set((await self._ask(call, asked))["names"])
        return [view for view in seen if view.name in names]

    async def _ask(self, call: CallContext, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Raises ToolError."""
        try:
            answer = await self._world.workers.ask(PROGRAM, orjson.dumps(asked), call.agent.organization_id)
        except WorkerFailed as failure:
            slow = failure.fault is WorkerFault.time
            why = f"the pattern takes more than {PROGRAM.cpu_s} s; use a simpler one" if slow else "the search failed"
            raise ToolError(f"The files were not searched: {why}.") from None
        except Overloaded as error:
            raise ToolError(f"The files were not searched: {error}") from None
        found: dict[str, Any] = json.loads(answer)
        if "wrong" in found:
            raise ToolError(f"'{asked['pattern'][:100]}' is not a valid regular expression: {found['wrong']}.")
        return found


def _read(tx: Tx, some: Sequence[FileView]) -> list[str]:
    return [passages.text(tx, view.file.id) for view in some]


def _batches(wanted: Sequence[FileView]) -> list[list[FileView]]:
    """Files that are not too long together; at least one in each."""
    found: list[list[FileView]] = []
    size = 0
    for view in wanted:
        if not found or size + view.file.chars > BATCH_CHARS:
            found.append([])
            size = 0
        found[-1].append(view)
        size += view.file.chars
    return found


def _told(pattern: str, counts: Mapping[str, int], matches: Sequence[_Match], offset: int, more: bool) -> str:
    total, hit = sum(counts.values()), {name: count for name, count in counts.items() if count}
    left = f"\nOnly the first {FILES_MAX} files were searched; use 'include' to choose others." if more else ""
    if not total:
        return f"No matches found for '{pattern}' in {len(counts)} files.{left}"
    if not matches:
        return f"There are {total} matches, and offset={offset} is past the last one.{left}"
    first, last = offset + 1, offset + len(matches)
    lines = [
        f"Found {total} total matches across {len(hit)} files (showing matches {first}-{last} of {total})",
        "=" * 80,
        "",
        "Files with matches:",
        *(f"  - {name}: {count} matches" for name, count in hit.items()),
        "",
    ]
    for match in matches:
        lines += ["", match.shown]
    rest = f'To see more matches, call: grep_files(pattern="{pattern}", offset={last})'
    return "\n".join([*lines, "", rest if last < total else "No more matches to show."]) + left


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = str(arguments.get(name) or "")
    if not value.strip():
        raise ToolError(f"'{name}' is empty; say what to look for.")
    return _checked(name, value)


def _checked(name: str, value: str) -> str:
    if len(value) > PATTERN_CHARS_MAX:
        raise ToolError(f"'{name}' has {len(value)} characters; at most {PATTERN_CHARS_MAX} are allowed.")
    return value


def _number(arguments: Mapping[str, Any], name: str, default: int, most: int | None) -> int:
    value = arguments.get(name)
    number = default if value is None else int(value)
    if number < 0 or (most is not None and number > most):
        raise ToolError(f"'{name}' must be 0 or more{'' if most is None else f', and at most {most}'}.")
    return number
