"""A model over real HTTP that begins to answer and then keeps its client waiting, and that sees when the client leaves.

It speaks OpenAI's chat completions and Anthropic's messages, whole or streamed, and says "told" when it is let.
"""

import json
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.acceptance.wire_model import HANDLES, anthropic_wire, openai_wire

SAID = "told"
LOOK_S = 0.02


class SlowModel:
    """`asking` and `hung_up` count the requests that were held, and of those the ones whose client left."""

    def __init__(self) -> None:
        self.url = ""
        self.asking = 0
        self.hung_up = 0
        self.pieces = 0
        self._free = threading.Event()
        self._free.set()

    def hold(self, pieces: int) -> None:
        """From now on an answer stops after so many pieces of its stream, or before it begins."""
        self.asking = self.hung_up = 0
        self.pieces = pieces
        self._free.clear()

    def free(self) -> None:
        self._free.set()

    @property
    def holds(self) -> bool:
        return not self._free.is_set()

    def keep(self, connection: socket.socket) -> bool:
        """Waits until the answer may go on; False when the client has left."""
        self.asking += 1
        while not self._free.wait(LOOK_S):
            readable, _, _ = select.select([connection], [], [], 0)
            if readable and not connection.recv(1, socket.MSG_PEEK):
                self.hung_up += 1
                return False
        return True


def _handler(model: SlowModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            listed = [{"id": handle.partition("/")[2], "type": "model", "object": "model"} for handle in HANDLES]
            self._begin("application/json")
            self.wfile.write(json.dumps({"object": "list", "data": listed, "has_more": False}).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            wire = openai_wire if self.path.endswith("/chat/completions") else anthropic_wire
            kind, raw = wire(SAID, 1, stream=bool(body.get("stream")))
            frames = [frame + b"\n\n" for frame in raw.split(b"\n\n") if frame] if body.get("stream") else [raw]
            self._begin(kind)
            if model.holds:
                kept = frames[: model.pieces] if body.get("stream") else []
                self.wfile.write(b"".join(kept))
                self.wfile.flush()
                if not model.keep(self.connection):
                    return
                frames = frames[len(kept) :]
            self.wfile.write(b"".join(frames))

        def _begin(self, kind: str) -> None:  # HTTP/1.0: the end of the connection is the end of the answer
            self.send_response(200)
            self.send_header("content-type", kind)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return

    return Handler


@contextmanager
def slow_model() -> Iterator[SlowModel]:
    """The model, served at its `url` until the end."""
    model = SlowModel()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(model))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    model.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield model
    finally:
        model.free()
        server.shutdown()
        server.server_close()
        thread.join()
