"""Inspection of a prompt: the request that a provider got, split into parts with their estimated tokens.

The instructions are one text on the wire; here their tagged sections and each memory block stand for themselves.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kelpie.agent.prompt.summary import ALERT
from kelpie.core.token_estimates import estimate
from kelpie.llm.wire.prompt_parts import PromptPart, read_prompt

PARTS_MAX = 5000
_OPENING = re.compile(r"^<([A-Za-z_][\w.-]{0,99})>$", re.MULTILINE)
_BLOCKS = "memory_blocks"
_SUMMARY_CHARS = 200  # of a message, where its kind is looked for


@dataclass(frozen=True, slots=True)
class InspectedPart:
    """`kind` is instructions, memory, tool, summary, user, assistant or result."""

    kind: str
    label: str
    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class InspectedPrompt:
    parts: tuple[InspectedPart, ...]
    options: Mapping[str, Any]
    left_out: int = 0  # parts beyond the limit


def inspect_prompt(body: bytes) -> InspectedPrompt | None:
    """The parts of a request; None when the body is not a whole JSON object."""
    found = read_prompt(body)
    if found is None:
        return None
    parts = [part for wire in found.parts for part in _inspected(wire)]
    return InspectedPrompt(tuple(parts[:PARTS_MAX]), found.options, max(len(parts) - PARTS_MAX, 0))


def _inspected(wire: PromptPart) -> Iterator[InspectedPart]:
    if wire.kind == "system":
        yield from _sections(wire.text)
    elif wire.kind == "tool":
        yield _part("tool", wire.name, wire.text)
    elif wire.role == "user" and ALERT in wire.text[:_SUMMARY_CHARS]:
        yield _part("summary", "summary of removed messages", wire.text)
    else:
        kind = {"tool": "result"}.get(wire.role, wire.role)
        yield _part(kind, wire.name or kind, wire.text)


def _sections(text: str) -> Iterator[InspectedPart]:
    """The tagged sections of the instructions, and what stands between them."""
    plain: list[str] = []
    for name, section in _split(text):
        if name == _BLOCKS:
            yield from _joined(plain)
            plain = []
            yield from _blocks(section)
        elif name == "memory_metadata":
            yield from _joined(plain)
            plain = []
            yield _part("instructions", name, section)
        else:
            plain.append(section)
    yield from _joined(plain)


def _joined(plain: list[str]) -> Iterator[InspectedPart]:
    text = "\n\n".join(plain).strip()
    if text:
        yield _part("instructions", "system instructions", text)


def _blocks(section: str) -> Iterator[InspectedPart]:
    inner = section.removeprefix(f"<{_BLOCKS}>").removesuffix(f"</{_BLOCKS}>")
    for name, text in _split(inner):
        yield _part("memory", f"block {name}" if name else "note on memory", text)


def _split(text: str) -> Iterator[tuple[str, str]]:
    """Top-level sections `<name> ... </name>` with their names, and the texts between them with none."""
    at = 0
    while (opening := _OPENING.search(text, at)) is not None:
        closing = text.find(f"\n</{opening[1]}>", opening.end())
        if closing < 0:
            break
        end = closing + len(opening[1]) + 4
        if before := text[at : opening.start()].strip():
            yield "", before
        yield opening[1], text[opening.start() : end]
        at = end
    if rest := text[at:].strip():
        yield "", rest


def _part(kind: str, label: str, text: str) -> InspectedPart:
    return InspectedPart(kind, label, text, estimate(text))
