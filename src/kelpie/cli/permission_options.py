"""Options for permissions and limits, shared by agents and the tool policy, and the lines that show them."""

from typing import Annotated, Any

import typer

from kelpie.core.errors import InvalidInput

Allow = Annotated[list[str] | None, typer.Option(help="Allow only tools that match this pattern (repeatable).")]
Deny = Annotated[list[str] | None, typer.Option(help="Deny tools that match this pattern (repeatable).")]
Clear = Annotated[bool, typer.Option("--clear", help="Remove what is set.")]
ToolCalls = Annotated[int | None, typer.Option("--tool-calls", min=0, help="Tool calls per hour.")]
Tokens = Annotated[int | None, typer.Option("--tokens", min=0, help="Tokens per hour.")]
CpuSeconds = Annotated[float | None, typer.Option("--cpu-seconds", min=0, help="CPU seconds per hour.")]
MemoryMb = Annotated[int | None, typer.Option("--memory-mb", min=16, help="Memory per call, in MB.")]
Timeout = Annotated[float | None, typer.Option("--timeout", min=0.001, help="Time per call, in seconds.")]
CpuShare = Annotated[float | None, typer.Option("--cpu-share", min=0.001, help="CPU cores per call.")]
Processes = Annotated[int | None, typer.Option("--processes", min=1, help="Processes per call.")]
OutputMb = Annotated[float | None, typer.Option("--output-mb", min=0.001, help="Output per call, in MB.")]
ScratchMb = Annotated[int | None, typer.Option("--scratch-mb", min=1, help="Temporary disk space per call, in MB.")]


def permits(allow: list[str] | None, deny: list[str] | None) -> dict[str, Any] | None:
    """Returns the request body for permissions, or None when no option is given."""
    return {"allow": allow or None, "deny": deny or []} if allow or deny else None


def limits(**given: float | None) -> dict[str, Any] | None:
    """Returns the request body for limits, or None when no option is given."""
    return given if any(value is not None for value in given.values()) else None


def check_clear(clear: bool, *given: Any) -> None:
    """Raises InvalidInput when `--clear` is combined with an option that sets something."""
    if clear and any(each is not None for each in given):
        raise InvalidInput("--clear", "removes everything that is set; do not combine it with other options")


def permits_line(shape: dict[str, Any] | None) -> str:
    """Formats permissions as one line."""
    if shape is None or (shape["allow"] is None and not shape["deny"]):
        return "all tools"
    allow = "all tools" if shape["allow"] is None else ", ".join(shape["allow"]) or "no tools"
    return allow + (f", except {', '.join(shape['deny'])}" if shape["deny"] else "")


def limits_line(shape: dict[str, Any] | None) -> str:
    """Formats limits as one line."""
    words = {
        "tool_calls_per_hour": "{:g} tool calls per hour",
        "tokens_per_hour": "{:g} tokens per hour",
        "cpu_seconds_per_hour": "{:g} CPU seconds per hour",
        "memory_mb": "{:g} MB per call",
        "timeout_s": "{:g} s per call",
        "cpu_share": "{:g} CPU cores per call",
        "processes": "{:g} processes per call",
        "output_mb": "{:g} MB of output per call",
        "scratch_mb": "{:g} MB of temporary disk space per call",
    }
    given = [text.format(shape[name]) for name, text in words.items() if shape and shape[name] is not None]
    return ", ".join(given) or "none"
