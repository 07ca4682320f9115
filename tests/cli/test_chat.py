"""`kelpie chat` against a server with scripted answers."""

import io
import os
import pty
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kelpie.cli import agent_lookup
from kelpie.cli.chat.conversation import Conversation
from kelpie.cli.chat.typed_input import TypedInput
from kelpie.cli.commands.conversations.chat import chat
from kelpie.world.http.cli_client import Client, Unreachable
from tests.cli.fake_server import fake_server, sse
from tests.cli.live import BIN, Live
from tests.cli.pseudo_terminal import plain

DEADLINE_S = 60
DEMO = {"id": "agent-11111111-1111-4111-8111-111111111111", "name": "demo"}
STREAM = f"POST /v1/agents/{DEMO['id']}/messages/stream"
BY_NAME = {"GET /v1/agents/?name=demo&limit=20": (200, [DEMO])}


def said(text: str, message_id: str = "message-1") -> dict[str, Any]:
    return {"message_type": "assistant_message", "id": message_id, "content": text}


def call(name: str | None, arguments: str) -> dict[str, Any]:
    return {
        "message_type": "tool_call_message",
        "id": "message-0",
        "tool_call": {"name": name, "arguments": arguments, "tool_call_id": "call-1"},
    }


def returned(text: str, status: str) -> dict[str, Any]:
    return {
        "message_type": "tool_return_message",
        "id": "message-2",
        "name": "core_memory_append",
        "tool_return": text,
        "status": status,
        "tool_call_id": "call-1",
    }


MODEL_STOPPED = {"message_type": "stop_reason", "stop_reason": "llm_api_error"}
MODEL_DOWN = {"message_type": "error_message", "detail": "the model is down"}
END = {"message_type": "stop_reason", "stop_reason": "end_turn"}


def test_deltas_of_one_message_are_one_line_and_pings_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    stream = sse({"message_type": "ping"}, said("Hel"), said("lo"), said("Again", "message-3"), END)
    with fake_server(BY_NAME | {STREAM: (200, stream)}) as server:
        assert chat(Client(server.url), "demo", "hi") == 0
        sent = server.asked[-1][1]
        assert sent["messages"][0].pop("otid"), "sending it twice is safe"
        assert sent == {
            "messages": [{"role": "user", "content": "hi"}],
            "stream_tokens": True,
            "background": True,
        }
    assert capsys.readouterr().out == "Hello\nAgain\n"


def test_tool_calls_are_shown_beside_the_answer_not_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    stream = sse(
        call("core_memory_append", ""), call(None, '{"label":'), call(None, ' "human"}'), returned("done", "success"),
        said("I noted it."), END,
    )  # fmt: skip
    with fake_server(BY_NAME | {STREAM: (200, stream)}) as server:
        assert chat(Client(server.url), "demo", "remember") == 0
    captured = capsys.readouterr()
    assert captured.out == "I noted it.\n"
    assert captured.err == "tool> core_memory_append\n        label: human\nresult> done\n"


