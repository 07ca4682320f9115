"""Questions about tool calls that wait for a person: run, deny, or change the arguments first."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from kelpie.cli.chat.approval_answers import approval, denial, waiting_calls
from kelpie.cli.chat.screen import Screen
from kelpie.cli.chat.tool_text import parsed_arguments
from kelpie.cli.typed_text import edited, json_object
from kelpie.core.errors import InvalidInput
from kelpie.world.files.line_history import one_answer
from kelpie.world.processes.editor import editor_command

Ask = Callable[[str], str]  # shows a prompt and gives a line

QUESTION = "Run this? [y]es, [n]o, [e]dit, [l]ater> "
FOR_CLIENT = "This tool runs in the program that offered it. [n]o denies the call, [l]ater leaves it> "
LATER = ("l", "later")


def decisions(screen: Screen, request: Mapping[str, Any], ask: Ask) -> list[dict[str, Any]] | None:
    """Asks about every waiting call of a request; None when the person wants to decide later.

    Raises KeyboardInterrupt and EOFError, which mean the same.
    """
    calls = waiting_calls(request)
    found: list[dict[str, Any]] = []
    for place, call in enumerate(calls, 1):
        which = f"Tool call {place} of {len(calls)}" if len(calls) > 1 else "A tool call"
        screen.note(f"{which} waits for your approval." if call["waits_for"] == "approval" else f"{which} waits.")
        answer = _decision(screen, call, ask)
        if answer is None:
            return None
        found.append(answer)
    return found


def _decision(screen: Screen, call: Mapping[str, Any], ask: Ask) -> dict[str, Any] | None:
    """Asks until there is an answer."""
    for_client = call["waits_for"] == "client"
    arguments = call["arguments"]
    screen.show_call(call["name"], arguments)
    while True:
        word, _, rest = one_answer(ask, FOR_CLIENT if for_client else QUESTION).strip().partition(" ")
        word = word.lower()
        if word in LATER:
            return None
        if word in ("n", "no"):
            return denial(call["tool_call_id"], rest.strip() or one_answer(ask, "Reason (optional)> ").strip())
        if word in ("y", "yes") and not for_client:
            changed = parsed_arguments(arguments) if arguments != call["arguments"] else None
            return approval(call["tool_call_id"], changed)
        if word in ("e", "edit") and not for_client:
            try:
                arguments = _edited(arguments, ask)
            except InvalidInput as error:
                screen.print_error(str(error))
                continue
            screen.show_call(call["name"], arguments)
        elif word:
            screen.print_error(f"'{word[:40]}' is not an answer; type one of the letters in brackets")


def _edited(arguments: str, ask: Ask) -> str:
    """The arguments after the person has changed them, in the editor or on the line. Raises InvalidInput."""
    given = parsed_arguments(arguments)
    if editor_command() is not None:
        texts = [arguments if given is None else json.dumps(given, indent=2, ensure_ascii=False)]
        edited(texts[0], ".json", texts.append)
        text = texts[-1]
    else:
        shown = arguments if given is None else json.dumps(given, ensure_ascii=False)
        text = one_answer(ask, "Arguments> ", shown)
    return json.dumps(json_object(text, "arguments"), ensure_ascii=False) if text.strip() else arguments
