"""Messages in the form of the model, each as its kind and its text, and the turns of the scripted model."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kelpie.sim.ports.scripted_model import token_of

Said = list[str]
SUMMARY = "user summary"
_TYPES = {
    "user": "user_message",
    "assistant": "assistant_message",
    "call": "tool_call_message",
    "return": "tool_return_message",
}


def turn_of(text: str) -> Said:
    """The messages of a turn of the scripted model that nothing disturbs."""
    said = [f"user {text}"]
    for line in text.split("\n")[1:]:
        if line.startswith("call outside"):
            said += [f"call outside {line.partition(' outside ')[2]}", "return outside success"]
        else:
            words = json.dumps({"label": "human", "new_string": line.removeprefix("remember ")})
            said += [f"call memory_insert {words}", "return memory_insert success"]
    return [*said, f"assistant echo {token_of(text)}"]


def bounded(turn: Said, max_steps: int | None) -> Said:
    """The part of a turn that so many steps make: each is one call with its result, the last one the answer."""
    steps = sum(said.startswith("call") for said in turn) + 1
    return turn if max_steps is None or max_steps >= steps else turn[: 1 + 2 * max_steps]


def shown_of(said: Said, asked: Mapping[str, Any]) -> Said:
    """The messages of the types that a client wants to be shown."""
    types = asked.get("include_return_message_types")
    return said if types is None else [one for one in said if _TYPES[one.split(" ")[0]] in types]


def is_beginning(said: Said, turn: Said) -> bool:
    """True if a turn that was cut off may have left this: its first messages, some results perhaps errors."""
    return not said or (is_part(said, turn) and not said[-1].startswith(("call", "user")))


def is_part(said: Said, turn: Said) -> bool:
    allowed = [{one, one.replace("success", "error")} if one.startswith("return") else {one} for one in turn]
    return len(said) <= len(turn) and all(one in could for one, could in zip(said, allowed, strict=False))


def said_in(messages: Sequence[Mapping[str, Any]]) -> Said:
    """Messages of the API in the form of the model; the pieces of a streamed one are joined."""
    said: dict[tuple[str, str], tuple[str, str]] = {}
    names: dict[str, str] = {}
    for message in messages:
        kind = message["message_type"]
        if kind in ("user_message", "assistant_message"):
            key = (message["id"], kind)
            said[key] = (kind.removesuffix("_message"), said.get(key, ("", ""))[1] + _shortened(message["content"]))
        elif kind == "tool_call_message":
            for call in [message["tool_call"]] if "tool_call" in message else message["tool_calls"]:
                key = (message["id"], "call")
                if call.get("name"):
                    names[call["tool_call_id"]] = call["name"]
                    said[key] = (f"call {call['name']}", said.get(key, ("", ""))[1])
                before = said.get(key, ("", ""))
                said[key] = (before[0], before[1] + (call.get("arguments") or ""))
        elif kind == "tool_return_message":
            for each in message["tool_returns"]:
                name = names.get(each["tool_call_id"], message["name"])
                said[message["id"], each["tool_call_id"]] = (f"return {name}", each["status"])
    return [f"{kind} {text}" for kind, text in said.values()]


def _shortened(content: Any) -> str:
    """A text, or a word for a summary of earlier ones."""
    return "summary" if "This is a summary of them" in str(content) else str(content)


def has_number(frame: Mapping[str, Any]) -> bool:
    return frame.get("seq_id") is not None and frame["message_type"] != "ping"


def numbered_frames(frames: Sequence[Mapping[str, Any]]) -> list[str]:
    return [json.dumps(frame, sort_keys=True) for frame in frames if has_number(frame)]


def said_in_prompt(messages: Sequence[Mapping[str, Any]]) -> Said:
    """Messages of a prompt in the form of the model."""
    said: Said = []
    names: dict[str, str] = {}
    for message in messages:
        if message["role"] == "tool":
            failed = '"status": "Failed"' in str(message["content"]) or str(message["content"]).startswith("Error")
            said.append(f"return {names[message['tool_call_id']]} {'error' if failed else 'success'}")
            continue
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
            said.append(f"call {call['function']['name']} {call['function']['arguments']}")
        if message.get("content"):
            said.append(f"{message['role']} {_shortened(message['content'])}")
    return said
