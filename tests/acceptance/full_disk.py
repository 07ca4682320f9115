"""A server on a disk that becomes full and has space again; the test runs this program on a small disk."""

import sys
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance.served import served, wait_for

DEADLINE_S = 60.0


def play(disk: Path) -> None:
    with (
        served(disk / "data", KELPIE_LOG_LEVEL="error") as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=DEADLINE_S) as http,
    ):
        agent = http.post("/v1/agents/", json={"name": "Full", "model": "kelpie/demo", "memory_blocks": []}).json()[
            "id"
        ]

        def send(text: str) -> httpx.Response:
            return http.post(f"/v1/agents/{agent}/messages", json={"input": text})

        assert send("before").status_code == 200
        assert http.get("/v1/ready").json()["status"] == "ok"
        _fill(disk / "filler")
        for _ in range(4):  # also while the agent is loaded again
            answer = send("lost")
            assert answer.status_code == 503 and "Free some space" in answer.text, answer.text
        ready = http.get("/v1/ready")
        assert ready.status_code == 503 and "is full" in ready.json()["detail"], ready.text
        assert http.get("/v1/health/").status_code == 200
        (disk / "filler").unlink()
        wait_for("the server is ready again", lambda: http.get("/v1/ready").status_code == 200, DEADLINE_S)
        answer = send("after")
        assert answer.status_code == 200, answer.text
        assert _said(http.get(f"/v1/agents/{agent}/messages").json()) == ["before", "after"]


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def _said(messages: list[dict[str, Any]]) -> list[str]:
    return [one["content"] for one in messages if one["message_type"] == "user_message"]


if __name__ == "__main__":
    play(Path(sys.argv[1]))