def test_a_failed_tool_is_called_failed(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_server(
        BY_NAME | {STREAM: (200, sse(call("f", "{}"), returned("no such block", "error"), END))}
    ) as server:
        chat(Client(server.url), "demo", "x")
    assert "failed> no such block" in capsys.readouterr().err


def test_lines_of_a_pipe_are_turns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\n\n  two  \n"))
    with fake_server(BY_NAME | {STREAM: (200, sse(said("ok"), END))}) as server:
        assert chat(Client(server.url), "demo") == 0
        sent = [body["messages"][0]["content"] for key, body in server.asked if key == STREAM]
    assert sent == ["one", "two"]
    assert capsys.readouterr().out == "ok\nok\n"


@pytest.mark.parametrize(
    ("status", "answer", "told"),
    [
        (200, sse(said("par"), MODEL_STOPPED, ("error", MODEL_DOWN)), "the model is down"),
        (200, sse(said("par"), end=False), "closed the stream before the turn ended"),
        (429, {"detail": "the mailbox is full"}, "the mailbox is full"),
        (
            422,
            {"detail": "[{'loc': ('body',)}]", "message": "content: must not be empty"},
            "content: must not be empty",
        ),
        (409, {"detail": {"code": "BUSY", "message": "A turn is running."}}, "kelpie: A turn is running.\n"),
        (422, {"detail": [{"loc": ["body", "x"], "msg": "is missing"}]}, "body.x: is missing"),
        (
            503,
            {"error": {"message": "no model", "detail": "refused", "hint": "Start it."}},
            "no model: refused. Start it",
        ),
        (500, b"<html>", "500"),
    ],
)
def test_a_turn_that_fails_is_told_and_ends_non_zero(
    status: int, answer: Any, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_server(BY_NAME | {STREAM: (status, answer)}) as server:
        assert chat(Client(server.url), "demo", "hi") == 1
    assert told in capsys.readouterr().err


def test_what_a_model_says_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_server(BY_NAME | {STREAM: (200, sse(said("a\x1b[2Jb\x07\n\tc"), END))}) as server:
        chat(Client(server.url), "demo", "hi")
    assert capsys.readouterr().out == "a[2Jb\n\tc\n"


def test_an_agent_is_found_by_its_id() -> None:
    with fake_server({f"GET /v1/agents/{DEMO['id']}": (200, DEMO)}) as server:
        assert agent_lookup.find(Client(server.url), DEMO["id"]) == DEMO


def test_an_unknown_name_is_answered_with_the_names_there_are() -> None:
    answers = {
        "GET /v1/agents/?name=bob&limit=20": (200, []),
        "GET /v1/agents/?limit=21": (200, [{"name": "demo"}, {"name": "alice"}]),
    }
    with (
        fake_server(answers) as server,
        pytest.raises(agent_lookup.UnknownAgent, match=r"'bob'\. Existing agents: alice, demo"),
    ):
        agent_lookup.find(Client(server.url), "bob")


def test_a_name_that_two_agents_share_asks_for_an_id() -> None:
    twins = [DEMO, DEMO | {"id": "agent-2"}]
    with (
        fake_server({"GET /v1/agents/?name=demo&limit=20": (200, twins)}) as server,
        pytest.raises(agent_lookup.UnknownAgent, match=r"use an id: .*agent-2"),
    ):
        agent_lookup.find(Client(server.url), "demo")


def test_no_server_is_told_with_its_address() -> None:
    with fake_server({}) as server:
        url = server.url
    with pytest.raises(Unreachable, match=url):
        agent_lookup.find(Client(url), "demo")


def test_at_a_terminal_there_is_a_prompt_and_the_speaker_has_a_name() -> None:
    ours, theirs = pty.openpty()
    with fake_server(BY_NAME | {STREAM: (200, sse(said("Hello!"), END))}) as server:
        command = [str(BIN / "kelpie"), "chat", "demo", "--url", server.url]
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
        os.close(theirs)
        try:
            seen = read_until(ours, b"you> ")
            os.write(ours, b"hi\n")
            seen += read_until(ours, b"you> ")
            os.write(ours, b"/quit\n")
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.communicate()
            os.close(ours)
    assert "demo> Hello!" in plain(seen.decode()) and b"\x1b[1;32mdemo> " in seen


# As the server lists an agent's messages: the newest ones, but oldest first.
PAST = [
    {"message_type": "system_message", "date": "2026-01-31T11:00:00+00:00", "content": "You are."},
    {"message_type": "user_message", "date": "2026-01-31T12:00:00+00:00", "content": [{"type": "text", "text": "hey"}]},
    {
        "message_type": "tool_call_message",
        "date": "2026-01-31T12:00:01+00:00",
        "tool_call": {"name": "memory_insert", "arguments": "{}"},
    },
    {"message_type": "assistant_message", "date": "2026-01-31T12:00:02+00:00", "content": "I noted\x1b[2J it."},
]


def test_at_a_terminal_there_are_several_lines_history_and_help() -> None:
    ours, theirs = pty.openpty()
    history = f"GET /v1/agents/{DEMO['id']}/messages?limit=20&order=desc&conversation_id=default"
    few = f"GET /v1/agents/{DEMO['id']}/messages?limit=2&order=desc&conversation_id=default"
    answers = BY_NAME | {STREAM: (200, sse(said("Hello!"), END)), history: (200, PAST), few: (200, PAST[1:])}
    with fake_server(answers) as server:
        command = [str(BIN / "kelpie"), "chat", "demo", "--url", server.url]
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        try:
            read_until(ours, b"you> ")
            steps = [
                (b"first \\\n", b"...> "), (b"second\n", b"you> "),
                (b'"""one\n', b"...> "), (b"\n", b"...> "), (b'two"""\n', b"you> "),
            ]  # fmt: skip
            for typed, prompt in steps:
                os.write(ours, typed)
                read_until(ours, prompt)
            os.write(ours, b"/history\n")
            past = read_until(ours, b"you> ")
            os.write(ours, b"/history 2\n")
            less = read_until(ours, b"you> ")
            os.write(ours, b"/help\n")
            helped = read_until(ours, b"you> ")
            os.write(ours, b"/exit\n")
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
            os.close(ours)
        sent = [body["messages"][0]["content"] for key, body in server.asked if key == STREAM]
    assert sent == ["first \nsecond", "one\n\ntwo"]
    past = plain(past.decode())
    assert past.index("you: hey") < past.index("(call): memory_insert {}") < past.index("agent: I noted[2J it.")
    assert "You are." not in past and b"hey" not in less
    assert b"/history" in helped and b"/exit" in helped


def test_typed_lines_are_kept_for_the_next_time_and_a_pasted_text_is_one_message(tmp_path: Path) -> None:
    env = {"PATH": str(BIN), "KELPIE_DATA_DIR": str(tmp_path), "TERM": "xterm"}
    with fake_server(BY_NAME | {STREAM: (200, sse(said("Hello!"), END))}) as server:
        command = [str(BIN / "kelpie"), "chat", "demo", "--url", server.url]
        for typed_lines in ((b"\x1b[200~first\nsecond\x1b[201~\r", b"third\r"), (b"\x1b[A\r",)):  # a paste; the key up
            ours, theirs = pty.openpty()
            process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
            os.close(theirs)
            try:
                read_until(ours, b"you> ")
                for line in typed_lines:
                    os.write(ours, line)
                    seen = read_until(ours, b"Hello!")
                    read_until(ours, b"you> ", seen.partition(b"Hello!")[2])
                os.write(ours, b"\x04")
                assert process.wait(60) == 0
            finally:
                process.kill()
                process.wait()
                os.close(ours)
        sent = [body["messages"][0]["content"] for key, body in server.asked if key == STREAM]
    assert sent == ["first\nsecond", "third", "third"]
    assert (tmp_path / "chat_history").stat().st_mode & 0o077 == 0, "nobody else may read what was said"


def test_prompts_are_not_among_answers_that_go_into_a_file(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    env = {"PATH": str(BIN), "KELPIE_DATA_DIR": str(tmp_path / "none")}
    with fake_server(BY_NAME | {STREAM: (200, sse(said("Hello!"), END))}) as server:
        command = [str(BIN / "kelpie"), "chat", "demo", "--url", server.url]
        process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, env=env)
        os.close(theirs)
        try:
            read_until(ours, b"you> ")
            os.write(ours, b"hi\n")
            read_until(ours, b"you> ")
            os.write(ours, b"/exit\n")
            out, _ = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
            process.wait()
            os.close(ours)
    assert (process.returncode, out) == (0, b"Hello!\n")


def test_history_of_a_real_server_is_oldest_first(running: Live) -> None:
    running.kelpie("agents", "create", "past")
    for text in ("alpha", "beta", "gamma"):
        assert running.kelpie("chat", "past", "-m", text).returncode == 0
    client = Client(running.url)
    shown = Conversation(client, agent_lookup.find(client, "past")).history(4)
    kinds = ["user_message", "assistant_message"]
    assert [message["message_type"] for message in shown] == kinds * 2
    assert [message["content"] for message in shown[::2]] == ["beta", "gamma"]


def test_lines_of_a_pipe_can_be_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('one \\\ntwo\n"""a\nb"""\n"""open'))
    with fake_server(BY_NAME | {STREAM: (200, sse(said("ok"), END))}) as server:
        assert chat(Client(server.url), "demo") == 0
        sent = [body["messages"][0]["content"] for key, body in server.asked if key == STREAM]
    assert sent == ["one \ntwo", "a\nb", "open"]


def test_an_interrupt_drops_the_draft_and_two_in_a_row_end() -> None:
    stop = KeyboardInterrupt
    lines = iter(["draft \\", stop, "whole", stop, "second", "", stop, stop, "never"])

    def read(_: str) -> str:
        line = next(lines)
        if isinstance(line, str):
            return line
        raise line

    assert list(TypedInput(read).messages()) == ["whole", "second"]


def read_until(descriptor: int, mark: bytes, seen: bytes = b"") -> bytes:
    """Reads until the mark was written, under a deadline; the terminal's end raises."""
    while mark not in seen:
        assert select.select([descriptor], [], [], DEADLINE_S)[0], f"{mark!r} did not come after {seen!r}"
        seen += os.read(descriptor, 1024)
    return seen
