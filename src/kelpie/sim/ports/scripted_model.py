"""The decisions of the scripted model, as a pure function of the request: the same chat always gets the same reply.

Scripts are written in the user's text. Each line `call NAME {json}` is one step, `&` joins calls of the same step,
`remember WORDS` writes to core memory with whatever tool is offered; when the script is done, and for every other text,
the answer echoes the token of the input, so that a check can match answers to questions. A summary repeats every token
of the input.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Chat = Sequence[Mapping[str, Any]]

_SUMMING_UP = re.compile(r"<transcript>|removed from your context")
_TOKEN = re.compile(r"\btok-[0-9a-z-]+")
_CALL = re.compile(r"^\s*call\s+([A-Za-z_][\w-]*)\s*(\{.*\})?\s*$", re.DOTALL)
_REMEMBER = re.compile(r"^\s*remember\s+(.+)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Either text or calls."""

    text: str = ""
    calls: tuple[Call, ...] = ()


def decide(messages: Chat, tools: Sequence[str], tool_choice: Any = None) -> Decision:
    """The reply to a chat, given the names of the tools on offer."""
    asked = _last_user(messages)
    text = _text_of(messages[asked]) if asked is not None else ""
    if sums_up(messages):
        told = "\n".join(_text_of(message) for message in messages if message.get("role") != "system")
        return Decision(text=" ".join(["summary of", *dict.fromkeys(_TOKEN.findall(told))]))
    if "<conversation>" in text:
        return Decision(text=_facts(text.partition("<conversation>")[2]))
    since = messages[asked + 1 :] if asked is not None else messages
    done = sum(1 for message in since if message.get("tool_calls"))
    script = _script(text, tools)
    if done < len(script):
        return Decision(calls=_numbered(messages, script[done]))
    forced = _forced(tool_choice)
    if forced and not done:
        return Decision(calls=_numbered(messages, ((forced, "{}"),)))
    answer = f"echo {token_of(text)}"
    if "send_message" in tools and not _sent(since):
        return Decision(calls=_numbered(messages, (("send_message", json.dumps({"message": answer})),)))
    return Decision(text=answer)


def _facts(conversation: str) -> str:
    """A fact for every token in a user's message, and the one that a message `learn JSON` gives, with its aliases."""
    said = re.findall(r"^\[(\d+)\] \S+ user: (.*)", conversation, re.MULTILINE)
    aliases: list[str] = []
    facts = [
        {
            "subject": "user", "attribute": "said", "value": token, "statement": f"The user said {token}.",
            "one_value": False, "sources": [int(number)], "confidence": 1.0,
        }
        for number, line in said
        for token in dict.fromkeys(_TOKEN.findall(line))
    ]  # fmt: skip
    for number, line in said:
        if line.startswith("learn "):
            given = json.JSONDecoder().raw_decode(line.removeprefix("learn "))[0]
            aliases += given.pop("aliases", [])
            told = {"statement": f"The user's {given['attribute']}: {given['value']}.", "one_value": True}
            facts.append({"subject": "user", "sources": [int(number)], "confidence": 1.0, **told, **given})
    return json.dumps({"entities": [{"name": "user", "kind": "person", "aliases": aliases}], "facts": facts})


def sums_up(messages: Chat) -> bool:
    """True if the request asks for a summary."""
    asked = _last_user(messages)
    return asked is not None and _SUMMING_UP.search(_text_of(messages[asked])) is not None


def token_of(text: str) -> str:
    """The `tok-...` word of a text, or a digest of it when it has none."""
    found = _TOKEN.search(text)
    return found.group(0) if found else "tok-" + hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _script(text: str, tools: Sequence[str]) -> list[tuple[tuple[str, str], ...]]:
    """The steps that the text asks for, each a group of (name, arguments)."""
    steps: list[tuple[tuple[str, str], ...]] = []
    for line in text.split("\n"):
        group = [found.groups() for part in line.split(" & ") if (found := _CALL.match(part))]
        if group:
            steps.append(tuple((name, arguments or "{}") for name, arguments in group))
        elif (words := _REMEMBER.match(line)) and (call := _remembering(words.group(1).strip(), tools)):
            steps.append((call,))
    return steps


def _remembering(words: str, tools: Sequence[str]) -> tuple[str, str] | None:
    if "core_memory_append" in tools:
        return "core_memory_append", json.dumps({"label": "human", "content": words})
    if "memory_insert" in tools:
        return "memory_insert", json.dumps({"label": "human", "new_string": words})
    return None


def _numbered(messages: Chat, group: Sequence[tuple[str, str]]) -> tuple[Call, ...]:
    """Ids from the chat itself: a retry of one request gets the same ids, the next step gets others."""
    digest = hashlib.blake2b(json.dumps(messages, sort_keys=True, default=str).encode(), digest_size=9).hexdigest()
    return tuple(Call(f"call_{digest}{index}", name, arguments) for index, (name, arguments) in enumerate(group))


def _last_user(messages: Chat) -> int | None:
    """Position of the last user message; messages that the server added, such as a heartbeat, do not count."""
    places = range(len(messages) - 1, -1, -1)
    return next((i for i in places if messages[i].get("role") == "user" and not _is_event(messages[i])), None)


def _is_event(message: Mapping[str, Any]) -> bool:
    text = str(message.get("content") or "").lstrip()
    return text.startswith("{") and ('"type": "heartbeat"' in text or '"type": "system_alert"' in text)


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    text = str(content or "")
    if text.lstrip().startswith("{"):  # older agent types wrap what the user said
        try:
            wrapped = json.loads(text)
        except ValueError:
            return text
        return str(wrapped.get("message", text))
    return text


def _forced(tool_choice: Any) -> str | None:
    return tool_choice.get("function", {}).get("name") if isinstance(tool_choice, dict) else None


def _sent(since: Chat) -> bool:
    return any(
        call.get("function", {}).get("name") == "send_message" for m in since for call in m.get("tool_calls") or ()
    )
