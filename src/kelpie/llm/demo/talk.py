"""Answers of the demo model: a few phrases it understands, tried in order, and an honest echo otherwise."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from kelpie.core.conversations.messages import ToolReturn
from kelpie.llm.demo.memory import ARCHIVE, EDITS, archive, facts_in, forget, keep, known_name
from kelpie.llm.demo.script import Call, Line
from kelpie.llm.demo.turn import Memory, Turn, read_memory, unwrap
from kelpie.llm.provider.interface import Request

WHAT_I_AM = "I am Kelpie's built-in demo model: a small program, not a language model."
WHAT_I_CAN = (
    'I understand "my name is ...", "I like ...", "remember that ...", "forget ...", "what do you know about me?", '
    '"search for ..." and "use <tool> {json}".'
)
QUOTE_CHARS_MAX = 600

_USE = re.compile(
    r"(?:please\s+)?(?:use|call)\s+(?:the\s+)?(?:tool\s+)?[`'\"]?(?P<name>[\w.-]+)[`'\"]?(?:\s+tool)?(?:\s+with)?:?\s*"
    r"(?P<arguments>\{.*\})?\s*[.!]?",
    re.IGNORECASE | re.DOTALL,
)
_FORGET = re.compile(r"(?:please\s+)?forget\s+(?:about\s+)?(?:that\s+)?(?P<what>.+)", re.IGNORECASE | re.DOTALL)
_ARCHIVE = re.compile(
    r"(?:please\s+)?(?:archive|(?:remember|keep|store|save|put)\s+in(?:to)?\s+(?:your|the)\s+archive)"
    r"(?:\s+that|\s*[:,])?\s+(?P<what>.+)",
    re.IGNORECASE | re.DOTALL,
)
_SEARCH = re.compile(
    r"(?:please\s+)?search\s+(?P<archive>(?:in\s+)?(?:your|the)\s+archive\s+)?(?:for\s+)?(?P<what>.+)",
    re.IGNORECASE | re.DOTALL,
)
_ASK_NAME = re.compile(r"\bwhat(?:'s|\s+is)\s+my\s+name\b|\bwho\s+am\s+i\b|\bknow\s+my\s+name\b", re.IGNORECASE)
_ASK_MEMORY = re.compile(r"\bwhat\s+(?:do|can)\s+you\s+(?:remember|know)\b|\bwhat\s+have\s+i\s+told\b", re.IGNORECASE)
_GREETING = re.compile(r"(?:hi|hello|hey|hallo|greetings|good\s+(?:morning|day|afternoon|evening))\b", re.IGNORECASE)
_HELP = re.compile(r"\bwhat\s+can\s+you\s+do\b|\bwho\s+are\s+you\b|^help\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Scene:
    said: str
    tools: tuple[str, ...]
    memory: list[Memory]


def talk(request: Request, turn: Turn) -> Line:
    """The demo model's own answer at this point of the turn."""
    if turn.returns:
        return Line("\n".join(_report(given, turn.said) for given in turn.returns))
    tools = () if request.tool_choice == "none" else tuple(tool.name for tool in request.tools)
    scene = _Scene(turn.said, tools, read_memory(request.system))
    for phrase in _PHRASES:
        line = phrase(scene)
        if line is not None:
            return line
    return Line(f"You said: “{_cut(scene.said)}”. {WHAT_I_AM} {WHAT_I_CAN}")


def _use_tool(scene: _Scene) -> Line | None:
    asked = _USE.fullmatch(scene.said)
    if asked is None or (asked["name"] not in scene.tools and asked["arguments"] is None):
        return None
    if asked["name"] not in scene.tools:
        return Line(f"I have no tool named {asked['name']}. I have: {', '.join(scene.tools) or 'none'}.")
    try:
        arguments = orjson.loads(asked["arguments"] or "{}")
    except orjson.JSONDecodeError as error:
        return Line(f"The arguments for {asked['name']} are not JSON: {error}.")
    return Line(calls=(Call(asked["name"], arguments),))


def _forget(scene: _Scene) -> Line | None:
    asked = _FORGET.fullmatch(scene.said)
    return forget(asked["what"], scene.memory, scene.tools) if asked else None


def _archive(scene: _Scene) -> Line | None:
    asked = _ARCHIVE.fullmatch(scene.said)
    return archive(asked["what"].strip(), scene.tools) if asked else None


def _search(scene: _Scene) -> Line | None:
    asked = _SEARCH.fullmatch(scene.said)
    if asked is None:
        return None
    wanted = "archival_memory_search" if asked["archive"] else "conversation_search"
    if wanted not in scene.tools:
        return Line(f"I cannot search: this agent does not have the tool {wanted}.")
    return Line(calls=(Call(wanted, {"query": asked["what"].strip(" .?!")}),))


def _say_name(scene: _Scene) -> Line | None:
    if not _ASK_NAME.search(scene.said):
        return None
    name = known_name(scene.memory)
    return Line(f"Your name is {name}." if name else 'I do not know your name yet. Tell me with "my name is ...".')


def _show_memory(scene: _Scene) -> Line | None:
    if not _ASK_MEMORY.search(scene.said):
        return None
    blocks = [block for block in scene.memory if block.value.strip() and block.label != "persona"]
    if not blocks:
        return Line("My memory holds nothing about you yet.")
    return Line("This is in my memory:\n" + "\n".join(f"[{block.label}] {block.value.strip()}" for block in blocks))


def _keep(scene: _Scene) -> Line | None:
    facts = facts_in(scene.said)
    return keep(facts, scene.memory, scene.tools) if facts else None


def _greet(scene: _Scene) -> Line | None:
    if not _GREETING.match(scene.said):
        return None
    name = known_name(scene.memory)
    return Line(f"Hello{f', {name}' if name else ''}! {WHAT_I_AM} {WHAT_I_CAN}")


def _help(scene: _Scene) -> Line | None:
    return Line(f"{WHAT_I_AM} {WHAT_I_CAN}") if _HELP.search(scene.said) else None


_PHRASES: tuple[Callable[[_Scene], Line | None], ...] = (
    _use_tool,
    _forget,
    _archive,
    _search,
    _say_name,
    _show_memory,
    _keep,
    _greet,
    _help,
)


def _report(given: ToolReturn, said: str) -> str:
    """A sentence about a tool's result."""
    text = _cut(unwrap(given.text))
    if not given.ok:
        return f"The tool {given.name} failed: {text}"
    if given.name in EDITS and _FORGET.fullmatch(said):
        return "I have forgotten that."
    if given.name in EDITS and (facts := facts_in(said)):
        return f"I will remember: {'; '.join(facts)}."
    if given.name == ARCHIVE:
        return "I have stored that in my archive."
    return f"The tool {given.name} returned: {text}"


def _cut(text: str) -> str:
    return text if len(text) <= QUOTE_CHARS_MAX else text[:QUOTE_CHARS_MAX] + "…"
