"""Log lines from events: JSON for machines, aligned text for people. The order of the first fields is fixed.

Clients choose parts of many events: what is not printable is escaped, so that it can neither forge a line nor reach the
terminal of an operator as a control character.
"""

import json
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from kelpie.core.printable_text import escaped, escaped_json
from kelpie.core.time import Micros, as_datetime
from kelpie.observe.redaction import TRACEBACK_MAX, fit, fit_text, hide_secrets
from kelpie.observe.traceback import traceback_of

FIRST = ("time", "level", "component", "request_id", "run_id", "code", "event")
INDENT = "  "  # of a traceback
Event = MutableMapping[str, Any]


def scrub(now: Callable[[], Micros] | None) -> Callable[[Any, str, Event], Event]:
    """Returns a processor that puts the fixed fields first, makes the rest safe to log and adds the traceback."""

    def process(_: Any, method: str, event: Event) -> Event:
        trace = traceback_of(event.pop("exc_info", method == "exception"))
        level = "error" if method in ("exception", "critical", "fatal") else method
        facts: dict[str, Any] = {"time": iso(now()) if now else None, "level": level}
        facts["component"] = event.pop("component", None)
        facts |= {name: event.pop(name) for name in ("request_id", "run_id", "code") if name in event}
        facts["event"] = fit_text(str(event.pop("event", "")))
        facts |= {name: fit(value, name) for name, value in event.items()}
        if trace:
            facts["exception"] = hide_secrets(trace)[-TRACEBACK_MAX:]
        return facts

    return process


def as_json(_: Any, __: str, event: Event) -> str:
    """One line of JSON."""
    return escaped_json(json.dumps(event, ensure_ascii=False, default=str))


def as_text(_: Any, __: str, event: Event) -> str:
    """`time level component event [code] key=value …`. Only a traceback has lines of its own, which are indented."""
    facts = [f"{key}={_quoted(event[key])}" for key in event if key not in FIRST and key != "exception"]
    facts += [f"{key}={event[key]}" for key in ("request_id", "run_id") if key in event]
    head = f"{event['time'] or '-'} {event['level']:<7} {event.get('component') or '-':<8} {event['event']}"
    head += f" [{event['code']}]" if "code" in event else ""
    line = escaped("  ".join([head, " ".join(facts)]) if facts else head)
    return "\n".join([line, *_indented(str(event["exception"]))]) if "exception" in event else line


def iso(at: Micros) -> str:
    """Formats a time for people and log stores: 2026-01-31T12:00:00.000000Z."""
    return as_datetime(at).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _quoted(value: Any) -> str:
    if isinstance(value, str) and value and value.isprintable() and not any(c in " \"'=" for c in value):
        return value
    return escaped_json(json.dumps(value, ensure_ascii=False, default=str))


def _indented(trace: str) -> Iterator[str]:
    return (f"{INDENT}{escaped(line.expandtabs())}".rstrip() for line in trace.split("\n"))
