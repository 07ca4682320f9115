"""JSON as it is recorded: short values side by side, without what is null, of a long text its two ends, of a built-in
tool its name, and of an object that was shown before only what has changed."""

import json
from typing import Any

from kelpie.accounts.credentials import HINT_CHARS
from tests.snapshots.names import Names

WIDTH = 118
STRING_MAX = 300
_DURATIONS = ("_ns", "_ms")
_FEW = 3  # fields: a smaller object is shown whole


class Text:
    """The texts of one session."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._known: dict[tuple[str, frozenset[str]], dict[str, Any]] = {}

    def json(self, value: Any) -> list[str]:
        """The lines of a value."""
        return _lines("", self._changes(self._named(value)))

    def line(self, value: Any) -> str:
        """A value on one line, whole but for what is null."""
        return json.dumps(_without_null(self._named(value)), ensure_ascii=False)

    def _named(self, value: Any, key: str = "") -> Any:
        if isinstance(value, str):
            return self._names.hint(value) if key == "hint" and len(value) == HINT_CHARS else self._names.shown(value)
        if isinstance(value, dict):
            return {self._names.shown(name): self._named(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._named(inner, key) for inner in value]
        if isinstance(value, int | float) and not isinstance(value, bool) and value and key.endswith(_DURATIONS):
            return "<duration>"
        if isinstance(value, int) and value > 1_700_000_000:
            return self._names.shown(str(value))
        return value

    def _changes(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._changes(inner) for inner in value]
        if isinstance(value, str) and len(value) > STRING_MAX:
            return f"{value[: STRING_MAX // 2]} ... {value[-STRING_MAX // 2 :]} ({len(value)} characters)"
        if not isinstance(value, dict):
            return value
        if str(value.get("tool_type", "")).startswith("letta_") and "json_schema" in value:
            return f"built-in tool {value['name']}"
        if "id" in value and len(value) > _FEW:
            key = (str(value["id"]), frozenset(value))
            known, self._known[key] = self._known.get(key), value
            if known is not None:
                changed = {name: self._changes(inner) for name, inner in value.items() if inner != known[name]}
                return {"id": f"{value['id']}, changed", **changed} if changed else f"{value['id']} as before"
        shown = {name: self._changes(inner) for name, inner in value.items() if inner is not None}
        empty = [name for name, inner in value.items() if inner is None]
        return {**shown, "null": " ".join(empty)} if empty else shown


def _without_null(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_null(inner) for inner in value]
    if isinstance(value, dict):
        return {name: _without_null(inner) for name, inner in value.items() if inner is not None}
    return value


def _lines(before: str, value: Any) -> list[str]:
    """The lines of a value: what fits on a line together stands on one."""
    short = before + json.dumps(value, ensure_ascii=False)
    if len(short) <= WIDTH or not isinstance(value, dict | list) or not value:
        return [short]
    keyed = isinstance(value, dict)
    items = value.items() if isinstance(value, dict) else ((None, inner) for inner in value)
    lines, fits = [before + ("{" if keyed else "[")], False
    for key, inner in items:
        found = _lines("" if key is None else f"{json.dumps(key)}: ", inner)
        if fits and len(found) == 1 and len(lines[-1]) + len(found[0]) + 2 <= WIDTH:
            lines[-1] += f", {found[0]}"
        else:
            lines += [f"  {line}" for line in found]
        fits = len(found) == 1
    return [*lines, "}" if keyed else "]"]
