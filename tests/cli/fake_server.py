"""A server that says what a test tells it to: real sockets, scripted answers."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class FakeServer:
    """`answers` maps "METHOD path?query" to (status, body); bytes go out as they are, anything else as JSON."""

    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    asked: list[tuple[str, Any]] = field(default_factory=list)
    url: str = ""


@contextmanager
def fake_server(answers: dict[str, tuple[int, Any]]) -> Iterator[FakeServer]:
    fake = FakeServer(answers)

    class Handler(BaseHTTPRequestHandler):
        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            key = f"{self.command} {self.path}"
            fake.asked.append((key, json.loads(body) if body else None))
            status, answer = fake.answers.get(key, (404, {"detail": f"nothing at {key}"}))
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = handle_one

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


def sse(*events: Any, end: bool = True) -> bytes:
    """A stream of events; a tuple is (event name, data)."""
    frames = ""
    for event in events:
        name, data = event if isinstance(event, tuple) else ("", event)
        frames += f"event: {name}\n" if name else ""
        frames += f"data: {json.dumps(data)}\n\n"
    return (frames + ("data: [DONE]\n\n" if end else "")).encode()
