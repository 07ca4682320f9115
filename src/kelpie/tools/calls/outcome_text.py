"""Text of the end of a job: for the model as a result, for clients with the tool's output."""

from kelpie.core.tools.confinement import MEGABYTE, Confinement
from kelpie.core.tools.sandbox_caps import reduction
from kelpie.sandbox.port import JobEnding, JobResult
from kelpie.sandbox.runner_messages import read_answer
from kelpie.tools.calls.interface import Outcome


def outcome_of(name: str, ended: JobResult, held: Confinement, asked: Confinement) -> Outcome:
    """The outcome of a call that was held to a confinement; its tool asked for another."""
    stdout, stderr = _printed(ended.stdout), _printed(ended.stderr)
    cpu, peak = ended.cpu_us or 0, ended.memory_peak_bytes or 0
    answer = read_answer(ended.result) if ended.result is not None and ended.how is JobEnding.finished else None
    if answer is not None and answer.ok:
        text = answer.text
        return Outcome(text, stdout=stdout, stderr=stderr, value=answer.value, cpu_us=cpu, memory_peak_bytes=peak)
    said = answer.text if answer is not None else _why(ended, held)
    text = f"Error executing function {name}: {said}"
    if less := reduction(asked, held):
        text = f"{text}. {less}"
    printed = "".join(stderr) + (answer.traceback if answer is not None else "")
    told = (printed or text,)
    return Outcome(text, ok=False, stdout=stdout, stderr=told, cpu_us=cpu, memory_peak_bytes=peak)


def within(text: str, limit: int) -> str:
    """The text, cut to a tool's limit."""
    if len(text) <= limit:
        return text
    # Clients match "function output was truncated".
    note = f"function output was truncated: it has {len(text)} characters, and this tool may return {limit}"
    return f"{text[:limit]}\n[{note}]"


def _why(ended: JobResult, held: Confinement) -> str:
    match ended.how:
        case JobEnding.timed_out:
            return f"it exceeded its time limit of {held.wall_s:g} s and was stopped"
        case JobEnding.out_of_memory:
            return f"it exceeded its memory limit of {held.memory_bytes // MEGABYTE} MB and was stopped"
        case JobEnding.too_much_output:
            return "it exceeded its output limit and was stopped"
        case JobEnding.crashed:
            return "its sandbox failed; call it again"
        case JobEnding.finished:
            return f"it ended with exit code {ended.code} before its function returned"


def _printed(output: bytes) -> tuple[str, ...]:
    """The output, as the one piece that clients expect; no output is no piece."""
    return (output.decode("utf-8", "replace").replace("\0", "\ufffd"),) if output else ()
