"""The program that searches files by a pattern in a worker process: a pattern of a model may take for ever. Only
`grep` asks this program.
"""

import json
import re
from typing import Any

SHOWN_CHARS_MAX = 1_000  # of one line


def answer(request: bytes) -> bytes:
    """The names that match, or the matches in files; under `wrong` why a pattern is none."""
    wanted = json.loads(request)
    try:
        pattern = re.compile(wanted["pattern"])
    except (re.error, RecursionError, OverflowError) as error:
        return json.dumps({"wrong": str(error)}).encode()
    if "names" in wanted:
        return json.dumps({"names": [name for name in wanted["names"] if pattern.search(name)]}).encode()
    return json.dumps(_found(pattern, wanted), ensure_ascii=False).encode()


def _found(pattern: re.Pattern[str], wanted: dict[str, Any]) -> dict[str, Any]:
    """The number of matches in each file, and the matches after the first `skip`, at most `take`, with their lines."""
    skip, take, context = wanted["skip"], wanted["take"], wanted["context"]
    counts: list[int] = []
    shown: list[dict[str, Any]] = []
    for at, text in enumerate(wanted["texts"]):
        lines = [line.rstrip() for line in text.split("\n") if line.strip()]
        matched = [number for number, line in enumerate(lines) if pattern.search(line)]
        counts.append(len(matched))
        for number in matched[skip : skip + take - len(shown)]:
            first = max(0, number - context)
            near = [line[:SHOWN_CHARS_MAX] for line in lines[first : number + context + 1]]
            shown.append({"file": at, "line": number + 1, "first": first + 1, "lines": near})
        skip = max(0, skip - len(matched))
    return {"counts": counts, "shown": shown}
