"""Options that set lists of patterns and limits, for an agent and for all, and the lines that show them."""

from typing import Annotated, Any

import typer

from kelpie.core.errors import InvalidInput

Allow = Annotated[list[str] | None, typer.Option(help="A pattern of tools that may be used; may be given again.")]
Deny = Annotated[list[str] | None, typer.Option(help="A pattern of tools that may not; may be given again.")]
Clear = Annotated[bool, typer.Option("--clear", help="Take away what is set.")]
ToolCalls = Annotated[int | None, typer.Option("--tool-calls", min=0, help="Tool calls in each hour.")]
Tokens = Annotated[int | None, typer.Option("--tokens", min=0, help="Tokens in each hour.")]
CpuSeconds = Annotated[float | None, typer.Option("--cpu-seconds", min=0, help="Processor time in each hour.")]
MemoryMb = Annotated[int | None, typer.Option("--memory-mb", min=16, help="Megabytes that one call may have.")]
Timeout = Annotated[float | None, typer.Option("--timeout", min=0.001, help="Seconds that one call may take.")]
CpuShare = Annotated[float | None, typer.Option("--cpu-share", min=0.001, help="Cores that one call may keep busy.")]
Processes = Annotated[int | None, typer.Option("--processes", min=1, help="Processes that one call may have.")]
OutputMb = Annotated[float | None, typer.Option("--output-mb", min=0.001, help="Megabytes that one call may print.")]


def permits(allow: list[str] | None, deny: list[str] | None) -> dict[str, Any] | None:
    """The lists as they are sent; None when none is given."""
    return {"allow": allow or None, "deny": deny or []} if allow or deny else None


def limits(**given: float | None) -> dict[str, Any] | None:
    """The limits as they are sent, by their names there; None when none is given."""
    return given if any(value is not None for value in given.values()) else None


def check_clear(clear: bool, *given: Any) -> None:
    """Raises InvalidInput when something is set and taken away at once."""
    if clear and any(each is not None for each in given):
        raise InvalidInput("--clear", "takes everything away; give it alone")


def permits_line(shape: dict[str, Any] | None) -> str:
    """Lists in words."""
    if shape is None or (shape["allow"] is None and not shape["deny"]):
        return "all tools"
    allow = "all tools" if shape["allow"] is None else ", ".join(shape["allow"]) or "no tool"
    return allow + (f"; not {', '.join(shape['deny'])}" if shape["deny"] else "")


def limits_line(shape: dict[str, Any] | None) -> str:
    """Limits in words."""
    words = {
        "tool_calls_per_hour": "{:g} tool calls an hour",
        "tokens_per_hour": "{:g} tokens an hour",
        "cpu_seconds_per_hour": "{:g} s of processor time an hour",
        "memory_mb": "{:g} MB a call",
        "timeout_s": "{:g} s a call",
        "cpu_share": "{:g} cores a call",
        "processes": "{:g} processes a call",
        "output_mb": "{:g} MB of output a call",
    }
    given = [text.format(shape[name]) for name, text in words.items() if shape and shape[name] is not None]
    return ", ".join(given) or "none"
