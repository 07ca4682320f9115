"""`kelpie chat` when the connection drops: the turn goes on in the server, and the chat after the last frame."""

import pytest

from kelpie.cli.chat.conversation import Conversation
from kelpie.cli.commands.conversations.chat import chat
from kelpie.world.http.cli_client import Client
from tests.cli.fake_server import fake_server, sse
from tests.cli.live import Live
from tests.cutting_proxy import cutting_proxy

LONG = " ".join(f"word{place}" for place in range(60))
RUN = "run-11111111-1111-4111-8111-111111111111"
AGENT = {"id": "agent-11111111-1111-4111-8111-111111111111", "name": "demo"}


@pytest.fixture
def agent(running: Live) -> str:
    return Client(running.url).post("/v1/agents/", {"name": "resumed", "model": "kelpie/demo"})["id"]


def said(running: Live, agent_id: str) -> list[str]:
    found = Client(running.url).get(f"/v1/agents/{agent_id}/messages")
    return [each["content"] for each in found if each["message_type"] == "user_message"]


def test_a_stream_that_breaks_goes_on_after_the_last_frame(
    running: Live, agent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = f'!script [{{"text": "{LONG}"}}]'
    with cutting_proxy(running.url) as proxy:
        proxy.cuts = {"/messages/stream": [3000], "/v1/runs/": [4000, 2500]}
        assert chat(Client(proxy.url), agent, message) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{LONG}\n", "every word once, in order"
    assert captured.err.count("Connection lost. Reconnecting ...") == 3
    assert len(proxy.asked("POST", "/messages/stream")) == 1
    assert said(running, agent) == [message], "and the message was sent once"


def test_a_request_whose_answer_is_lost_is_sent_again_and_played_once(
    running: Live, agent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with cutting_proxy(running.url) as proxy:
        proxy.cuts = {"/messages/stream": [0]}  # the headers of the answer, and no frame
        assert chat(Client(proxy.url), agent, "hello once") == 0
    assert capsys.readouterr().out.count("\n") == 1
    assert said(running, agent) == ["hello once"]


def test_a_key_for_some_agents_resumes_with_the_same_request(
    running: Live, agent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key = running.json("keys", "create", "narrow", "--agent", agent)["key"]
    with cutting_proxy(running.url) as proxy:
        proxy.cuts = {"/messages/stream": [3000]}
        assert chat(Client(proxy.url, credential=key), agent, f'!script [{{"text": "{LONG}"}}]') == 0
    assert capsys.readouterr().out == f"{LONG}\n"
    assert len(proxy.asked("POST", "/messages/stream")) == 2


def test_a_turn_is_cancelled_also_before_its_first_frame_has_arrived(running: Live, agent: str) -> None:
    client = Client(running.url)
    turn = Conversation(client, {"id": agent, "name": "resumed"}).message('!script [{"text": "never", "wait_s": 60}]')
    next(turn.events())  # the request reaches the server,
    turn.run_id = None  # and Ctrl-C is faster than its answer
    assert turn.cancel(agent)
    (run,) = client.get("/v1/runs/", agent_id=agent)
    assert run["status"] == "cancelled"


def test_it_gives_up_after_a_few_attempts_without_anything_new(capsys: pytest.CaptureFixture[str]) -> None:
    part = {"message_type": "assistant_message", "id": "message-1", "content": "par", "run_id": RUN, "seq_id": 2}
    stream, follow = f"POST /v1/agents/{AGENT['id']}/messages/stream", f"POST /v1/runs/{RUN}/stream"
    answers = {
        "GET /v1/agents/?name=demo&limit=20": (200, [AGENT]),
        "GET /v1/health/": (200, {"version": "1", "status": "ok"}),
        stream: (200, sse(part, end=False)),
        follow: (200, sse(end=False)),
    }
    with fake_server(answers) as server:
        assert chat(Client(server.url), "demo", "hi") == 1
        followed = [body for key, body in server.asked if key == follow]
    captured = capsys.readouterr()
    assert captured.out == "par\n" and "closed the stream before the turn ended" in captured.err
    assert followed == [{"starting_after": 2}] * 5
