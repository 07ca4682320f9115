"""Memory rules of the demo model: the tool, words and block it uses to keep, change and drop facts.

It knows the memory tools by name and uses whichever the agent has. It never edits a read-only block.
"""

import re
from collections.abc import Collection, Sequence

from kelpie.llm.demo.script import Call, Line
from kelpie.llm.demo.turn import Memory

EDITS = ("memory_insert", "memory_replace", "core_memory_append", "core_memory_replace")
ARCHIVE = "archival_memory_insert"

_NAME = re.compile(
    r"(?i:\bmy name(?:'s| is)|\bcall me)\s+(?:actually\s+|now\s+)?"
    r"(?P<name>[^\W\d_][\w'’-]*(?:\s+[A-ZÀ-Þ][\w'’-]*)*)"
)
_TASTE = re.compile(r"(?i:\bI\s+(?:really\s+)?(?P<verb>like|love|prefer|hate))\s+(?P<what>[^.!?;\n]+)")
_REMEMBER = re.compile(r"(?i:\bremember)(?:\s+that|\s*[:,])?\s+(?P<what>.+)", re.DOTALL)
_KNOWN_NAME = re.compile(r"(?im)^\W*(?:name:|my name is|the user's name is)\s*(?P<name>.+?)[\s.]*$")
_WORD = re.compile(r"\w+")
_EMPTY_WORDS = frozenset(re.findall(r"\w+", "a about an and are forget i is it me my of please that the this to your"))
_SUFFIXES = ("ing", "ed", "es", "s")


def facts_in(said: str) -> list[str]:
    """The facts that a person asks to remember; none in a question."""
    if said.rstrip().endswith("?"):
        return []
    asked = _REMEMBER.search(said)
    text = asked["what"].strip() if asked else said
    facts = [f"Name: {found['name']}" for found in _NAME.finditer(text)]
    facts += [f"{found['verb'].capitalize()}s {_clause(found['what'])}" for found in _TASTE.finditer(text)]
    if asked and not _covered(text):
        return [text.rstrip(".! ")]
    return facts


def known_name(memory: Sequence[Memory]) -> str | None:
    """The person's name, if a block contains it."""
    about_person = sorted(memory, key=lambda block: block.label != "human")
    for block in about_person:
        if block.label != "persona" and (found := _KNOWN_NAME.search(block.value)):
            return found["name"]
    return None


def keep(facts: Sequence[str], memory: Sequence[Memory], tools: Collection[str]) -> Line:
    """Stores facts with the available tool."""
    block = _writable(memory)
    if block is None:
        return archive("\n".join(facts), tools)
    new = [fact for fact in facts if fact not in block.value.splitlines()]
    if not new:
        return Line(f"I know that already: {'; '.join(facts)}.")
    outdated = next((line for line in block.value.splitlines() if line.startswith("Name: ")), None)
    if outdated and new[0].startswith("Name: ") and (change := _replace(block, outdated, "\n".join(new), tools)):
        return Line(calls=(change,))
    if "memory_insert" in tools:
        return Line(calls=(Call("memory_insert", {"label": block.label, "new_string": "\n".join(new)}),))
    if "core_memory_append" in tools:
        return Line(calls=(Call("core_memory_append", {"label": block.label, "content": "\n".join(new)}),))
    return archive("\n".join(facts), tools)


def archive(text: str, tools: Collection[str]) -> Line:
    """Stores a text in archival memory."""
    if ARCHIVE in tools:
        return Line(calls=(Call(ARCHIVE, {"content": text}),))
    return Line("I cannot save that: this agent has no memory block and memory tool that I can use.")


def forget(what: str, memory: Sequence[Memory], tools: Collection[str]) -> Line:
    """Removes the line of memory that matches best."""
    wanted = _stems(what)
    candidates = [
        (len(wanted & _stems(line)), block, line)
        for block in memory
        if not block.read_only and block.label != "persona"
        for line in block.value.splitlines()
    ]
    score, block, line = max(candidates, key=lambda candidate: candidate[0], default=(0, None, ""))
    if not score or block is None:
        return Line("I found nothing about that in my memory blocks, so there is nothing to forget.")
    change = _replace(block, line, "", tools)
    return Line(calls=(change,)) if change else Line("I cannot forget that: this agent has no tool to change a block.")


def _replace(block: Memory, old: str, new: str, tools: Collection[str]) -> Call | None:
    if not new and f"{old}\n" in block.value:
        old += "\n"  # leave no empty line behind
    if "memory_replace" in tools:
        return Call("memory_replace", {"label": block.label, "old_string": old, "new_string": new})
    if "core_memory_replace" in tools:
        return Call("core_memory_replace", {"label": block.label, "old_content": old, "new_content": new})
    return None


def _writable(memory: Sequence[Memory]) -> Memory | None:
    open_blocks = [block for block in memory if not block.read_only]
    return next((block for block in open_blocks if block.label == "human"), open_blocks[0] if open_blocks else None)


def _clause(text: str) -> str:
    return re.split(r"\s+and\s+(?=my name|I\b)", text.strip())[0].rstrip(",. ")


def _covered(text: str) -> bool:
    """Checks whether the text contains nothing but names and tastes."""
    rest = _TASTE.sub("", _NAME.sub("", text))
    return not set(_WORD.findall(rest.lower())) - _EMPTY_WORDS


def _stems(text: str) -> set[str]:
    return {_stem(word) for word in _WORD.findall(text.lower())} - _EMPTY_WORDS


def _stem(word: str) -> str:
    for suffix in _SUFFIXES:
        if len(word) > len(suffix) + 2 and word.endswith(suffix):
            return word.removesuffix(suffix)
    return word
