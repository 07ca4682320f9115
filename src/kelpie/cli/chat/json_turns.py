"""Turns as JSON, one object per line, for programs."""

from typing import Any

from kelpie.cli.chat.conversation import Conversation
from kelpie.cli.chat.turn import Turn
from kelpie.cli.output import print_json
from kelpie.core.errors import KelpieError
from kelpie.world.http.cli_client import error_sentence


def print_turn(conversation: Conversation, turn: Turn) -> bool:
    """Plays a turn and prints its messages, its end and its usage; False when it did not go well.

    Ctrl-C cancels the turn and ends the command.
    """
    told: dict[str, Any] = {
        "agent_id": conversation.agent_id,
        "conversation_id": conversation.id,
        "run_id": None,
        "messages": [],
        "stop_reason": None,
        "usage": None,
        "error": None,
    }
    try:
        for name, event in turn.events():
            _add(told, name, event)
    except KeyboardInterrupt:
        turn.cancel(conversation.agent_id)
        raise
    except KelpieError as error:
        told["error"] = str(error)
    told["run_id"] = turn.run_id
    print_json(told, indent=None)
    return told["error"] is None and told["stop_reason"] not in ("requires_approval", "cancelled")


def _add(told: dict[str, Any], name: str, event: dict[str, Any]) -> None:
    match event.get("message_type"):
        case "stop_reason":
            told["stop_reason"] = event["stop_reason"]
        case "usage_statistics":
            told["usage"] = event
        case "ping" | None:
            pass
        case kind if name == "error" or kind == "error_message":
            told["error"] = error_sentence(event)
        case _:
            told["messages"].append(event)
