"""The results of calls that were not run to their end, as the model reads them."""

from kelpie.core.conversations.messages import ToolCall, ToolReturn

INTERRUPTED = (
    "Interrupted: the server stopped while this tool was running. It may or may not have taken effect; "
    "check before you call it again."
)
CANCELLED = "Cancelled: the user cancelled this turn before the tool had a result. It may or may not have taken effect."
LOST = "The result of this call was lost. It may or may not have taken effect."
PAUSED = "Interrupted by pause: this call was not run, because you paused earlier in the same reply."


def interrupted(call: ToolCall) -> ToolReturn:
    """The result of a call that a crash left open."""
    return ToolReturn(call.id, call.name, False, INTERRUPTED, None, (INTERRUPTED,))


def lost(call: ToolCall) -> ToolReturn:
    """Placeholder for the result of a call that cannot be read any more."""
    return ToolReturn(call.id, call.name, False, LOST)


def cancelled(call: ToolCall) -> ToolReturn:
    """The result of a call that was open when its turn was cancelled."""
    return ToolReturn(call.id, call.name, False, CANCELLED, None, (CANCELLED,))


def paused(call: ToolCall) -> ToolReturn:
    """The result of a call that came after a pause in the same reply."""
    return ToolReturn(call.id, call.name, False, PAUSED, None, (PAUSED,), True)
