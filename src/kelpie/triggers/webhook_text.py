"""The body of a delivery as text for an agent: JSON indented, forms as lines, Alertmanager's alerts as sentences."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import orjson

from kelpie.core.errors import InvalidInput
from kelpie.core.json_size import is_deeper

TEXT_CHARS_MAX = 50_000
ALERTS_MAX = 50
DEPTH_MAX = 64
FIELDS_MAX = 1_000


def readable(body: bytes, content_type: str) -> str:
    """The body as text, cut where it is too long. Raises InvalidInput when it is no text."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput("body", "is not text in UTF-8; send JSON, a form or plain text") from None
    if "\0" in text:
        raise InvalidInput("body", "contains a NUL character; remove it")
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        text = _form(text)
    elif kind.endswith(("json", "+json")) or text.lstrip()[:1] in ("{", "["):
        text = _json(text, declared=kind.endswith("json"))
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}\n[The rest was cut off.]"


def _json(text: str, *, declared: bool) -> str:
    try:
        document: Any = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if declared:
            raise InvalidInput("body", f"is not valid JSON: {error}") from None
        return text
    if is_deeper(document, DEPTH_MAX):
        raise InvalidInput("body", f"is nested deeper than {DEPTH_MAX} levels")
    if isinstance(document, dict) and _is_alertmanager(document):
        return _alerts(document)
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()


def _form(text: str) -> str:
    try:
        fields = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        raise InvalidInput("body", f"has more than {FIELDS_MAX} fields") from None
    return "\n".join(f"{name}: {value}" for name, value in fields)


def _is_alertmanager(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("alerts"), list) and "groupLabels" in document and "receiver" in document


def _alerts(document: Mapping[str, Any]) -> str:
    alerts = [each for each in document["alerts"] if isinstance(each, dict)]
    lines = [f"Alertmanager: {len(alerts)} {_words(document.get('status'))} ({_pairs(document.get('groupLabels'))})"]
    lines += [_alert(each) for each in alerts[:ALERTS_MAX]]
    truncated = document.get("truncatedAlerts")
    left_out = max(0, len(alerts) - ALERTS_MAX) + (truncated if isinstance(truncated, int) else 0)
    if left_out:
        lines.append(f"{left_out} more alerts are not shown.")
    if isinstance(url := document.get("externalURL"), str):
        lines.append(f"Alertmanager: {url}")
    return "\n\n".join(lines)


def _alert(alert: Mapping[str, Any]) -> str:
    labels = alert.get("labels") if isinstance(alert.get("labels"), dict) else {}
    notes = alert.get("annotations") if isinstance(alert.get("annotations"), dict) else {}
    name = labels.get("alertname", "alert") if isinstance(labels, dict) else "alert"
    lines = [f"- {name} is {_words(alert.get('status'))}"]
    for title in ("summary", "description", "message"):
        if isinstance(notes, dict) and isinstance(notes.get(title), str):
            lines.append(f"  {notes[title]}")
    lines.append(f"  labels: {_pairs({k: v for k, v in (labels or {}).items() if k != 'alertname'})}")
    rest = {k: v for k, v in (notes or {}).items() if k not in ("summary", "description", "message")}
    if rest:
        lines.append(f"  annotations: {_pairs(rest)}")
    lines.append(f"  since: {alert.get('startsAt', 'unknown')}")
    if alert.get("status") == "resolved":
        lines.append(f"  until: {alert.get('endsAt', 'unknown')}")
    if isinstance(url := alert.get("generatorURL"), str) and url:
        lines.append(f"  source: {url}")
    return "\n".join(lines)


def _words(status: object) -> str:
    return status if isinstance(status, str) else "unknown"


def _pairs(values: object) -> str:
    if not isinstance(values, dict) or not values:
        return "none"
    return ", ".join(f"{name}={value}" for name, value in sorted(values.items(), key=lambda pair: str(pair[0])))
