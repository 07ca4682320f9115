"""Report to the model on code that ran: its output, how it ended, and how long it took."""

from collections.abc import Mapping
from typing import Any

import orjson

from kelpie.core.tools.confinement import MEGABYTE, Confinement
from kelpie.core.tools.sandbox_caps import reduction
from kelpie.sandbox.port import JobEnding, JobResult
from kelpie.tools.calls.interface import Outcome

CHARS_MAX = 20_000  # of each stream; more would only push other things out of the prompt


def report(
    ended: JobResult, confinement: Confinement, asked: Confinement, facts: Mapping[str, Any] | None = None
) -> Outcome:
    """The outcome of code that ended in any way; it is a success when its exit code is 0. Its tool asked for another
    confinement than it was held to."""
    told: dict[str, Any] = dict(facts or {})
    out, err = _text(ended.stdout), _text(ended.stderr)
    told["exit_code"] = ended.code if ended.how is JobEnding.finished else None
    told |= {"stdout": _cut(out), "stderr": _cut(err), "duration_ms": round(ended.duration_us / 1000)}
    ok = ended.how is JobEnding.finished and ended.code == 0
    notes = (_note(ended, confinement), None if ok else reduction(asked, confinement))
    if note := " ".join(each for each in notes if each):
        told["note"] = note
    return Outcome(
        orjson.dumps(told).decode(),
        ok=ok,
        stdout=(out,) if out else None,
        stderr=(err,) if err else None,
        cpu_us=ended.cpu_us,
        memory_peak_bytes=ended.memory_peak_bytes,
    )


def _note(ended: JobResult, confinement: Confinement) -> str | None:
    match ended.how:
        case JobEnding.timed_out:
            return f"It was stopped at its time limit of {confinement.wall_s:g} seconds. Give it less to do."
        case JobEnding.out_of_memory:
            return f"It was stopped: it exceeded its memory limit of {confinement.memory_bytes // MEGABYTE} MB."
        case JobEnding.too_much_output:
            return f"It was stopped: it printed far more than {confinement.output_bytes} bytes."
        case JobEnding.crashed:
            return "Its sandbox failed before it finished. Try again."
        case JobEnding.finished:
            return "Only the beginning of its output was kept." if ended.truncated else None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")


def _cut(text: str) -> str:
    """The beginning and the end, which say most."""
    if len(text) <= CHARS_MAX:
        return text
    half = CHARS_MAX // 2
    return f"{text[:half]}\n[{len(text) - CHARS_MAX} characters are omitted here]\n{text[-half:]}"
