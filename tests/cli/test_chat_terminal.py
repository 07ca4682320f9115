"""`kelpie chat` at a real pseudo-terminal, against a live server with the demo model."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kelpie.world.http.cli_client import Client
from tests.cli.live import Live
from tests.cli.pseudo_terminal import CTRL_C, CTRL_D, Terminal, at_terminal

PROMPT = "you> "
QUESTION = "[l]ater> "
INSERT = "memory_insert"


def script(*lines: Mapping[str, Any]) -> str:
    """A message upon which the demo model says these lines."""
    return "!script " + json.dumps(lines)


def insert(text: str) -> dict[str, Any]:
    return {"name": INSERT, "arguments": {"label": "human", "new_string": text}}


def make(running: Live, name: str, *, asks: bool = False) -> str:
    """An agent with the block `human`; with `asks`, a person decides about each insert."""
    rules = [{"type": "requires_approval", "tool_name": INSERT}] if asks else []
    blocks = [{"label": "human", "value": "Ada"}]
    body = {"name": name, "model": "kelpie/demo", "tools": [INSERT], "memory_blocks": blocks, "tool_rules": rules}
    return Client(running.url).post("/v1/agents/", body)["id"]


def human(running: Live, agent_id: str) -> str:
    return Client(running.url).get(f"/v1/agents/{agent_id}/core-memory/blocks/human")["value"]


def leaves(terminal: Terminal) -> None:
    terminal.send(CTRL_D)
    assert terminal.ends()[0] == 0


def test_it_shows_that_it_waits_and_who_says_what(running: Live) -> None:
    make(running, "colors")
    slow = script({"reasoning": "I wait.", "calls": [insert("Tea " * 40)], "wait_s": 0.5}, {"text": "Noted."})
    with at_terminal(["chat", "colors"], running.env, columns=60) as terminal:
        terminal.until(PROMPT)
        terminal.send(f"{slow}\r")
        shown = terminal.raw_until(PROMPT)
        leaves(terminal)
    assert "thinking… 0s (Ctrl-C cancels)" in shown and shown.count("\r\x1b[2K") > 2, "drawn, and erased again"
    for role, text in (("2;3", "thought> "), ("33", "tool> "), ("33", "result> "), ("1;32", "colors> ")):
        assert f"\x1b[{role}m{text}" in shown
    call = [line for line in _lines(shown.partition("tool> ")[2].partition("result> ")[0]) if "Tea" in line]
    assert call[0].startswith("        new_string: Tea Tea") and all(len(line) <= 60 for line in call) and len(call) > 2


@pytest.mark.parametrize("plain", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_without_color_nothing_but_text_is_written(running: Live, plain: dict[str, str]) -> None:
    make(running, f"plain{len(plain)}{'TERM' in plain}")
    name = f"plain{len(plain)}{'TERM' in plain}"
    with at_terminal(["chat", name], running.env | plain) as terminal:
        terminal.until(PROMPT)
        terminal.send(script({"text": "Hello.", "wait_s": 0.5}) + "\r")
        shown = terminal.raw_until(PROMPT)
        leaves(terminal)
    assert not re.search(r"\x1b\[[0-9;]*m", shown) and "thinking" in shown
    if "TERM" in plain:
        assert shown.count("thinking") == 1 and "\x1b" not in shown


def test_ctrl_c_cancels_the_run_and_the_second_one_leaves(running: Live) -> None:
    agent_id = make(running, "cancelled")
    with at_terminal(["chat", "cancelled"], running.env) as terminal:
        terminal.until(PROMPT)
        terminal.type(script({"text": "never", "wait_s": 60}) + "\r", "thinking")
        told = terminal.type(CTRL_C, "Cancelled.")
        assert "Cancelling" in told
        terminal.until(PROMPT)
        run = Client(running.url).get("/v1/runs/", agent_id=agent_id, limit=1)[0]
        assert run["status"] == "cancelled", "the real run, and not only the waiting for it"
        again = terminal.type("hello\r", PROMPT)
        assert "cancelled> " in again, "the chat goes on"
        terminal.type(script({"text": "never", "wait_s": 60}) + "\r", "thinking")
        terminal.type(CTRL_C, "Cancelled.")
        terminal.until(PROMPT)
        terminal.send(CTRL_C)
        code, rest = terminal.ends()
    assert code == 0 and "never" not in rest


def test_a_call_is_run_denied_or_changed_by_the_person(running: Live) -> None:
    agent_id = make(running, "careful", asks=True)
    both = script({"calls": [insert("green tea"), insert("no coffee")]}, {"text": "Both decided."})
    with at_terminal(["chat", "careful"], running.env) as terminal:
        terminal.until(PROMPT)
        asked = terminal.type(f"{both}\r", QUESTION)
        assert (
            "Tool call 1 of 2 waits for your approval." in asked
            and "new_string: green tea" in asked
            and "never" not in asked
        )
        assert "'perhaps' is not an answer" in terminal.type("perhaps\r", QUESTION)
        asked = terminal.type("y\r", QUESTION)
        assert "Tool call 2 of 2 waits for your approval." in asked and "new_string: no coffee" in asked
        terminal.type("n\r", "Reason (optional)> ")
        done = terminal.type("I like coffee\r", PROMPT)
        assert "failed> " in done and "I like coffee" in done and "careful> Both decided." in done
        assert human(running, agent_id) == "Ada\ngreen tea"
        terminal.type(script({"calls": [insert("black tea")]}, {"text": "Changed."}) + "\r", QUESTION)
        terminal.type("edit\r", "Arguments> ")
        kept = terminal.type('\x15{"label": "human"\r', QUESTION)
        assert "this is not JSON" in kept, "and it asks again"
        terminal.type("e\r", '"black tea"}')  # the arguments stand on the line
        changed = terminal.type('\x15{"label": "human", "new_string": "white tea"}\r', QUESTION)
        assert "new_string: white tea" in changed
        assert "careful> Changed." in terminal.type("y\r", PROMPT)
        assert human(running, agent_id) == "Ada\ngreen tea\nwhite tea"
        bad = script({"calls": [insert("x")]}, {"text": "Refused."})
        terminal.type(f"{bad}\r", QUESTION)
        terminal.type("e\r", "Arguments> ")
        terminal.type('\x15{"label": 5}\r', QUESTION)
        refused = terminal.type("y\r", QUESTION)
        assert "kelpie: " in refused and "{'" not in refused, "the server refuses, and the call still waits"
        terminal.type("n no reason\r", PROMPT)
        assert human(running, agent_id) == "Ada\ngreen tea\nwhite tea"
        leaves(terminal)


def test_arguments_are_edited_in_the_editor(running: Live, tmp_path: Path) -> None:
    agent_id = make(running, "edited", asks=True)
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/coffee/tea/ "$1"\n')
    editor.chmod(0o700)
    with at_terminal(["chat", "edited"], running.env | {"EDITOR": f"{editor} --wait".split()[0]}) as terminal:
        terminal.until(PROMPT)
        terminal.type(script({"calls": [insert("coffee")]}, {"text": "Done."}) + "\r", QUESTION)
        assert "new_string: tea" in terminal.type("e\r", QUESTION)
        assert "edited> Done." in terminal.type("y\r", PROMPT)
        leaves(terminal)
    assert human(running, agent_id) == "Ada\ntea"


def test_what_waits_from_before_is_shown_at_the_start_and_can_be_left(running: Live) -> None:
    agent_id = make(running, "waiting", asks=True)
    sent = running.kelpie("chat", "waiting", "-m", script({"calls": [insert("milk")]}, {"text": "Well."}))
    assert sent.returncode == 1 and sent.stdout == ""
    assert "new_string: milk" in sent.stderr and "kelpie approvals approve waiting\n" in sent.stderr
    again = running.kelpie("chat", "waiting", "-m", "hello?")
    assert again.returncode == 1 and "{" not in again.stderr
    assert "not sent" in again.stderr and "kelpie approvals deny waiting" in again.stderr
    with at_terminal(["chat", "waiting"], running.env) as terminal:
        assert "new_string: milk" in terminal.until(QUESTION)
        assert "/approve" in terminal.type("later\r", PROMPT)
        assert "new_string: milk" in terminal.type("/approve\r", QUESTION)
        assert "waiting> Well." in terminal.type("y\r", PROMPT)
        assert "No tool call waits" in terminal.type("/approve\r", PROMPT)
        leaves(terminal)
    assert human(running, agent_id) == "Ada\nmilk"


def test_lines_break_between_words(running: Live) -> None:
    make(running, "narrow")
    story = "There lived a weaver who loved tea, and the village loved the weaver."
    with at_terminal(["chat", "narrow"], running.env | {"NO_COLOR": "1"}, columns=40) as terminal:
        assert "Chatting with narrow. Type /help for" in terminal.until(PROMPT)
        told = terminal.type(script({"text": story}) + "\r", PROMPT)
        helped = terminal.type("/help\r", PROMPT)
        leaves(terminal)
    shown = _lines(told.partition("narrow> ")[2].rpartition(PROMPT)[0])
    assert [line for line in shown if line] == [
        "There lived a weaver who loved",
        "tea, and the village loved the weaver.",
    ]
    for line in _lines(helped.partition("show this help")[2]):
        assert len(line) <= 40 and not line.endswith("mes"), line
    assert "before and after a message of several" in " ".join(helped.split())


def test_the_commands_of_the_prompt(running: Live) -> None:
    agent_id = make(running, "commands", asks=True)
    with at_terminal(["chat", "commands"], running.env, columns=100) as terminal:
        terminal.until(PROMPT)
        assert "Did you mean /memory?" in terminal.type("/memry\r", PROMPT)
        assert "/help lists" in terminal.type("/xyzzy\r", PROMPT)
        assert "Did you mean" not in terminal.type("/foo\r", PROMPT)
        helped = terminal.type("/help\r", PROMPT)
        assert all(name in helped for name in ("/model", "/memory", "/tools", "/new", "/clear", "/approve", "/exit"))
        assert "Model: kelpie/demo" in terminal.type("/model\r", PROMPT)
        wrong = terminal.type("/model no/such\r", PROMPT)
        assert "kelpie: " in wrong and "no/such" in wrong and "{" not in wrong
        assert "human (3 of" in terminal.type("/memory\r", PROMPT)
        assert "Blocks: human" in terminal.type("/memory nothing\r", PROMPT)
        assert "memory_insert (asks before it runs)" in terminal.type("/tools\r", PROMPT)
        terminal.type("in the default one\r", PROMPT)
        new = terminal.type("/new\r", PROMPT)
        found = re.search(r"conv-[0-9a-f-]{36}", new)
        assert found is not None
        terminal.type("in the new one\r", PROMPT)
        past = terminal.type("/history\r", PROMPT)
        assert "just now  you: in the new one" in past and "default" not in past
        assert "Nothing was deleted." in terminal.type("/clear\rn\r", "Nothing was deleted.")
        terminal.until(PROMPT)
        terminal.type("/clear\r", "[y/N]> ")
        assert "Deleted the messages." in terminal.type("y\r", PROMPT)
        assert "you: in" not in terminal.type("/history\r", PROMPT)
        terminal.send("/exit\r")
        assert terminal.ends()[0] == 0
    messages = running.json("messages", "list", agent_id)
    assert all(message["message_type"] == "system_message" for message in messages)


def test_the_newest_agent_and_conversations_are_chosen_on_the_command_line(running: Live) -> None:
    make(running, "newest")
    told = running.kelpie("chat", "-m", "hello")
    assert told.returncode == 0 and "newest" in told.stderr
    new = running.kelpie("chat", "newest", "--new", "-m", "one")
    found = re.search(r"conv-[0-9a-f-]{36}", new.stderr)
    assert found is not None
    went_on = running.kelpie("chat", "--conversation", found[0][:-12], "-m", "two", "--json")
    assert went_on.returncode == 0, went_on.stderr  # ids of the same moment have the same first characters
    turn = json.loads(went_on.stdout)
    assert turn["conversation_id"] == found[0] and turn["stop_reason"] == "end_turn" and turn["error"] is None
    assert turn["messages"][-1]["message_type"] == "assistant_message" and turn["run_id"].startswith("run-")
    said = running.json("messages", "list", "newest", "--conversation", found[0])
    assert [each["content"] for each in said if each["message_type"] == "user_message"] == ["one", "two"]
    assert running.kelpie("chat", "newest", "--new", "--conversation", found[0], "-m", "x").returncode == 2
    assert running.kelpie("chat", "newest", "--conversation", "conv-ffff", "-m", "x").returncode == 4


def _lines(text: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
