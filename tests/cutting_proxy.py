"""An HTTP proxy in front of a server: it records requests, and breaks off a streamed answer on demand.

A client that is cut off sees what it sees when a network fails: the connection closes in the middle of a stream.
"""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

PIECE = 65536
TIMEOUT_S = 60.0
OF_A_CONNECTION = ("connection", "content-length", "transfer-encoding", "host", "accept-encoding")


@dataclass(frozen=True)
class Seen:
    """One request, and the status of its answer."""

    method: str
    path: str
    query: str
    body: bytes
    status: int

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class CuttingProxy:
    """`cut_after` is a word: the next streamed answer that contains it ends after the event with that word.

    `cuts` has, by a part of the path, how many bytes of each next answer are passed on after its headers.
    """

    url: str = ""
    seen: list[Seen] = field(default_factory=list[Seen])
    cut_after: bytes | None = None
    cuts: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def asked(self, method: str, ending: str) -> list[Seen]:
        """The requests with this method whose path ends like this."""
        return [each for each in self.seen if each.method == method and each.path.endswith(ending)]

    def room_for(self, path: str) -> int | None:
        """How many bytes of the answer to this request are passed on; None for all."""
        left = next((sizes for part, sizes in self.cuts.items() if part in path), [])
        return left.pop(0) if left else None

    def allowed(self, so_far: bytes, piece: bytes, room: int | None) -> tuple[bytes, bool]:
        """The part of a piece that the client gets, and whether its connection is cut then."""
        if room is not None:
            part = piece[: max(room - len(so_far), 0)]
            return part, len(so_far) + len(piece) >= room
        word = self.cut_after
        if word is None or word not in so_far + piece:
            return piece, False
        whole = so_far + piece
        end = whole.find(b"\n\n", whole.index(word))
        if end < 0:
            return piece, False
        self.cut_after = None
        return whole[len(so_far) : end + 2], True


def _handler(proxy: CuttingProxy, server: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in OF_A_CONNECTION}
            upstream = http.client.HTTPConnection(server, timeout=TIMEOUT_S)
            try:
                upstream.request(self.command, self.path, body or None, headers)
                answer = upstream.getresponse()
                asked = urlsplit(self.path)
                proxy.seen.append(Seen(self.command, asked.path, asked.query, body, answer.status))
                self._begin(answer)
                self._relay(answer)
            finally:
                upstream.close()

        def _begin(self, answer: http.client.HTTPResponse) -> None:
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in OF_A_CONNECTION:
                    self.send_header(name, value)
            if answer.status != 204:
                self.send_header("transfer-encoding", "chunked")
            self.end_headers()

        def _relay(self, answer: http.client.HTTPResponse) -> None:
            streams = "event-stream" in (answer.getheader("content-type") or "")
            so_far, room = b"", proxy.room_for(self.path)
            while piece := answer.read1(PIECE):
                part, cut = proxy.allowed(so_far, piece, room) if streams else (piece, False)
                so_far += piece
                if part:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()
                if cut:
                    self.close_connection = True
                    return
            if answer.status != 204:
                self.wfile.write(b"0\r\n\r\n")

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _forward

        def log_message(self, format: str, *args: Any) -> None:
            return

    return Handler


@contextmanager
def cutting_proxy(server_url: str) -> Iterator[CuttingProxy]:
    """A proxy of this server, at its `url` until the end."""
    proxy = CuttingProxy()
    listener = ThreadingHTTPServer(("127.0.0.1", 0), _handler(proxy, urlsplit(server_url).netloc))
    listener.daemon_threads = True
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    proxy.url = f"http://127.0.0.1:{listener.server_address[1]}"
    try:
        yield proxy
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
