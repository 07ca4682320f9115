"""What must hold for the whole server, beside the invariants of `sim.checkers`: between what people heard, what the
model was shown, what the outside did, and what is on the disk. Each raises Broken.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping
from typing import Any

from kelpie.core.runs import StopReason
from kelpie.sim.disk import Disk
from kelpie.sim.errors import Broken
from kelpie.sim.history import Fate, History, Said
from kelpie.sim.llm import Seen
from kelpie.sim.scenarios.people import Heard
from kelpie.sim.scenarios.prompts import element

_APPENDS = {"memory_insert": "new_string", "core_memory_append": "content"}
_WITHOUT_MEMORY = ("react_agent", "workflow_agent")  # in their prompts
_REPEATED = (408, 409, 429)


def said_in_order(disk: Disk, history: History) -> None:
    """A message that was sent after another one had been answered stands after it in the history."""
    places = _places(disk, history.said)
    by_agent: dict[str, list[Said]] = defaultdict(list)
    for said in history.by_fate(Fate.acknowledged):
        if said.token in places:
            by_agent[said.agent_id].append(said)
    for agent_id, messages in by_agent.items():
        messages.sort(key=lambda each: places[each.token])
        earliest = float("inf")
        for said in reversed(messages):
            earliest = min(earliest, said.returned_s or 0.0)
            if earliest < said.called_s:
                raise Broken("messages keep their order", f"{said.token} of {agent_id} stands before an earlier one")


def turns_are_whole(disk: Disk, wiped: Container[str] = ()) -> None:
    """What was asked is in the history once a step is, and a completed run has answered it exactly once.

    `wiped` are the tokens of turns whose history somebody has deleted.
    """
    rows: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for run_id, role, text in disk.query("SELECT run_id, role, content || tool_calls FROM messages ORDER BY seq"):
        rows[run_id].append((role, text))
    for run_id, status, reason, steps, given in disk.query(
        "SELECT id, status, stop_reason, step_count, input FROM runs ORDER BY id"
    ):
        asking = json.loads(given)["messages"]
        token = str(asking[0]["content"][0].get("text", "")).split("\n")[0] if asking else ""
        if not token.startswith("tok-") or token in wiped:
            continue  # it goes on with calls that waited, or is no person's
        asked = sum(role == "user" and token in text for role, text in rows[run_id])
        answered = sum(role == "assistant" and f"echo {token}" in text for role, text in rows[run_id])
        if asked != (1 if steps else 0):
            raise Broken(
                "the input enters with the first step", f"{run_id}: {steps} steps, {token} is {asked} times in"
            )
        if steps and status == "completed" and answered != (0 if reason == StopReason.requires_approval else 1):
            raise Broken("a completed turn has one answer", f"{run_id} answered {token} {answered} times")


def repeats_double_nothing(disk: Disk, heard: Iterable[Heard]) -> None:
    """A failure that an SDK answers by sending the same again has left nothing in the history."""
    known = list(heard)
    places = _places(disk, [each.said for each in known])
    for each in known:
        status = each.status or 0
        repeated = (status in _REPEATED or status >= 500) and each.headers.get("x-should-retry") != "false"
        if repeated and each.said.token in places:
            told = f"{each.said.token} was told {status} ({each.trouble[:200]}) and is in the history"
            raise Broken("what an SDK repeats is not in the history", told)


def remembered_once(disk: Disk, began_with: Mapping[str, str], apart: Container[str] = ()) -> None:
    """The block 'human' of each agent holds what it began with and every successful append exactly once.

    What was appended in conversations that are `apart` went into their own copies.
    """
    wanted = {agent_id: Counter([value]) for agent_id, value in began_with.items()}
    calls: dict[tuple[str, str], str] = {}
    for agent_id, lane, made, returned in disk.query(
        "SELECT agent_id, conversation_id, tool_calls, tool_returns FROM messages ORDER BY seq"
    ):
        for call in json.loads(made) if lane not in apart else ():
            if (words := appended_by(call)) is not None:
                calls[agent_id, call["id"]] = words
        for result in json.loads(returned):
            if result["ok"] and (agent_id, result["call_id"]) in calls and agent_id in wanted:
                wanted[agent_id][calls[agent_id, result["call_id"]]] += 1
    for agent_id, value in disk.query(
        "SELECT a.agent_id, b.value FROM agent_blocks a JOIN blocks b ON b.id = a.block_id WHERE a.label = 'human'"
    ):
        if agent_id in wanted and Counter(value.split("\n")) != wanted[agent_id]:
            told = f"{agent_id} holds {value!r}, and its results say {dict(wanted[agent_id])}"
            raise Broken("a successful append is in the block exactly once", told)


def prompts_are_sound(seen: Iterable[Seen]) -> None:
    """Every chat the model was shown has each call answered right after it, and nothing twice."""
    for request in seen:
        open_calls: set[str] = set()
        said: Counter[str] = Counter()
        for message in request.body["messages"]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in open_calls:
                    raise Broken("a prompt is a sound chat", f"a result answers no call: {message}")
                open_calls.discard(message["tool_call_id"])
                continue
            if open_calls:
                raise Broken("a prompt is a sound chat", f"{sorted(open_calls)} were not answered before {message}")
            if message["role"] == "user":
                said[str(message["content"]).split("\n")[0]] += 1
            open_calls = {call["id"] for call in message.get("tool_calls") or ()}
        doubled = [token for token, count in said.items() if count > 1 and token.startswith("tok-")]
        if open_calls or doubled:
            raise Broken("a prompt is a sound chat", f"left open: {sorted(open_calls)}, twice: {doubled}")


def prompts_are_fresh(seen: Iterable[Seen]) -> None:
    """The memory in a prompt holds every append that the same prompt tells as done: no step saw an older block."""
    for request in seen:
        system, *chat = request.body["messages"]
        block = element(str(system["content"]), "human")
        if block is None:
            continue
        shown = (element(block, "value") or "").split("\n")
        asked = {call["id"]: appended_by(call["function"]) for m in chat for call in m.get("tool_calls") or ()}
        for message in chat:
            words = asked.get(message.get("tool_call_id", ""))
            if words is not None and _went_well(message) and words not in shown:
                told = f"{request.body.get('user')} was told that '{words}' is in, and is shown {shown}"
                raise Broken("a prompt is never older than the last edit", told)


def _went_well(result: Mapping[str, Any]) -> bool:
    try:
        return json.loads(str(result["content"]))["status"] == "OK"
    except (ValueError, KeyError, TypeError):
        return False


def views_are_current(disk: Disk, seen: Iterable[Seen], agents: Iterable[str]) -> None:
    """What an agent was shown of its memory and its tools in its latest step is what is stored now, at rest."""
    latest = {str(request.body.get("user")): request.body for request in seen}
    labels = [label for (label,) in disk.query("SELECT DISTINCT label FROM blocks ORDER BY label")]
    for agent_id, agent_type in disk.query("SELECT id, agent_type FROM agents ORDER BY id"):
        if agent_id not in agents or agent_id not in latest:
            continue
        body = latest[agent_id]
        offered = {tool["function"]["name"]: tool["function"]["description"] for tool in body.get("tools") or ()}
        if offered != (stored := _tools(disk, agent_id)):
            raise Broken("a live agent sees what is stored", f"{agent_id} is offered {offered} and has {stored}")
        system = body["messages"][0]["content"]
        shown = {label: element(text, "value") for label in labels if (text := element(system, label)) is not None}
        if agent_type not in _WITHOUT_MEMORY and shown != (stored := _blocks(disk, agent_id)):
            raise Broken("a live agent sees what is stored", f"{agent_id} is shown {shown} and has {stored}")


def _tools(disk: Disk, agent_id: str) -> dict[str, str]:
    rows = disk.query(
        "SELECT t.name, t.json_schema FROM agent_tools a JOIN tools t ON t.id = a.tool_id WHERE a.agent_id = ?",
        agent_id,
    )
    return {name: json.loads(schema)["description"] for name, schema in rows}


def _blocks(disk: Disk, agent_id: str) -> dict[str, str]:
    rows = disk.query(
        "SELECT b.label, b.value FROM agent_blocks a JOIN blocks b ON b.id = a.block_id WHERE a.agent_id = ?", agent_id
    )
    return dict(rows)


def outside_at_most_once(disk: Disk, effects: Mapping[str, int]) -> None:
    """No outside call took effect twice; one that is recorded as successful took effect."""
    for mark, count in effects.items():
        if count > 1:
            raise Broken("an outside tool never runs twice", f"{mark} was carried out {count} times")
    for (returned,) in disk.query("SELECT tool_returns FROM messages WHERE role = 'tool'"):
        for result in json.loads(returned):
            mark = str(result["text"]).removeprefix("done ")
            if result["name"] == "outside" and result["ok"] and effects.get(mark, 0) != 1:
                raise Broken("a successful outside call took effect", f"{mark} was carried out {effects.get(mark, 0)}")


def _places(disk: Disk, said: Iterable[Said]) -> dict[str, int]:
    """Where each message stands in the history of its agent; those that are not there are left out."""
    rows: dict[str, dict[str, int]] = defaultdict(dict)
    for agent_id, seq, content in disk.query("SELECT agent_id, seq, content FROM messages WHERE role = 'user'"):
        parts = json.loads(content)
        rows[agent_id][str(parts[0].get("text", "")).split("\n")[0] if parts else ""] = seq
    return {each.token: rows[each.agent_id][each.token] for each in said if each.token in rows[each.agent_id]}


def appended_by(call: Mapping[str, Any]) -> str | None:
    """What a call would append to the block 'human'."""
    try:
        arguments = json.loads(call["arguments"])
    except ValueError:
        return None
    return arguments.get(_APPENDS.get(call["name"])) if arguments.get("label") == "human" else None
