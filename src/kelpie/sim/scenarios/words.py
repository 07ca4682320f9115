"""What people said to calls that waited, and what must have become of it on the disk.

Every call that waited has one answer and one result that fits it, nothing ran without somebody's word, and what was
acknowledged is there. A result without an answer is a wait that something other than a person has ended.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kelpie.sim.disk import Disk
from kelpie.sim.errors import Broken
from kelpie.sim.scenarios.people import Heard

_REQUEST = re.compile(r"message-[0-9a-f-]{36}")


@dataclass(frozen=True, slots=True)
class Lane:
    """A conversation of an agent; None is the one that every agent has."""

    agent_id: str
    conversation: str | None = None

    @property
    def messages(self) -> str:
        if self.conversation is None:
            return f"/v1/agents/{self.agent_id}/messages"
        return f"/v1/conversations/{self.conversation}/messages"

    @property
    def cancel(self) -> str:
        return f"/v1/conversations/{self.conversation or 'default'}/cancel?agent_id={self.agent_id}"


@dataclass(frozen=True, slots=True)
class Request:
    """What a conversation waits for."""

    id: str
    calls: tuple[Mapping[str, Any], ...]


@dataclass(slots=True)
class Word:
    """One answer to one call, as somebody has sent it."""

    agent_id: str
    answer: Mapping[str, Any]
    acknowledged: bool = False
    refused: bool = False

    @property
    def approves(self) -> bool:
        return self.answer["type"] == "approval" and self.answer["approve"]


def waiting(disk: Disk, lane: Lane) -> Request | None:
    """What this conversation waits for now, without the calls that were answered."""
    found = disk.query(
        "SELECT m.id, m.tool_calls, a.answers FROM approvals a JOIN messages m ON m.id = a.message_id "
        "WHERE a.agent_id = ? AND a.conversation_id = ?",
        lane.agent_id,
        lane.conversation or "",
    )
    if not found:
        return None
    [(request_id, calls, answers)] = found
    known = {answer["call_id"] for answer in json.loads(answers)}
    open_calls = tuple(call for call in json.loads(calls) if "awaits" in call and call["id"] not in known)
    return Request(request_id, open_calls)


class Waits:
    """A watch over the disk: when each request was no longer waiting."""

    def __init__(self, now: Any) -> None:
        self.seen: set[str] = set()
        self.ended_s: dict[str, float] = {}
        self._now = now

    def __call__(self, disk: Disk) -> None:
        waiting = {request_id for (request_id,) in disk.query("SELECT message_id FROM approvals")}
        self.ended_s.update((request_id, self._now()) for request_id in sorted(self.seen - waiting - set(self.ended_s)))
        self.seen |= waiting

    def are_told_truly(self, heard: Iterable[Heard]) -> None:
        """Whoever was told that something waits was told so while it did."""
        for each in heard:
            if each.status != 409 or "PENDING_APPROVAL" not in each.trouble:
                continue
            named = _REQUEST.search(each.trouble)  # one that came and went between two looks has no end here
            if not named or self.ended_s.get(named.group(0), float("inf")) < each.said.called_s:
                raise Broken("a wait is told truly", f"{each.said.token} was told {each.trouble}")


def kept(disk: Disk, words: Iterable[Word], emptied: Iterable[str], effects: Mapping[str, int]) -> None:
    """Looks at every call that ever waited. `emptied` are agents whose history somebody has deleted."""
    calls: dict[str, Mapping[str, Any]] = {}
    said: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    results: dict[str, Mapping[str, Any]] = {}
    for made, returned, answers in disk.query("SELECT tool_calls, tool_returns, answers FROM messages ORDER BY seq"):
        calls |= {call["id"]: call for call in json.loads(made) if "awaits" in call}
        results |= {result["call_id"]: result for result in json.loads(returned)}
        for answer in json.loads(answers or "null") or ():
            said[answer["call_id"]].append(answer)
    for call_id in calls:
        if len(said[call_id]) != 1:
            told = f"{call_id} has {len(said[call_id])} answers, and the result {results.get(call_id)}"
            raise Broken("every call that waited was answered once", told)
        _fits(said[call_id][0], results[call_id])
    _acknowledged(words, said, set(emptied))
    allowed = {_mark(calls[call_id], said[call_id][0]) for call_id in calls if said[call_id][0].get("approve")}
    allowed |= {_mark_sent(word) for word in words if word.agent_id in emptied and word.approves}
    if strange := [mark for mark in effects if mark not in allowed]:
        raise Broken("nothing runs without somebody's word", f"{strange} took effect")


def _fits(answer: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    if answer["type"] == "return":
        sound = (result["ok"], result["text"]) == (answer["ok"], answer["text"])
    else:
        sound = answer["approve"] or (not result["ok"] and "Denied" in result["text"])
    if not sound:
        raise Broken("a result is what was said", f"{answer} became {result}")


def _acknowledged(words: Iterable[Word], said: Mapping[str, list[Mapping[str, Any]]], emptied: set[str]) -> None:
    for word in words:
        if not word.acknowledged or word.agent_id in emptied:
            continue
        stored = said.get(word.answer["tool_call_id"])
        if not stored or not _same(word.answer, stored[0]):
            raise Broken("no acknowledged answer is lost", f"{word.answer} is stored as {stored}")


def taken(disk: Disk, word: Word) -> bool:
    """Whether this very answer is the one that a call was given."""
    stored = [
        answer
        for (answers,) in disk.query("SELECT answers FROM messages WHERE answers IS NOT NULL")
        for answer in json.loads(answers) or ()
        if answer["call_id"] == word.answer["tool_call_id"]
    ]
    return any(_same(word.answer, one) and one.get("reason") == word.answer.get("reason") for one in stored)


def _same(sent: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    if sent["type"] == "tool":
        return stored["type"] == "return" and stored["text"] == sent["tool_return"]
    changed = json.loads(stored["arguments"]) if stored.get("arguments") else None
    return stored.get("approve") == sent["approve"] and changed == sent.get("arguments")


def _mark(call: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    return json.loads(answer["arguments"] or call["arguments"])["mark"]


def _mark_sent(word: Word) -> str:
    return word.answer["arguments"]["mark"] if word.answer.get("arguments") else word.answer["mark"]
