"""The hint for an agent that got the demo model although nobody asked for it: why, and how to get another one."""

import sys
from typing import Any

from kelpie.cli.output import say
from kelpie.core.errors import KelpieError
from kelpie.world.http.cli_client import Client

DEMO = "kelpie/demo"
SHOWN_MAX = 3


def explain_demo(server: Client) -> None:
    """Prints why a new agent has the demo model. The agent exists already: a list that fails is no error here."""
    report: dict[str, Any] = {"providers": []}
    try:
        report = server.get("/v1/kelpie/models")
    except KelpieError:
        say("The models could not be listed.", file=sys.stderr)
    reason = (report.get("default_model") or {}).get("reason") or "it is set as the default model of the server"
    say(f"{DEMO} is a script, not a language model: {reason.rstrip('.')}.", file=sys.stderr)
    handles = [each["handle"] for provider in report["providers"] for each in provider["models"]]
    others = [handle for handle in handles if handle != DEMO]
    if others:
        shown = ", ".join(others[:SHOWN_MAX]) + (", ..." if len(others) > SHOWN_MAX else "")
        say(f"{len(others)} other models are available: {shown}", file=sys.stderr)
        say(f"Pass --model, or run `kelpie config set agents.default_model {others[0]}`.", file=sys.stderr)
